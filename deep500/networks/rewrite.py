"""Put new nodes in the place of old ones.

:func:`replace_operator` is for users. Gradients, modes and transformations first add new nodes under fresh names;
:func:`supersede` then hands them the old nodes' values, so that every reader, the network's outputs included, keeps its
names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from deep500.errors import NetworkError, nearest
from deep500.networks.custom import check_plugins
from deep500.networks.graph import AnyGraph, Graph
from deep500.networks.node import Node


def replace_operator(
    network: AnyGraph,
    old: str,
    new: str,
    domain: str = "",
    *,
    old_domain: str = "",
    inputs: int | None = None,
    where: Callable[[Node], bool] | None = None,
    **attributes: Any,
) -> AnyGraph:
    """A copy of a network in which every node of one operator is a node of another; names and connections stay.

    Args:
        network: stays as it is.
        old: the operator to replace, of domain ``old_domain``.
        new: the operator that takes its place, of domain ``domain`` (``"deep500"`` for custom operators).
        inputs: how many of the old node's inputs the new one takes, the first ones; all if None. (Clip has three, an
            activation that takes its place one.)
        where: chooses among the nodes of ``old``; all if None.
        attributes: of the new nodes; those of the old ones are dropped.

    Raises:
        NetworkError: no such node, or inputs, outputs or attributes that the new operator does not take.
        UnsupportedOperator: a custom operator whose plugin is missing.

    Example:
        >>> from deep500.networks.zoo import create
        >>> network = replace_operator(create("lenet"), "Relu", "LeakyRelu", alpha=0.1)
        >>> [node.op_type for node in network.nodes if node.name.startswith("relu")]
        ['LeakyRelu', 'LeakyRelu', 'LeakyRelu', 'LeakyRelu']
    """
    copy = network.copy()
    candidates = [n for n in network.nodes if (n.domain, n.op_type) == (old_domain, old)]
    chosen = [node for node in candidates if where is None or where(node)]
    if not chosen:
        known = {f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in network.nodes}
        what = f"{old_domain}.{old}" if old_domain else old
        hint = f"{len(candidates)} node(s) of it, all left out by where" if candidates else nearest(what, known)
        raise NetworkError(f"got operator {what!r} to replace; expected one that the network has ({hint}): name it")
    for node in chosen:
        copy.replace(node.name, new, node.inputs[:inputs], domain, **attributes)
    check_plugins(copy.node(node.name) for node in chosen)
    copy.descriptors()  # custom operators refuse inputs that do not suit them
    return copy


def supersede(network: Graph, replacements: Mapping[str, Mapping[str, str]]) -> None:
    """Remove nodes and let new values take over the names of theirs, in one step.

    Args:
        network: is edited.
        replacements: for each node to remove, ``{its output: the value that takes over}``; the value must be written
            by a node, and every output of the removed node that is read must be in it.

    Raises:
        NetworkError: an output that is still read is not taken over, or a cycle would arise.

    Example:
        >>> net = Graph(); net.add_input("x", (2,)); net.add_node("Relu", ["x"], ["y"], name="a")
        >>> net.add_node("Tanh", ["x"], ["new"], name="b")
        >>> supersede(net, {"a": {"y": "new"}})
        >>> [str(node) for node in net.nodes]
        ['y = Tanh(x)  # b']
    """
    names = {new: old for values in replacements.values() for old, new in values.items()}
    for new, old in names.items():
        if network.producer(new) is None:
            raise NetworkError(f"got {new!r} to take over {old!r}; expected a node's output: add an Identity")
    nodes = []
    for node in network.nodes:
        if node.name not in replacements:
            inputs, outputs = (tuple(names.get(v, v) for v in side) for side in (node.inputs, node.outputs))
            nodes.append(replace(node, inputs=inputs, outputs=outputs))
    network.set_nodes(nodes)


def extend_outputs(network: Graph, counts: Mapping[str, int]) -> None:
    """Give nodes (by name) at least this number of outputs, the missing ones under fresh names."""
    nodes = {node.name: node for node in network.nodes}
    for name, count in counts.items():
        node = nodes[name]
        outputs = list(node.outputs) + [""] * (count - len(node.outputs))
        for i, value in enumerate(outputs[:count]):
            outputs[i] = value or network.fresh_name(f"{node.outputs[0] or name}:{i}")
        nodes[name] = replace(node, outputs=tuple(outputs))
    network.set_nodes(nodes.values())


def extend_node(network: Graph, name: str, count: int, output: str, attributes: Mapping[str, Any]) -> None:
    """Give a node one more output, the one of index ``count``, and new values for some of its attributes.

    Outputs before it that the node leaves out stay unnamed.
    """
    node = network.node(name)
    outputs = (*node.outputs, *[""] * (count - len(node.outputs)), output)
    new = replace(node, outputs=outputs, attributes={**node.attributes, **attributes})
    network.set_nodes(new if n is node else n for n in network.nodes)
