"""One gradient rule per operator, by family; :mod:`deep500.networks.gradients.autodiff` applies them."""

from deep500.networks.gradients.rules import (
    activation,
    convolution,
    indexing,
    losses,
    math,
    matmul,
    normalization,
    pooling,
    reduction,
    resize,
    shape,
)
from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import RULES, ZERO, Rule, gradient_rule

# fmt: off
__all__ = [
    "RULES", "ZERO", "GradContext", "Rule", "Value", "activation", "convolution", "gradient_rule", "indexing",
    "losses", "math", "matmul", "normalization", "pooling", "reduction", "resize", "shape",
]
# fmt: on
