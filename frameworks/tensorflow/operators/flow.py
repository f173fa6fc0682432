"""Nodes that decide where gradients flow."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.tensorflow.operators.table import op
from deep500.frameworks.tensorflow.runtime import tf
from deep500.operators.registry import DOMAIN

Tensor = Any


@op("StopGradient", domain=DOMAIN, layout="any")
def stop_gradient(x: Any) -> Any:
    return [tf.stop_gradient(part) for part in x] if isinstance(x, list) else tf.stop_gradient(x)


@op("CustomGradient", domain=DOMAIN, many=True)
def custom_gradient(*inputs: Tensor, values: int, arguments: int, backward: Any, context: Any) -> Any:
    run, residuals = context.body(backward), inputs[values + arguments :]

    @tf.custom_gradient
    def same(*inputs: Tensor) -> Any:
        def of_arguments(*grads: Tensor) -> Any:
            return [*[None] * values, *run(*grads, *residuals), *[None] * len(residuals)]

        return [tf.identity(x) for x in inputs[:values]], of_arguments

    return tuple(same(*inputs))
