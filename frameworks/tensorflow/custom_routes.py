"""How custom operators get from TensorFlow to where they run: as ``tf.numpy_function``, or as the function they are.

The third way, an operator of TensorFlow's, is in :mod:`deep500.frameworks.tensorflow.custom_native`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from deep500.errors import Deep500Error, UnsupportedOperator
from deep500.frameworks.tensorflow.dtypes import tf_dtype
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.custom import no_gradient, no_second, unlike_inferred
from deep500.operators.base import CustomOp, Descriptors, as_list, contiguous
from deep500.operators.failures import guarded
from deep500.tensors import TensorDescriptor

_PROBES = (12, 24, 36)  # sizes that are tried in place of unknown ones


class Route(Protocol):
    """A way to run an operator: in eager mode, and while a graph is traced."""

    implementation: str

    def eager(self, tensors: Sequence[Any]) -> list[Any]:
        """The outputs."""

    def traced(self, tensors: Sequence[Any]) -> list[Any]:
        """The outputs, with shapes as far as they are known."""


class UnknownSizes(UnsupportedOperator):
    """Shapes of outputs are not known before a run."""


def describe(tensor: Any) -> TensorDescriptor:
    """Dtype and shape of a tensor, sizes that are not known None."""
    shape = tensor.shape
    return TensorDescriptor(tensor.dtype.name, None if shape.rank is None else tuple(shape.as_list()))


def infer(op: CustomOp, inputs: Descriptors) -> list[TensorDescriptor]:
    """Descriptors of the outputs; where inputs have unknown sizes that the operator must know, it is asked for some
    numbers in their place, and sizes that depend on them are unknown."""
    if all(d.is_static for d in inputs):
        return op.infer(inputs)
    op.check(inputs)
    try:
        return op.infer(inputs)
    except Exception:  # noqa: BLE001 -- whatever the author's own infer raises at None
        if any(d.shape is None for d in inputs):
            raise _unknown(op, inputs) from None
    try:
        tried = [op.infer([_filled(d, size) for d in inputs]) for size in _PROBES]
    except Deep500Error as error:
        raise _unknown(op, inputs) from error
    return [_common(candidates) for candidates in zip(*tried, strict=True)]


def _unknown(op: CustomOp, inputs: Descriptors) -> UnknownSizes:
    return UnknownSizes(
        f"operator {op.name!r}: got inputs of unknown size ({', '.join(map(str, inputs))}); expected known ones, or an "
        "operator that can tell its outputs' shapes: declare output_descriptors, or give tf.function an input_signature"
    )


def _filled(descriptor: TensorDescriptor, size: int) -> TensorDescriptor:
    shape = descriptor.shape or ()
    return TensorDescriptor(descriptor.dtype, tuple(d if isinstance(d, int) else size for d in shape))


def _common(candidates: Sequence[TensorDescriptor]) -> TensorDescriptor:
    shapes = [d.shape or () for d in candidates]
    if len({len(s) for s in shapes}) > 1:
        return TensorDescriptor(candidates[0].dtype, None)
    return TensorDescriptor(
        candidates[0].dtype, tuple(s[0] if len({*s}) == 1 else None for s in zip(*shapes, strict=True))
    )


def with_shapes(tensors: Sequence[Any], shapes: Sequence[Any]) -> list[Any]:
    """The tensors, with what is known of their shapes set."""
    for tensor, shape in zip(tensors, shapes, strict=True):
        if shape is not None:
            tensor.set_shape([d if isinstance(d, int) else None for d in shape])
    return list(tensors)


def whole(gradient: Any, output: Any) -> Any:
    """An output's gradient as a tensor of its dtype, zeros where none flows."""
    if gradient is None:
        return tf.zeros_like(output)
    gradient = tf.convert_to_tensor(gradient)
    return gradient if gradient.dtype == output.dtype else tf.zeros_like(output)


def is_differentiable(tensor: Any) -> bool:
    """Whether a tensor has a dtype that gradients can have."""
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


class NumpyFunction:
    """Operators that run on NumPy arrays."""

    implementation = "numpy_function"

    def __init__(self, op: CustomOp) -> None:
        self.op = op

    def eager(self, tensors: Sequence[Any]) -> list[Any]:
        """See :class:`Route`."""
        return self.traced(tensors)

    def traced(self, tensors: Sequence[Any]) -> list[Any]:
        """See :class:`Route`."""
        op, inferred = self.op, infer(self.op, [describe(x) for x in tensors])

        def call(*arrays: Any) -> list[np.ndarray]:
            outputs = op.run([_host(x) for x in arrays])
            return [_as_inferred(op, y, d) for y, d in zip(outputs, inferred, strict=True)]

        @tf.custom_gradient
        def function(*inputs: Any) -> Any:
            results = tf.numpy_function(
                guarded(op.name, call), inputs, [tf_dtype(d.dtype) for d in inferred], stateful=False
            )
            outputs = with_shapes(as_list(results), [d.shape for d in inferred])
            return outputs, lambda *grads: self.gradient(inputs, outputs, grads)

        return as_list(function(*tensors))

    def gradient(
        self, inputs: Sequence[Any], outputs: Sequence[Any], grads: Sequence[Any], skipped: Any = ()
    ) -> list[Any]:
        """Gradients of the inputs, None for those that have none."""
        op, out, n = self.op, len(outputs), len(outputs) + len(inputs)
        needed = [is_differentiable(x) and i not in skipped for i, x in enumerate(inputs)]
        if not op.differentiable:
            raise no_gradient(op)
        if not any(needed):
            return [None] * len(inputs)

        def call(*arrays: Any) -> list[np.ndarray]:
            host = [_host(x) for x in arrays]
            gradients = op.run_backward(host[:out], host[out:n], host[n:])
            return [g for g, w in zip(gradients, needed, strict=True) if w]

        @tf.custom_gradient
        def function(*arguments: Any) -> Any:
            chosen = [x for x, w in zip(arguments[out:n], needed, strict=True) if w]
            results = tf.numpy_function(guarded(op.name, call), arguments, [x.dtype for x in chosen], stateful=False)

            def refuse(*_: Any) -> Any:
                raise no_second(op)

            return with_shapes(as_list(results), [describe(x).shape for x in chosen]), refuse

        whole_grads = [whole(g, y) for g, y in zip(grads, outputs, strict=True)]
        gradients = iter(as_list(function(*whole_grads, *inputs, *outputs)))
        return [next(gradients) if w else None for w in needed]


def _host(array: Any) -> np.ndarray:
    """An argument of a function, which is TensorFlow's memory: to be read only."""
    view = contiguous(array).view()
    view.flags.writeable = False
    return view


def _as_inferred(op: CustomOp, array: np.ndarray, inferred: TensorDescriptor) -> np.ndarray:
    if str(array.dtype) != inferred.dtype or not inferred.accepts(array.shape):
        raise unlike_inferred(op, array, inferred)
    return array
