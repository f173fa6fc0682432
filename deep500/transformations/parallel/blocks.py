"""Nodes that stand alike in a network, such as those of equal layers: they are one variable of the planner.

Colours are refined as by Weisfeiler and Lehman: nodes are alike if they and all around them, some steps far, are.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from deep500.transformations.parallel.dividing import StepGraph


def alike(graph: StepGraph, rounds: int | None) -> dict[str, str]:
    """A class for every node, input and parameter (by name, sources with ``=`` in front).

    Args:
        graph: of the step.
        rounds: how far around a node is looked; None: every node is a class of its own.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.parallel.joint import joint_network
        >>> sizes = dict(shape=(6,), width=8, heads=2, classes=5)
        >>> def classes(layers):
        ...     network = add_loss(create("causal_transformer", layers=layers, **sizes))
        ...     shapes = {"input": (2, 6), "label": (2, 6)}
        ...     return len(set(alike(StepGraph(joint_network(network, shapes), 2), 3).values()))
        >>> classes(6) == classes(7)
        True
    """
    names = [f"={name}" for name in graph.sources] + [node.name for node in graph.nodes]
    if rounds is None:
        return {name: name for name in names}
    colours = _first(graph)
    producers = {name: f"={name}" for name in graph.sources}
    producers.update({value: node.name for node in graph.nodes for value in node.writes})
    reads = {n.name: [(producers[v], n.reads.index(v)) for v in n.reads] for n in graph.nodes}
    readers: dict[str, list[tuple[str, int, str]]] = {name: [] for name in names}
    for node in graph.nodes:
        for index, value in enumerate(node.reads):
            writes = graph.by_name[producers[value]].outputs if producers[value] in graph.by_name else (value,)
            readers[producers[value]].append((node.name, index, str(writes.index(value))))
    outputs = {producers[name]: name for name in graph.network.outputs}
    for _ in range(rounds):
        colours = {name: _mix(name, colours, reads, readers, name in outputs) for name in names}
    return colours


def _first(graph: StepGraph) -> dict[str, str]:
    """Colours by operator, attributes and shapes alone."""
    colours = {}
    for name in graph.sources:
        trains, array = name in graph.joint.gradients, graph.constants.get(name)
        constant = array.tobytes() if array is not None and array.size < 64 else b""
        colours[f"={name}"] = _hash("source", graph.shapes[name], graph.dtypes[name], trains, constant)
    for node in graph.nodes:
        shapes = [graph.shapes.get(v) for v in (*node.inputs, *node.outputs)]
        attributes = sorted((key, repr(value)) for key, value in node.attributes.items())
        colours[node.name] = _hash(node.op_type, node.domain, attributes, shapes)
    return colours


def _mix(
    name: str,
    colours: Mapping[str, str],
    reads: Mapping[str, list[tuple[str, int]]],
    readers: Mapping[str, list[tuple[str, int, str]]],
    output: bool,
) -> str:
    before = [(colours[producer], index) for producer, index in reads.get(name, ())]
    after = sorted((colours[reader], index, port) for reader, index, port in readers[name])
    return _hash(colours[name], before, after, output)


def _hash(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()[:16]
