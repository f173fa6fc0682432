"""Nodes that decide where gradients flow."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from deep500.frameworks.jax.operators.table import Array, op
from deep500.operators.registry import DOMAIN


@op("StopGradient", domain=DOMAIN)
def stop_gradient(x: Any) -> Any:
    return jax.lax.stop_gradient(x)


@op("CustomGradient", domain=DOMAIN, many=True)
def custom_gradient(*inputs: Array, values: int, arguments: int, backward: Any) -> Any:
    @jax.custom_vjp
    def same(values: Any, arguments: Any, residuals: Any) -> Any:
        return values

    def forward(values: Any, arguments: Any, residuals: Any) -> Any:
        return values, residuals

    def of_arguments(residuals: Any, grads: Any) -> Any:
        return None, tuple(map(jnp.asarray, backward(*grads, *residuals))), None

    same.defvjp(forward, of_arguments)
    arrays = tuple(map(jnp.asarray, inputs))
    last = values + arguments
    return same(arrays[:values], arrays[values:last], arrays[last:])
