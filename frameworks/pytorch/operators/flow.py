"""Nodes that decide where gradients flow."""

from __future__ import annotations

from typing import Any

import torch

from deep500.frameworks.pytorch.operators.control import run_body
from deep500.frameworks.pytorch.operators.table import op
from deep500.operators.registry import DOMAIN

Tensor = torch.Tensor


@op("StopGradient", domain=DOMAIN)
def stop_gradient(x: Any) -> Any:
    return [part.detach() for part in x] if isinstance(x, list) else x.detach()


@op("CustomGradient", domain=DOMAIN, many=True)
def custom_gradient(*inputs: Tensor, values: int, arguments: int, backward: Any) -> Any:
    return _WithBackward.apply(values, arguments, backward, *inputs)


class _WithBackward(torch.autograd.Function):
    """Values whose gradient a graph computes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: int, arguments: int, backward: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.view_as(x) for x in inputs[:values])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        values, arguments, ctx.graph, *tensors = inputs
        ctx.values, ctx.residuals = values, len(tensors) - values - arguments
        ctx.save_for_backward(*tensors[values + arguments :])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        results = run_body(ctx.graph, *grads, *ctx.saved_tensors)
        return (None, None, None, *[None] * ctx.values, *results, *[None] * ctx.residuals)
