"""The slice of a network that some values need: nodes, and everything that these read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from deep500.errors import NetworkError, nearest
from deep500.networks.flow import gives_gradient
from deep500.networks.graph import Graph
from deep500.networks.node import Node


def needed_nodes(nodes: Sequence[Node], values: Iterable[str]) -> list[Node]:
    """The nodes on which these values depend, in order.

    Args:
        nodes: in an order in which they can run.
        values: names.

    Example:
        >>> exp, tanh = Node("Exp", ("x",), ("a",), "exp"), Node("Tanh", ("x",), ("b",), "tanh")
        >>> nodes = [exp, tanh, Node("Abs", ("a",), ("c",), "abs")]
        >>> [node.name for node in needed_nodes(nodes, ["c"])]
        ['exp', 'abs']
    """
    missing, chosen = set(values), []
    for node in reversed(nodes):
        if missing.intersection(node.writes):
            missing.update(node.reads)
            chosen.append(node)
    return chosen[::-1]


def values_read(nodes: Iterable[Node], outputs: Iterable[str]) -> set[str]:
    """Values read by any node, and the outputs."""
    return {*outputs, *(value for node in nodes for value in node.reads)}


def sources(nodes: Sequence[Node], values: Iterable[str]) -> set[str]:
    """All values on which these depend, themselves included.

    Example:
        >>> exp, tanh = Node("Exp", ("x",), ("a",), "exp"), Node("Tanh", ("x",), ("b",), "tanh")
        >>> nodes = [exp, tanh, Node("Abs", ("a",), ("c",), "abs")]
        >>> sorted(sources(nodes, ["c"]))
        ['a', 'c', 'x']
    """
    names = list(values)
    return values_read(needed_nodes(nodes, names), names)


def check_outputs(network: Graph, outputs: Iterable[str]) -> None:
    """Raise NetworkError for a name that is no value of the network."""
    for name in outputs:
        if not network.has_value(name):
            raise NetworkError(
                f"got output {name!r}; expected a value of the network: {nearest(name, network.values())}"
            )


def without_gradients(nodes: Sequence[Node]) -> list[Node]:
    """Nodes with an Identity for every value of a ``CustomGradient``, where no framework will ask for the gradient.

    Its residuals, which may have cost a lot to compute, are then read by nobody.

    Example:
        >>> from deep500.networks.flow import CUSTOM
        >>> from deep500.operators.registry import DOMAIN
        >>> node = Node(CUSTOM, ("x", "w", "gradient"), ("y",), "given", DOMAIN, {"values": 1, "arguments": 1})
        >>> [str(node) for node in without_gradients([node])]
        ['y = Identity(x)  # given']
    """
    return [new for node in nodes for new in (_identities(node) if gives_gradient(node) else (node,))]


def _identities(node: Node) -> Iterator[Node]:
    for place, (value, output) in enumerate(zip(node.inputs, node.outputs, strict=False)):
        if output:
            same = replace(node, op_type="Identity", inputs=(value,), outputs=(output,), domain="", attributes={})
            yield replace(same, name=f"{node.name}:{place}") if place else same
