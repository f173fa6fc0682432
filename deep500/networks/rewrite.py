"""Put new nodes in the place of old ones: what gradients, modes and transformations share.

New nodes are first added under fresh names; :func:`supersede` then hands them the old nodes' values, so that every
reader, the outputs of the network included, keeps its names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deep500.errors import NetworkError
from deep500.networks.network import Network


def supersede(network: Network, replacements: Mapping[str, Mapping[str, str]]) -> None:
    """Remove nodes and let new values take over the names of theirs, in one step.

    Args:
        network: is edited.
        replacements: for each node to remove, ``{its output: the value that takes over}``; the value must be written
            by a node, and every output of the removed node that is read must be in it.

    Raises:
        NetworkError: an output that is still read is not taken over, or a cycle would arise.

    Example:
        >>> net = Network(); net.add_input("x", (2,)); net.add_node("Relu", ["x"], ["y"], name="a")
        >>> net.add_node("Tanh", ["x"], ["new"], name="b")
        >>> supersede(net, {"a": {"y": "new"}})
        >>> [str(node) for node in net.nodes]
        ['y = Tanh(x)  # b']
    """
    names = {new: old for values in replacements.values() for old, new in values.items()}
    for new, old in names.items():
        if network.producer(new) is None:
            raise NetworkError(f"got {new!r} to take over {old!r}; expected a node's output: add an Identity")
    nodes = {}
    for node in network.nodes:
        if node.name not in replacements:
            inputs, outputs = (tuple(names.get(v, v) for v in side) for side in (node.inputs, node.outputs))
            nodes[node.name] = replace(node, inputs=inputs, outputs=outputs)
    written = {value for node in nodes.values() for value in node.writes}
    lost = {value for name in replacements for value in network.node(name).writes} - written
    for node in nodes.values():
        if lost & set(node.reads):
            raise NetworkError(
                f"node {node.name!r}: got a removal of {sorted(lost & set(node.reads))}; expected what it reads to be "
                "taken over: name its successor"
            )
    if lost & set(network.outputs):
        raise NetworkError(f"got a removal of the outputs {sorted(lost & set(network.outputs))}; expected successors")
    network._commit(nodes)
    network._producers = {value: node.name for node in nodes.values() for value in node.writes}


def extend_outputs(network: Network, wanted: Mapping[str, int]) -> None:
    """Give nodes (by name) at least this number of outputs, the missing ones under fresh names."""
    nodes = {node.name: node for node in network.nodes}
    for name, count in wanted.items():
        node = nodes[name]
        outputs = list(node.outputs) + [""] * (count - len(node.outputs))
        for i, value in enumerate(outputs[:count]):
            outputs[i] = value or network.fresh_name(f"{node.outputs[0]}:{i}")
        nodes[name] = replace(node, outputs=tuple(outputs))
        network._producers.update({value: name for value in outputs if value})
    network._commit(nodes)
