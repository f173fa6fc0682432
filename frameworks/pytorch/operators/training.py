"""The update rules of ONNX's preview of training: Adagrad, Momentum and Adam.

Inputs are R, T, then all parameters, all gradients, then the states of each kind; outputs the parameters and states.
Formulas: those of ONNX's schemas in ai.onnx.preview.training.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from deep500.frameworks.pytorch.operators.table import op

Tensor = torch.Tensor
_DOMAIN = "ai.onnx.preview.training"


def _for_parameters(
    tensors: tuple[Tensor, ...], kinds: int, rule: Callable[..., tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """Apply a rule to each (parameter, gradient, states...); results by kind, as ONNX orders them."""
    count = len(tensors) // kinds
    rows = [rule(*(tensors[k * count + i] for k in range(kinds))) for i in range(count)]
    return tuple(value for kind in zip(*rows, strict=True) for value in kind)


@op("Adagrad", domain=_DOMAIN, many=True)
def adagrad(
    r: Tensor,
    t: Tensor,
    *tensors: Tensor,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:
    """H <- H + G^2; X <- X - r G / (sqrt(H) + epsilon), r = R / (1 + T decay)."""
    rate = r / (1 + t * decay_factor)

    def rule(x: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = g + norm_coefficient * x
        h = h + g * g
        return x - rate * g / (h.sqrt() + epsilon), h

    return _for_parameters(tensors, 3, rule)


@op("Momentum", domain=_DOMAIN, many=True)
def momentum(
    r: Tensor,
    t: Tensor,
    *tensors: Tensor,
    alpha: float = 0.0,
    beta: float = 0.0,
    mode: str = "standard",
    norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:
    """V <- alpha V + b G; X <- X - R V, or R (G + alpha V) in Nesterov's mode; b is 1 at T = 0, else beta."""
    factor = torch.where(t == 0, 1.0, beta)

    def rule(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        g = g + norm_coefficient * x
        v = alpha * v + factor.to(g.dtype) * g
        return x - r * (g + alpha * v if mode == "nesterov" else v), v

    return _for_parameters(tensors, 3, rule)


@op("Adam", domain=_DOMAIN, many=True)
def adam(
    r: Tensor,
    t: Tensor,
    *tensors: Tensor,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:
    """First and second moments; at T > 0 the rate is corrected by sqrt(1 - beta^T) / (1 - alpha^T)."""
    later = torch.clamp(t, min=1)
    rate = r * torch.where(t > 0, (1 - beta**later).sqrt() / (1 - alpha**later), 1.0).to(r.dtype)

    def rule(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = g + norm_coefficient * x
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
        return (1 - norm_coefficient_post) * (x - rate * v / (h.sqrt() + epsilon)), v, h

    return _for_parameters(tensors, 4, rule)
