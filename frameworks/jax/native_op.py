"""JAX functions as operators for every framework, with the gradient that JAX derives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.operators.base import Descriptors, as_list
from deep500.operators.native import NativeFunction
from deep500.tensors import TensorDescriptor, numpy_dtype


class NativeOp(NativeFunction):
    """A JAX function as an operator; made by :func:`deep500.frameworks.jax.custom_op_from_native`."""

    implementation = "native"

    def __init__(
        self,
        function: Callable[..., Any],
        input_descriptors: Descriptors | None = None,
        output_descriptors: Descriptors | None = None,
    ) -> None:
        super().__init__(function, input_descriptors, output_descriptors)
        self._forward, self._backward = jax.jit(self.apply), jax.jit(self._gradient)

    def apply(self, *inputs: Any) -> tuple[Any, ...]:
        """The function itself; always a tuple."""
        return tuple(as_list(self.function(*inputs)))

    def _trace(self, inputs: Descriptors) -> list[TensorDescriptor]:
        self._need_sizes(inputs)
        shapes: list[Any] = [d.shape for d in inputs]
        specs = [jax.ShapeDtypeStruct(s, numpy_dtype(str(d.dtype))) for s, d in zip(shapes, inputs, strict=True)]
        return [TensorDescriptor(str(y.dtype), tuple(y.shape)) for y in jax.eval_shape(self.apply, *specs)]

    def forward(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs."""
        return [np.asarray(y) for y in self._forward(*inputs)]

    def backward(
        self, grads: Sequence[np.ndarray], fwd_inputs: Sequence[np.ndarray], fwd_outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        """The gradients of the inputs, None for those that are no floating numbers."""
        gradients = self._backward(list(grads), list(fwd_inputs))
        return [np.asarray(g) if g.dtype != jax.dtypes.float0 else None for g in gradients]

    def _gradient(self, grads: Any, inputs: Any) -> Any:
        outputs, pull = jax.vjp(self.apply, *inputs)
        return pull(tuple(_cotangent(g, y) for g, y in zip(grads, outputs, strict=True)))


def _cotangent(gradient: Any, output: Any) -> Any:
    if jnp.issubdtype(output.dtype, jnp.inexact):
        return gradient
    return np.zeros(output.shape, jax.dtypes.float0)
