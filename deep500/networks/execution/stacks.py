"""Recurrent layers that follow each other, as one node: frameworks run a stack by one function.

Taken are ``OrderedLSTM`` and ``OrderedGRU`` (see :mod:`deep500.networks.execution.patterns`) of one size and direction,
where nothing lies between them but the change of axes that ONNX's layout asks for, and nobody reads a last state.
"""

from __future__ import annotations

from dataclasses import replace

from deep500.networks.execution.chains import DOMAIN, ProgramGraph
from deep500.networks.execution.program import Program
from deep500.networks.execution.slicing import needed_nodes
from deep500.networks.node import Node

_STATES = {"OrderedLSTM": 2, "OrderedGRU": 1}


def stacked(graph: ProgramGraph) -> Program:
    """The program with stacks in place of their layers; the attribute ``layers`` says how many.

    Args:
        graph: of a program in which recurrent layers are recognised.
    """
    program = graph.program
    layers, nodes = dict[str, Node](), list[Node]()
    for node in program.nodes:
        if node.domain != DOMAIN or node.op_type not in _STATES:
            nodes.append(node)
            continue
        below = layers.get(_made_from(graph, node))
        if below is not None and _fit(graph, below, node):
            nodes += _joined(below, node)
        else:
            nodes.append(node)
        layers[node.outputs[0]] = nodes[-1]
    if all(a is b for a, b in zip(nodes, program.nodes, strict=False)):
        return program
    return replace(program, nodes=needed_nodes(nodes, program.outputs))


def _made_from(graph: ProgramGraph, node: Node) -> str:
    """The value of a lower layer that a layer reads, empty if it reads something else."""
    link = graph.only(node.inputs[0], "Squeeze", "Reshape")
    known = graph.array(link.inputs[1]) if link is not None and len(link.inputs) > 1 else None
    numbers = known.reshape(-1).tolist() if known is not None else None
    if link is None or numbers is None:
        return ""
    if link.op_type == "Squeeze":
        value = link.inputs[0] if numbers == [1] and _directions(node) == 1 else ""
    else:
        turn = graph.only(link.inputs[0], "Transpose")
        fits = turn is not None and tuple(turn.attribute("perm") or ()) == (0, 2, 1, 3) and _directions(node) == 2
        shape = graph.shape(link.inputs[0])
        same_front = numbers[:2] == [0, 0] or (shape is not None and tuple(numbers[:2]) == tuple(shape[:2]))
        value = turn.inputs[0] if turn is not None and fits and same_front and len(numbers) == 3 else ""
    return value if value and graph.readers[value] == 1 else ""


def _directions(node: Node) -> int:
    return 2 if node.attribute("direction", "forward") == "bidirectional" else 1


def _fit(graph: ProgramGraph, below: Node, above: Node) -> bool:
    """Whether torch's function can run both: the same kind and size, no last state that is read."""
    settings = [{k: v for k, v in node.attributes.items() if k != "layers"} for node in (below, above)]
    plain = settings[0].get("direction", "forward") != "reverse" and not settings[0].get("layout")
    count = _STATES[above.op_type]
    states = [[bool(name) for name in node.inputs[1 : 1 + count]] for node in (below, above)]
    read = any(name and graph.readers[name] for node in (below, above) for name in node.outputs[1:])
    return (
        below.op_type == above.op_type and settings[0] == settings[1] and plain and states[0] == states[1] and not read
    )


def _joined(below: Node, above: Node) -> list[Node]:
    """Nodes that put first states together, and the stack."""
    count, extra, states = _STATES[above.op_type], list[Node](), list[str]()
    for place, (first, second) in enumerate(zip(below.inputs[1 : 1 + count], above.inputs[1 : 1 + count], strict=True)):
        name = f"{above.outputs[0]}:state{place}" if first else ""
        if first:
            extra.append(Node("Concat", (first, second), (name,), name, "", {"axis": 0}))
        states.append(name)
    inputs = (below.inputs[0], *states, *below.inputs[1 + count :], *above.inputs[1 + count :])
    attributes = {**above.attributes, "layers": below.attributes.get("layers", 1) + 1}
    return [*extra, Node(above.op_type, inputs, above.outputs[:1], above.name, DOMAIN, attributes)]


__all__ = ["stacked"]
