"""`CompiledOp`: an operator in C++ as a `CustomOp`, on NumPy arrays without copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.errors import InputError, UnsupportedOperator
from deep500.operators.base import CustomOp, Descriptors, describe
from deep500.operators.cpp.binding import Binding
from deep500.operators.cpp.build import find_library
from deep500.operators.cpp.commands import Derivation
from deep500.operators.cpp.ranks import attach, mpi_of
from deep500.operators.cpp.spec import BuildSpec, Infer
from deep500.tensors import TensorDescriptor, numpy_dtype

if TYPE_CHECKING:
    from deep500.operators.cpp.isolate import IsolatedBinding

ShapePlan = list["list[tuple[int, int]] | None"]

DENSE = 0x0101
"""NumPy's flags C_CONTIGUOUS and ALIGNED."""

MOST_SHAPES = 4096
"""How many combinations of shapes an operator remembers."""


@dataclass(frozen=True)
class ShapedCall:
    """The facts of calls with certain input shapes."""

    instance: int
    inputs: tuple[tuple[np.dtype, tuple[int, ...]], ...]
    outputs: tuple[tuple[np.dtype, tuple[int, ...]], ...]


class CompiledOp(CustomOp):
    """A C++ operator; made by :func:`compile_custom_cppop`.

    Attributes:
        spec: what it was built from.
        path: its library.
        signature: what the library says of itself: dtypes of inputs and outputs, and which computations it has.
    """

    def __init__(
        self,
        spec: BuildSpec,
        input_descriptors: Descriptors,
        output_descriptors: Descriptors,
        infer: Infer | None = None,
        isolate_seconds: float | None = None,
        live_output: bool = False,
        derivation: Derivation | None = None,
        comm: Any = None,
    ) -> None:
        super().__init__(
            [TensorDescriptor(t, d.shape) for t, d in zip(spec.inputs, input_descriptors, strict=True)],
            [TensorDescriptor(t, d.shape) for t, d in zip(spec.outputs, output_descriptors, strict=True)],
        )
        self.spec, self._infer, self._derivation = spec, infer, derivation
        declared = self.input_descriptors or ()
        self.path: Path = find_library(spec, declared, self.infer, live_output, derivation)
        self._seconds = isolate_seconds
        self._binding = _binding(spec.name, self.path, isolate_seconds)
        if spec.ranks and isinstance(self._binding, Binding):
            attach(spec.name, self._binding.library, self.path, comm, mpi_of(spec.name, comm))
        self.signature: dict[str, Any] = self._binding.signature
        self._known: dict[tuple[tuple[int, ...], ...], ShapedCall] = {}

    @property
    def name(self) -> str:
        """The name it was compiled under."""
        return self.spec.name

    @property
    def differentiable(self) -> bool:
        """Return whether the library has a backward."""
        return bool(self.signature["backward"])

    def infer(self, inputs: Descriptors) -> list[TensorDescriptor]:
        """See :meth:`CustomOp.infer`; asks the callable ``infer`` if there is one."""
        if self._infer is None:
            return super().infer(inputs)
        self.check(inputs)
        descriptors = list(self._infer(list(inputs)))
        self._check_count("infer", "descriptors", len(descriptors), self.num_outputs)
        for i, (descriptor, dtype) in enumerate(zip(descriptors, self.spec.outputs, strict=True)):
            if descriptor.dtype != dtype:
                raise InputError(
                    f"operator {self.name!r}: got dtype {descriptor.dtype} from infer for output {i}; expected "
                    f"{dtype}, which it was compiled for"
                )
        return descriptors

    def forward(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs, always a list.

        Raises:
            InputError: an input is not as declared, or not a dense NumPy array.
            OperatorError: the C++ code threw or returned a status.
        """
        call = self._call(inputs)
        outputs = [np.empty(shape, dtype) for dtype, shape in call.outputs]
        self._binding.call("forward", call.instance, inputs, outputs)
        return outputs

    def backward(
        self, grads: Sequence[np.ndarray], fwd_inputs: Sequence[np.ndarray], fwd_outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        """Gradients of the inputs; None for those of integers."""
        self._require("backward")
        call = self._call(fwd_inputs)
        self._fit("output gradient", grads, call.outputs)
        self._fit("output", fwd_outputs, call.outputs)
        gradients = [self._new_gradient(i, dtype, shape) for i, (dtype, shape) in enumerate(call.inputs)]
        self._binding.call("backward", call.instance, grads, fwd_inputs, fwd_outputs, gradients)
        return gradients

    def _new_gradient(self, index: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray | None:
        skipped = dtype.kind in "biu" or index in self.spec.inactive
        return None if skipped else np.empty(shape, dtype)

    def jvp(
        self, inputs: Sequence[np.ndarray], tangents: Sequence[np.ndarray]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Outputs, and their change along the tangents: the Jacobian times a vector (Enzyme's forward mode)."""
        self._require("jvp")
        call = self._call(inputs)
        self._fit("tangent", tangents, call.inputs)
        outputs = [np.empty(shape, dtype) for dtype, shape in call.outputs]
        changes = [np.zeros(shape, dtype) for dtype, shape in call.outputs]
        self._binding.call("jvp", call.instance, inputs, tangents, outputs, changes)
        return outputs, changes

    def hvp(
        self, grads: Sequence[np.ndarray], inputs: Sequence[np.ndarray], tangents: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Change of the input gradients along the tangents: with one scalar output, the Hessian times a vector."""
        self._require("hvp")
        call = self._call(inputs)
        self._fit("output gradient", grads, call.outputs)
        self._fit("tangent", tangents, call.inputs)
        results = [np.zeros(shape, dtype) for dtype, shape in call.inputs]
        self._binding.call("hvp", call.instance, grads, inputs, tangents, results)
        return results

    def report(self, inputs: Descriptors | Sequence[Any], data: int | None = None) -> int:
        """Return what the operator's ``report(data)`` returns for inputs of these shapes."""
        sizes = self.sizes(inputs)
        return self._binding.report(self._binding.instance(sizes), data)

    def address(self, symbol: str) -> int:
        """Address of an exported function, such as ``d500_forward``, for frameworks that call it themselves."""
        if isinstance(self._binding, Binding):
            return self._binding.address(symbol)
        raise UnsupportedOperator(
            f"C++ operator {self.name!r}: got a request for the address of {symbol!r} under isolate; expected one in "
            "this process: call its forward and backward, or compile it without isolate"
        )

    @property
    def isolated(self) -> bool:
        """Return whether it runs in a worker process, so that there is no address to call in this one."""
        return self._binding.isolated

    @property
    def communicates(self) -> bool:
        """Return whether it has ranks, which must all call it in the same order."""
        return self.spec.ranks

    def sizes(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> np.ndarray:
        """The int64 array that ``d500_instance`` takes: for every input, then every output: rank, size, size, ...

        Args:
            inputs: descriptors or shapes.
            outputs: the same of the outputs; found by :meth:`infer` if None.
        """
        shapes = [_shape(array) for array in inputs]
        if outputs is None:
            known = zip(self.spec.inputs, shapes, strict=True)
            outputs = self.infer([TensorDescriptor(dtype, shape) for dtype, shape in known])
        flat = [number for shape in [*shapes, *map(_shape, outputs)] for number in (len(shape), *shape)]
        return np.array(flat, np.int64)

    def shape_plan(self) -> ShapePlan | None:
        """Describe how the outputs' shapes follow from the inputs'.

        Returns:
            For every output a list of sizes, each ``(input, axis)`` or ``(-1, constant)``, or None where the shape is
            input 0's; None altogether where only the callable ``infer`` knows.
        """
        if self._infer is not None:
            return None
        places: dict[str, tuple[int, int]] = {}
        for i, descriptor in enumerate(self.input_descriptors or ()):
            for axis, size in enumerate(descriptor.shape or ()):
                if isinstance(size, str):
                    places.setdefault(size, (i, axis))
        return [self._planned(descriptor, places) for descriptor in self.output_descriptors or ()]

    def _planned(self, output: TensorDescriptor, places: dict[str, tuple[int, int]]) -> list[tuple[int, int]] | None:
        if output.shape is None:
            return None
        return [places[size] if isinstance(size, str) else (-1, int(size or 0)) for size in output.shape]

    def _require(self, kind: str) -> None:
        if not self.signature[kind]:
            if why := self.signature.get(f"no_{kind}"):
                raise UnsupportedOperator(
                    f"C++ operator {self.name!r}: got a call of {kind}; expected one that Enzyme could derive: {why}"
                )
            cure = "write it, or " if kind == "backward" else ""
            raise UnsupportedOperator(
                f"C++ operator {self.name!r}: got a call of {kind}; expected one that it has: {cure}compile it with "
                "gradient='enzyme'"
            )

    def _call(self, inputs: Sequence[np.ndarray]) -> ShapedCall:
        try:
            call = self._known.get(tuple([x.shape for x in inputs]))
        except AttributeError:
            call = None
        if call is None:
            call = self._new_call(inputs)
        self._fit("input", inputs, call.inputs)
        return call

    def _new_call(self, inputs: Sequence[np.ndarray]) -> ShapedCall:
        for i, x in enumerate(inputs):
            if not isinstance(x, np.ndarray):
                raise self._misfit(
                    "input", i, f"a {type(x).__module__}.{type(x).__name__}", "a NumPy array on the host"
                )
        outputs = self.infer([describe(x) for x in inputs])
        unknown = [str(d) for d in outputs if not d.is_static]
        if unknown:
            raise UnsupportedOperator(
                f"C++ operator {self.name!r}: got outputs of unknown size ({', '.join(unknown)}); expected sizes that "
                "follow from the inputs: use symbols of the input descriptors, or pass infer"
            )
        instance = self._binding.instance(self.sizes([x.shape for x in inputs], outputs))
        call = ShapedCall(
            instance,
            tuple((x.dtype, x.shape) for x in inputs),
            tuple((numpy_dtype(str(d.dtype)), _shape(d)) for d in outputs),
        )
        if len(self._known) >= MOST_SHAPES:
            self._known.clear()
        self._known[tuple(x.shape for x in inputs)] = call
        return call

    def _fit(self, what: str, arrays: Sequence[np.ndarray], want: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> None:
        """Raise InputError unless these are dense arrays of the wanted dtypes and shapes."""
        if len(arrays) != len(want):
            raise InputError(f"C++ operator {self.name!r}: got {len(arrays)} {what}s; expected {len(want)}")
        for x, (dtype, shape) in zip(arrays, want, strict=True):
            # What nearly every call passes, in little time: dtypes of NumPy's own exist once.
            if type(x) is not np.ndarray or x.dtype is not dtype or x.shape != shape or x.flags.num & DENSE != DENSE:
                break
        else:
            return
        for i, (x, (dtype, shape)) in enumerate(zip(arrays, want, strict=True)):
            if not isinstance(x, np.ndarray):
                raise self._misfit(what, i, _kind(x), "a NumPy array on the host")
            if x.dtype != dtype or x.shape != shape:
                raise self._misfit(what, i, f"{x.dtype}{list(x.shape)}", f"{dtype}{list(shape)}")
            if x.flags.num & DENSE != DENSE:
                raise self._misfit(what, i, f"strides {x.strides}", "a dense array: np.ascontiguousarray")

    def _misfit(self, what: str, index: int, got: str, expected: str) -> InputError:
        return InputError(f"C++ operator {self.name!r}, {what} {index}: got {got}; expected {expected}")

    def __reduce__(self) -> tuple[Any, ...]:
        if self.spec.ranks:
            raise UnsupportedOperator(
                f"C++ operator {self.name!r}: got a request for a copy of an operator with ranks; expected one of "
                "them in each process: compile it there, with comm"
            )
        descriptors = (self.input_descriptors, self.output_descriptors)
        return type(self), (self.spec, *descriptors, self._infer, self._seconds, False, self._derivation)


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(getattr(array, "shape", array) or ())


def _binding(name: str, path: Path, isolate_seconds: float | None) -> Binding | IsolatedBinding:
    if isolate_seconds is None:
        return Binding(name, path)
    from deep500.operators.cpp.isolate import IsolatedBinding

    return IsolatedBinding(name, path, isolate_seconds)


def _kind(value: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__name__}"


CustomCPPOp = CompiledOp
"""The name that the original Deep500 gave it."""
