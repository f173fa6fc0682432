"""The slice of a network that some values need: nodes, and everything that these read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deep500.errors import NetworkError, nearest
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
