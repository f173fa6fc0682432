"""ONNX's activations of recurrent operators: which one a gate has, and with which alpha and beta."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "HardSigmoid": 0.2, "Elu": 1.0, "ScaledTanh": 1.0, "Affine": 1.0}
"""Default alpha of the activations that have one."""
BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0, "Affine": 0.0}
"""Default beta of the activations that have one."""


def gate_activations(
    functions: Mapping[str, Callable[[Any, float, float], Any]],
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    default: Sequence[str],
) -> list[Callable[[Any], Any]]:
    """The activation functions of all gates and directions, in order.

    Args:
        functions: of the backend, by ONNX's name, of a tensor, alpha and beta.
        names: the operator's ``activations``; those of ``default`` if there are none.
        alphas, betas: the operator's; handed in order to the activations that have such a number.
        default: names for all gates and directions.

    Example:
        >>> affine = {"Affine": lambda x, a, b: a * x + b, "Relu": lambda x, a, b: max(x, 0)}
        >>> first, second = gate_activations(affine, ["Relu", "Affine"], [2.0], None, ())
        >>> first(-1), second(3)
        (0, 6.0)
    """
    left, right = list(alphas or ()), list(betas or ())
    chosen: list[Any] = []
    for name in names or default:
        a = left.pop(0) if name in ALPHA and left else ALPHA.get(name, 0.0)
        b = right.pop(0) if name in BETA and right else BETA.get(name, 0.0)
        chosen.append(lambda x, f=functions[name], a=a, b=b: f(x, a, b))
    return chosen
