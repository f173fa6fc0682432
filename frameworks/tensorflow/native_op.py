"""TensorFlow functions as operators for every framework, with the gradient that TensorFlow derives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.custom_routes import describe, is_differentiable
from deep500.frameworks.tensorflow.dtypes import from_array, tf_dtype, to_array
from deep500.frameworks.tensorflow.runtime import tf
from deep500.operators.base import Descriptors, as_list
from deep500.operators.native import NativeFunction
from deep500.tensors import TensorDescriptor


class NativeOp(NativeFunction):
    """A TensorFlow function as an operator; made by :func:`deep500.frameworks.tensorflow.custom_op_from_native`."""

    implementation = "native"

    def __init__(
        self,
        function: Callable[..., Any],
        input_descriptors: Descriptors | None = None,
        output_descriptors: Descriptors | None = None,
    ) -> None:
        super().__init__(function, input_descriptors, output_descriptors)
        self._forward = tf.function(self._apply, autograph=False)
        self._backward = tf.function(self._gradient, autograph=False)

    def _apply(self, *tensors: Any) -> list[Any]:
        return [tf.convert_to_tensor(y) for y in as_list(self.function(*tensors))]

    def eager(self, tensors: Sequence[Any]) -> list[Any]:
        """See :class:`deep500.frameworks.tensorflow.custom_routes.Route`."""
        return self.traced(tensors)

    def traced(self, tensors: Sequence[Any]) -> list[Any]:
        """See :class:`deep500.frameworks.tensorflow.custom_routes.Route`."""
        self.check([describe(x) for x in tensors])
        return self._apply(*tensors)

    def _trace(self, inputs: Descriptors) -> list[TensorDescriptor]:
        specs = [
            tf.TensorSpec(
                None if d.shape is None else [s if isinstance(s, int) else None for s in d.shape], tf_dtype(d.dtype)
            )
            for d in inputs
        ]
        return [describe(y) for y in self._forward.get_concrete_function(*specs).structured_outputs]

    def forward(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs."""
        return [to_array(y) for y in self._forward(*map(from_array, inputs))]

    def backward(
        self, grads: Sequence[np.ndarray], fwd_inputs: Sequence[np.ndarray], fwd_outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        """The gradients of the inputs, None for those that are no floating numbers."""
        gradients = iter(self._backward([*map(from_array, grads)], [*map(from_array, fwd_inputs)]))
        return [to_array(next(gradients)) if is_differentiable(tf.constant(x)) else None for x in fwd_inputs]

    def _gradient(self, grads: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        watched = [x for x in inputs if is_differentiable(x)]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            outputs = self._apply(*inputs)
        real = [i for i, y in enumerate(outputs) if is_differentiable(y)]
        gradients = tape.gradient([outputs[i] for i in real], watched, [grads[i] for i in real], "zero")
        return [tf.convert_to_tensor(g) for g in gradients]
