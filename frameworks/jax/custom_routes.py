"""How custom operators get from JAX to where they run: as a callback into Python.

The other way, XLA's custom call, is in :mod:`deep500.frameworks.jax.custom_native`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from deep500.networks.execution.custom import unlike_inferred
from deep500.operators.base import CustomOp, contiguous
from deep500.operators.failures import Reported, guarded

Specs = list[jax.ShapeDtypeStruct]
"""Dtypes and shapes of outputs."""


class Route(Protocol):
    """A way to run an operator within a traced program."""

    implementation: str

    def forward(self, specs: Specs, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs."""

    def backward(
        self, needed: Sequence[bool], grads: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The gradients of the needed inputs."""

    def push(self, inputs: Sequence[Any], tangents: Sequence[Any], outputs: Sequence[Any]) -> Sequence[Any]:
        """Tangents of all outputs, from those of all inputs."""

    def bend(
        self, needed: Sequence[bool], grads: Sequence[Any], inputs: Sequence[Any], tangents: Sequence[Any]
    ) -> Sequence[Any]:
        """How the gradients of the needed inputs change along tangents of the inputs."""


# JAX prints whatever a callback raises; what is reported anyway need not be printed.
logging.getLogger("jax._src.callback").addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], Reported))
)


def settle() -> None:
    """Run a callback that succeeds: JAX keeps the last one, and would print its failure again when the process ends."""
    jax.block_until_ready(jax.pure_callback(lambda: np.float32(0), jax.ShapeDtypeStruct((), "float32")))


class Callback:
    """Operators that run on NumPy arrays."""

    implementation = "pure_callback"

    def __init__(self, op: CustomOp) -> None:
        self.op = op

    def forward(self, specs: Specs, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """See :class:`Route`."""
        op = self.op

        def call(*arrays: Any) -> tuple[np.ndarray, ...]:
            outputs = op.run([_host(x) for x in arrays])
            return tuple(_as_inferred(op, y, s) for y, s in zip(outputs, specs, strict=True))

        return tuple(jax.pure_callback(guarded(op.name, call), tuple(specs), *inputs, vmap_method="sequential"))

    def backward(
        self, needed: Sequence[bool], grads: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> tuple[Any, ...]:
        """See :class:`Route`."""
        op, out, n = self.op, len(grads), len(grads) + len(inputs)

        def call(*arrays: Any) -> tuple[np.ndarray, ...]:
            host = [_host(x) for x in arrays]
            gradients = op.run_backward(host[:out], host[out:n], host[n:])
            return tuple(g for g, w in zip(gradients, needed, strict=True) if w)

        specs = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x, w in zip(inputs, needed, strict=True) if w)
        return tuple(
            jax.pure_callback(guarded(op.name, call), specs, *grads, *inputs, *outputs, vmap_method="sequential")
        )

    def push(self, inputs: Sequence[Any], tangents: Sequence[Any], outputs: Sequence[Any]) -> Sequence[Any]:
        """See :class:`Route`; by the operator's ``jvp``."""
        op, n = self.op, len(inputs)

        def call(*arrays: Any) -> tuple[np.ndarray, ...]:
            host = [_host(x) for x in arrays]
            return tuple(op.jvp(host[:n], host[n:])[1])  # type: ignore[attr-defined]

        specs = tuple(jax.ShapeDtypeStruct(y.shape, y.dtype) for y in outputs)
        return tuple(jax.pure_callback(guarded(op.name, call), specs, *inputs, *tangents, vmap_method="sequential"))

    def bend(
        self, needed: Sequence[bool], grads: Sequence[Any], inputs: Sequence[Any], tangents: Sequence[Any]
    ) -> Sequence[Any]:
        """See :class:`Route`; by the operator's ``hvp``."""
        op, out, n = self.op, len(grads), len(grads) + len(inputs)

        def call(*arrays: Any) -> tuple[np.ndarray, ...]:
            host = [_host(x) for x in arrays]
            bent = op.hvp(host[:out], host[out:n], host[n:])  # type: ignore[attr-defined]
            return tuple(b for b, w in zip(bent, needed, strict=True) if w)

        specs = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x, w in zip(inputs, needed, strict=True) if w)
        call_back = guarded(op.name, call)
        return tuple(jax.pure_callback(call_back, specs, *grads, *inputs, *tangents, vmap_method="sequential"))


def is_differentiable(x: Any) -> bool:
    """Whether an array has a dtype that gradients can have."""
    return jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def _host(array: Any) -> np.ndarray:
    """An argument of a callback as a NumPy array, without a copy where that is possible."""
    return contiguous(array)


def _as_inferred(op: CustomOp, array: np.ndarray, spec: jax.ShapeDtypeStruct) -> np.ndarray:
    if array.shape != spec.shape or array.dtype != spec.dtype:
        raise unlike_inferred(op, array, f"{spec.dtype}{list(spec.shape)}")
    return array
