"""`CustomOp`: one computation and, where it has one, its gradient, tied to no framework.

Requirements of the seam, for those who write a kind of operator or wrap one for a framework:

* ``forward`` and ``backward`` take and return C-contiguous arrays on the host; they must not change their inputs, and
  must allow several calls at once (frameworks call from threads of their own).
* ``infer`` gives dtypes and shapes of the outputs without data; frameworks ask it while they trace.
* ``backward`` gets one gradient per output, of the output's dtype and shape (zeros where none flows), and returns one
  per input, of the input's dtype and shape; None for an input that has no gradient (labels, indices).
* What is wrong with a call is an :class:`~deep500.errors.InputError` that names the operator and the argument.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.errors import InputError, UnsupportedOperator
from deep500.tensors import Shape, TensorDescriptor, numpy_dtype

Descriptors = Sequence[TensorDescriptor]


class CustomOp(abc.ABC):
    """An operator.

    Args:
        input_descriptors: dtype and shape of every input. A size may be a symbol, ``("N", 3)``, which means the same
            size wherever it stands; the shape may be None: any. Without descriptors any inputs are taken.
        output_descriptors: of every output. Symbols take their sizes from the inputs; a shape of None is the first
            input's; a dtype of None too. Without descriptors, the first call decides.
    """

    _accepted: Any = None  # dtypes and shapes of the inputs that run() checked last
    make_again: Callable[[], CustomOp] | None = None
    """Makes an operator alike, of one that nodes name; None if nothing is known of how it was made."""

    def __init__(
        self, input_descriptors: Descriptors | None = None, output_descriptors: Descriptors | None = None
    ) -> None:
        self.input_descriptors = None if input_descriptors is None else tuple(input_descriptors)
        self.output_descriptors = None if output_descriptors is None else tuple(output_descriptors)

    @property
    def name(self) -> str:
        """Name in errors and frameworks."""
        return type(self).__name__

    @property
    def num_inputs(self) -> int | None:
        """Number of inputs, None if any number or not known yet."""
        return None if self.input_descriptors is None else len(self.input_descriptors)

    @property
    def num_outputs(self) -> int | None:
        """Number of outputs, None if not known yet."""
        return None if self.output_descriptors is None else len(self.output_descriptors)

    @property
    def communicates(self) -> bool:
        """Return whether it waits for other processes, so that they must all call it in the same order."""
        return False

    @property
    @abc.abstractmethod
    def differentiable(self) -> bool:
        """Return whether it has a ``backward``."""

    @abc.abstractmethod
    def forward(self, inputs: Sequence[np.ndarray]) -> Any:
        """The outputs: one array or a list of them."""

    def backward(
        self, grads: Sequence[np.ndarray], fwd_inputs: Sequence[np.ndarray], fwd_outputs: Sequence[np.ndarray]
    ) -> Any:
        """Gradients of the inputs: one array or a list, None for an input without one.

        Args:
            grads: gradient of the loss with respect to every output.
            fwd_inputs: what forward was given.
            fwd_outputs: what forward returned.
        """
        raise UnsupportedOperator(f"operator {self.name!r}: got a call of backward; expected one that it has: write it")

    def infer(self, inputs: Descriptors) -> list[TensorDescriptor]:
        """Descriptors of the outputs for these inputs, sizes that cannot be known None.

        Raises:
            InputError: the inputs do not fit those that are declared.
        """
        sizes = self.check(inputs)
        if self.output_descriptors is None:
            raise UnsupportedOperator(
                f"operator {self.name!r}: got no output descriptors; expected some, or an own infer(): pass "
                "output_descriptors=[...]"
            )
        return [_resolved(descriptor, inputs, sizes) for descriptor in self.output_descriptors]

    def check(self, inputs: Descriptors) -> dict[str, Any]:
        """Raise InputError unless inputs are as declared; returns the size of every symbol."""
        declared = self.input_descriptors
        if declared is None:
            return {}
        if len(inputs) != len(declared):
            raise InputError(f"operator {self.name!r}: got {len(inputs)} inputs; expected {len(declared)}")
        sizes: dict[str, Any] = {}
        for i, (got, want) in enumerate(zip(inputs, declared, strict=True)):
            _check_one(f"operator {self.name!r}, input {i}", got, want, sizes)
        return sizes

    def __call__(self, *inputs: Any) -> Any:
        """Run forward on arrays, checked; one array, or a list of them if there are several outputs.

        Example:
            >>> import deep500 as d5
            >>> class Twice(d5.CustomPythonOp):
            ...     def forward(self, inputs):
            ...         return 2 * inputs[0]
            >>> Twice()([1.0, 2.0]).tolist()
            [2.0, 4.0]
        """
        outputs = self.run([contiguous(x) for x in inputs])
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Forward with checks before and after; always a list. What backends without a wrapper of their own call."""
        kinds = [(x.dtype, x.shape) for x in inputs]
        if kinds != self._accepted:  # nearly always the same as last time, and then not worth 10 us
            self.check([describe(x) for x in inputs])
            self._accepted = kinds
        outputs = as_list(self.forward(inputs))
        self._check_count("forward", "outputs", len(outputs), self.num_outputs)
        return [np.asarray(y) for y in outputs]

    def run_backward(
        self, grads: Sequence[np.ndarray], fwd_inputs: Sequence[np.ndarray], fwd_outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Backward with checks; always one array per input, zeros for an input without a gradient."""
        results = as_list(self.backward(grads, fwd_inputs, fwd_outputs))
        self._check_count("backward", "gradients", len(results), len(fwd_inputs))
        gradients = [np.zeros_like(x) if g is None else np.asarray(g) for g, x in zip(results, fwd_inputs, strict=True)]
        for i, (g, x) in enumerate(zip(gradients, fwd_inputs, strict=True)):
            if g.shape != x.shape:
                raise InputError(
                    f"operator {self.name!r}: got a gradient of shape {g.shape} for input {i}; expected {x.shape}: "
                    "let backward return gradients of the inputs' shapes"
                )
        return [contiguous(g, x.dtype) for g, x in zip(gradients, fwd_inputs, strict=True)]

    def _check_count(self, method: str, what: str, got: int, expected: int | None) -> None:
        if expected is not None and got != expected:
            raise InputError(
                f"operator {self.name!r}: got {got} {what} from {method}; expected {expected}: return a list of them"
            )

    def __repr__(self) -> str:
        return f"<{self.name}>"


def for_more_derivatives(op: CustomOp, *kinds: str) -> str:
    """The cure for a derivative that an operator has not, or why the compiler derived none of these kinds."""
    signature = getattr(op, "signature", {})
    reasons = (reason for kind in kinds if not signature.get(kind) and (reason := signature.get(f"no_{kind}")))
    return next((f"of this Enzyme derived none ({reason})" for reason in reasons), "compile it with gradient='enzyme'")


def describe(array: Any) -> TensorDescriptor:
    """The descriptor of an array."""
    return TensorDescriptor(str(array.dtype), tuple(array.shape))


def contiguous(value: Any, dtype: Any = None) -> np.ndarray:
    """An array in C order, itself if it is one; unlike NumPy's function of that name it leaves scalars scalars."""
    return np.asarray(value, dtype, order="C")


def as_list(values: Any) -> list[Any]:
    """Return the results of forward or backward as a list: one array, or a list or tuple of them."""
    return list(values) if isinstance(values, (list, tuple)) else [values]


def empty(descriptor: TensorDescriptor) -> np.ndarray:
    """An array for an output; every size must be known."""
    shape: Any = descriptor.shape
    assert descriptor.is_static and descriptor.dtype is not None
    return np.empty(shape, numpy_dtype(descriptor.dtype))


def _resolved(declared: TensorDescriptor, inputs: Descriptors, sizes: Mapping[str, Any]) -> TensorDescriptor:
    """An output's descriptor with what follows from the inputs filled in."""
    first = inputs[0] if inputs else TensorDescriptor(None, None)
    shape: Shape | None = declared.shape
    shape = first.shape if shape is None else tuple(sizes.get(d) if isinstance(d, str) else d for d in shape)
    return TensorDescriptor(declared.dtype or first.dtype, shape)


def _check_one(where: str, got: TensorDescriptor, want: TensorDescriptor, sizes: dict[str, Any]) -> None:
    if None not in (got.dtype, want.dtype) and got.dtype != want.dtype:
        raise InputError(f"{where}: got dtype {got.dtype}; expected {want.dtype}: convert it")
    if got.shape is None or want.shape is None:
        return
    fits = len(got.shape) == len(want.shape)
    for size, expected in zip(got.shape, want.shape, strict=False):
        known = sizes.setdefault(expected, size) if isinstance(expected, str) else expected
        if isinstance(known, int) and isinstance(size, int) and known != size:
            fits = False
    if not fits:
        bound = {k: v for k, v in sizes.items() if isinstance(v, int)}
        raise InputError(f"{where}: got {got}; expected {want}" + (f" with {bound}" if bound else "") + ": reshape it")
