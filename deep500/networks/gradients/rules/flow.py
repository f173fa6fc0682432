"""Rules of the nodes that decide where gradients flow (:mod:`deep500.networks.flow`)."""

from __future__ import annotations

from collections.abc import Sequence

from deep500.networks.flow import CUSTOM, STOP
from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule
from deep500.networks.node import Node
from deep500.operators.registry import DOMAIN


@gradient_rule(STOP, domain=DOMAIN, blocked=[0])
def stop_gradient(g: GradContext) -> Sequence[Value | None]:
    """No gradient at all."""
    return [None]


def _all_but_arguments(node: Node) -> frozenset[int]:
    first = node.attributes["values"]
    return frozenset(range(len(node.inputs))) - set(range(first, first + node.attributes["arguments"]))


@gradient_rule(CUSTOM, domain=DOMAIN, blocked=_all_but_arguments)
def custom_gradient(g: GradContext) -> Sequence[Value | None]:
    """The nodes of ``backward``."""
    values, arguments = g.attribute("values"), g.attribute("arguments")
    operands = [str(g.grad(i)) for i in range(values)] + list(g.node.inputs[values + arguments :])
    results = g.emitter.inline(g.attribute("backward"), operands)
    return [*[None] * values, *(Value(g, name) for name in results)]
