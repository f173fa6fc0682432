"""`CustomPythonOp`: an operator written with NumPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deep500.errors import InputError, UnsupportedOperator
from deep500.operators.base import CustomOp, Descriptors, as_list, contiguous, describe, empty
from deep500.tensors import TensorDescriptor


class CustomPythonOp(CustomOp):
    """Base class of operators in Python: write ``forward`` and, to train through it, ``backward``.

    Without descriptors, dtypes and shapes of the outputs are found by calling ``forward`` once with ones of the inputs'
    dtypes and shapes; so forward must take any values.

    Example:
        >>> class Power(CustomPythonOp):
        ...     def __init__(self, exponent):
        ...         super().__init__()
        ...         self.exponent = exponent
        ...     def forward(self, inputs):
        ...         return inputs[0] ** self.exponent
        ...     def backward(self, grads, fwd_inputs, fwd_outputs):
        ...         return grads[0] * self.exponent * fwd_inputs[0] ** (self.exponent - 1)
        >>> Power(3)(np.array([1.0, 2.0])).tolist()
        [1.0, 8.0]
    """

    _returned: Any = None  # dtypes and shapes of inputs and outputs that run() checked last
    _seen: dict[tuple[TensorDescriptor, ...], list[TensorDescriptor]]

    @property
    def differentiable(self) -> bool:
        """Return whether the class has a ``backward`` of its own."""
        return type(self).backward is not CustomOp.backward

    def infer(self, inputs: Descriptors) -> list[TensorDescriptor]:
        """See :meth:`CustomOp.infer`; without declared outputs, forward is called with ones."""
        self.check(inputs)
        if self.output_descriptors is not None:
            return super().infer(inputs)
        key = tuple(inputs)
        seen = self.__dict__.setdefault("_seen", {})
        if key not in seen:
            seen[key] = self._tried(inputs)
        return seen[key]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See :meth:`CustomOp.run`; declared outputs are held to what was declared, because networks rely on it.

        Raises:
            InputError: forward returned another dtype or shape, or wrote into an input.
        """
        with self._untouched("forward"):
            outputs = [_writable(y) for y in super().run([_read_only(x) for x in inputs])]
        kinds = [(x.dtype, x.shape) for x in (*inputs, *outputs)]
        if self.output_descriptors is not None and kinds != self._returned:
            for i, (array, declared) in enumerate(zip(outputs, self.infer([describe(x) for x in inputs]), strict=True)):
                if str(array.dtype) != (declared.dtype or str(array.dtype)) or not declared.accepts(array.shape):
                    raise InputError(
                        f"operator {self.name!r}: got output {i} of {describe(array)} from forward; expected "
                        f"{declared}, as declared: convert it, or correct output_descriptors"
                    )
            self._returned = kinds
        return outputs

    def run_backward(
        self, grads: Sequence[np.ndarray], fwd_inputs: Sequence[np.ndarray], fwd_outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """See :meth:`CustomOp.run_backward`.

        Raises:
            InputError: backward wrote into what it is given, or reads what forward left in the operator.
        """
        arrays = [[_read_only(x) for x in group] for group in (grads, fwd_inputs, fwd_outputs)]
        with self._untouched("backward"):
            gradients = [_writable(g) for g in super().run_backward(*arrays)]
        again = self.make_again  # read once: ranks may be threads
        if again is not None and not self.communicates:
            self._check_forgetful(again(), arrays, gradients)
            self.make_again = None
        return gradients

    def _check_forgetful(self, new: CustomOp, arrays: list[list[np.ndarray]], gradients: list[np.ndarray]) -> None:
        """An operator that never ran forward must give the same gradients: others may run between the two."""
        why = ""
        try:
            pairs = zip(gradients, CustomOp.run_backward(new, *arrays), strict=True)
            if not all(np.array_equal(ours, other, equal_nan=ours.dtype.kind in "fc") for ours, other in pairs):
                why = "other gradients where forward did not run before"
        except Exception as error:  # noqa: BLE001 - any error of the operator's own code
            why = f"{type(error).__name__} ({error}) where forward did not run before"
        if why:
            raise InputError(
                f"operator {self.name!r}: got {why} from backward; expected one that reads nothing which forward left "
                "in the operator, as it serves all nodes, ranks and pieces of a batch: return what backward needs, "
                "such as a mask, as a further output of forward, and take it from fwd_outputs"
            )

    @contextmanager
    def _untouched(self, method: str) -> Iterator[None]:
        """Inside, NumPy's refusal to write into what others read, too, is an error that says so."""
        try:
            yield
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise InputError(
                f"operator {self.name!r}: got a write into an array of {method} ({error}); expected these to "
                "stay as they are, as others read them: write into a copy"
            ) from error

    def _tried(self, inputs: Sequence[TensorDescriptor]) -> list[TensorDescriptor]:
        if not all(d.is_static and d.dtype is not None for d in inputs):
            raise UnsupportedOperator(
                f"operator {self.name!r}: got inputs of unknown size ({', '.join(map(str, inputs))}); expected known "
                "ones, or declared outputs: pass output_descriptors to super().__init__()"
            )
        ones: list[np.ndarray] = [np.ones_like(empty(d)) for d in inputs]
        try:
            with np.errstate(all="ignore"):  # ones may lie where the operator has no finite value
                return [describe(np.asarray(y)) for y in as_list(self.forward(ones))]
        except Exception as error:
            raise InputError(
                f"operator {self.name!r}: got {type(error).__name__} ({error}) from forward with ones of "
                f"{', '.join(map(str, inputs))}; expected outputs: mend it, or declare output_descriptors"
            ) from error


def _read_only(array: np.ndarray) -> np.ndarray:
    """A view that cannot be written."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _writable(array: np.ndarray) -> np.ndarray:
    """The array, or a copy if it is an input that was returned."""
    return array if array.flags.writeable else array.copy()


class GradientOp(CustomOp):
    """The gradient of another operator as an operator: (output gradients, inputs, outputs) -> input gradients.

    What emitted gradient networks call (node ``<Name>Grad``); it has no gradient itself.
    """

    def __init__(self, operator: CustomOp, num_outputs: int) -> None:
        super().__init__()
        self.operator, self.count = operator, num_outputs

    @property
    def name(self) -> str:
        """The operator's with ``Grad`` behind it."""
        return f"{self.operator.name}Grad"

    @property
    def communicates(self) -> bool:
        """Return whether the operator communicates."""
        return self.operator.communicates

    @property
    def differentiable(self) -> bool:
        """No."""
        return False

    def infer(self, inputs: Descriptors) -> list[TensorDescriptor]:
        """Dtypes and shapes of the forward inputs."""
        return list(inputs[self.count : len(inputs) - self.count])

    def forward(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The gradients of the inputs."""
        count = self.count
        grads = [contiguous(g) for g in inputs[:count]]
        return self.operator.run_backward(grads, inputs[count : len(inputs) - count], inputs[len(inputs) - count :])
