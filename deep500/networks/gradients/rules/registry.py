"""The tables of the gradient transformation: one rule per operator, and the operators whose derivative is zero.

A custom operator adds its rule with the same decorator:

    @gradient_rule("IPow", domain="deep500")
    def ipow(g):
        x, dy = g.inputs[0], g.grads[0]
        return [dy * g.attribute("exponent") * g("IPow", x, domain="deep500", exponent=...)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from deep500.networks.gradients.rules.context import GradContext, Value
    from deep500.networks.node import Node

RuleFunction: TypeAlias = "Callable[[GradContext], Sequence[Value | str | None]]"


@dataclass(frozen=True)
class GradientRule:
    """How the gradient passes one operator.

    Attributes:
        function: takes the context of one node; returns one gradient per input, None where it is zero or not needed
            (trailing ones may be left out).
        blocked: inputs through which no gradient flows although they may be floating (a Dropout's ratio); a function
            of the node where its attributes decide.
        refused: inputs that a gradient may want and cannot have, each with what it is: an error in every backend.
        outputs: the forward node is given at least this many outputs, for the rule to read (a MaxPool's Indices).
    """

    function: RuleFunction
    blocked: frozenset[int] | Callable[[Node], frozenset[int]] = frozenset()
    outputs: int = 1
    refused: Mapping[int, str] = field(default_factory=dict)

    def blocks(self, node: Node) -> frozenset[int]:
        """The inputs of a node through which no gradient flows."""
        return self.blocked(node) if callable(self.blocked) else self.blocked


RULES: dict[tuple[str, str], GradientRule] = {}
"""The rule of each operator, by (domain, operator name)."""

_CONSTANT_PIECES = "piecewise constant: the derivative is zero almost everywhere"
_DISCRETE = "its result is an integer, a boolean or a choice, which small changes of the input do not move"
_SHAPE_ONLY = "depends on the shape or type of its input only"
_DRAWN = "a random draw: a sample is constant almost everywhere in its parameters"

ZERO: dict[str, str] = {
    **dict.fromkeys(("Floor", "Ceil", "Round", "Sign", "Hardmax"), _CONSTANT_PIECES),
    **dict.fromkeys(("ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), _DISCRETE),
    **dict.fromkeys(("And", "Or", "Xor", "Not", "IsNaN", "IsInf", "NonZero", "QuantizeLinear"), _DISCRETE),
    **dict.fromkeys(("DynamicQuantizeLinear", "NonMaxSuppression"), _DISCRETE),
    **dict.fromkeys(("Shape", "Size", "EyeLike", "RandomNormalLike", "RandomUniformLike"), _SHAPE_ONLY),
    **dict.fromkeys(("Constant", "ConstantOfShape", "RandomNormal", "RandomUniform"), "has no floating input"),
    **dict.fromkeys(("Bernoulli", "Multinomial"), _DRAWN),
}
"""ONNX operators through which the gradient is zero because mathematics says so, with the reason."""

FLAT = frozenset(("Floor", "Ceil", "Round", "Sign"))
"""Those that floating numbers pass: a loss depends on what lies before, with a gradient of zeros (as in PyTorch)."""


def gradient_rule(
    *op_types: str,
    domain: str = "",
    blocked: Sequence[int] | Callable[[Node], frozenset[int]] = (),
    outputs: int = 1,
    refused: Mapping[int, str] | None = None,
) -> Callable[[RuleFunction], RuleFunction]:
    """Decorator that registers a function as the rule of these operators; :class:`GradientRule` has the arguments."""

    def register(function: RuleFunction) -> RuleFunction:
        for op_type in op_types:
            stops = blocked if callable(blocked) else frozenset(blocked)
            RULES[(domain, op_type)] = GradientRule(function, stops, outputs, refused or {})
        return function

    return register
