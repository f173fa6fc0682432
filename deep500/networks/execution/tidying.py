"""Nodes that do nothing are left out, and two that move elements become one, as far as shapes tell.

Exporters leave such nodes behind: an Identity for every dropout of a model in evaluation mode, Transposes by
``(0, 1)``, a Concat of one value, a Slice of one place whose axis a Squeeze removes, advanced indexing as
Transpose, GatherND and Transpose. An eager framework pays for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from deep500.networks.execution.chains import Known, ProgramGraph
from deep500.networks.execution.program import Program
from deep500.networks.execution.slicing import needed_nodes
from deep500.networks.node import Node

_OF_ONE = frozenset({"Concat", "Max", "Min", "Sum", "Mean"})


def tidied(program: Program, known: Known) -> Program:
    """The program without nodes that do nothing; its outputs keep their names.

    Args:
        program: stays as it is. Constants should be folded.
        known: values of parameters that may stand in the code, None for others.

    Example:
        >>> nodes = [Node("Identity", ("x",), ("a",), "1"), Node("Max", ("a",), ("b",), "2"),
        ...          Node("Exp", ("b",), ("y",), "3")]
        >>> [str(node) for node in tidied(Program(["x"], ["y"], nodes), lambda name: None).nodes]
        ['y = Exp(x)  # 3']
    """
    program = _without_idle(program, known)
    while True:
        merged = _merged(program, known)
        if merged is program:
            return program
        program = _without_idle(merged, known)


# -- nodes that do nothing ---------------------------------------------------------------------------------------------
def _without_idle(program: Program, known: Known) -> Program:
    graph = ProgramGraph(program, known, lambda name: False)
    captured = {name for node in program.nodes if node.graphs for name in node.reads if name not in node.inputs}
    fixed, same, nodes = {*program.outputs, *captured}, dict[str, str](), list[Node]()
    for old in program.nodes:
        renamed = any(name in same for name in old.inputs)
        node = replace(old, inputs=tuple(same.get(name, name) for name in old.inputs)) if renamed else old
        if node.domain or len(node.outputs) != 1 or node.outputs[0] in fixed or not _idle(graph, node):
            nodes.append(node)
        else:
            same[node.outputs[0]] = node.inputs[0]
    return replace(program, nodes=nodes) if same else program


def _idle(graph: ProgramGraph, node: Node) -> bool:
    """Whether a node with one output hands on its first input as it is."""
    kind = node.op_type
    if kind == "Identity" or (kind in _OF_ONE and len(node.inputs) == 1):
        return True
    if kind == "Transpose":
        perm = node.attribute("perm")
        return perm is not None and tuple(perm) == tuple(range(len(perm)))
    if kind == "Pad":
        pads = graph.array(node.inputs[1])
        return pads is not None and not pads.any() and node.attribute("mode", "constant") == "constant"
    if kind == "Cast":
        return bool(graph.dtype(node.inputs[0])) and graph.dtype(node.inputs[0]) == graph.dtype(node.outputs[0])
    if kind == "Expand" and (sizes := graph.made_by(node.inputs[1], "Shape")) is not None:
        return sizes.inputs[0] == node.inputs[0] and not sizes.attributes.keys() & {"start", "end"}
    if kind in ("Expand", "Reshape"):
        return _same_shape(graph, node)
    if kind == "Slice":
        steps = graph.array(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] else np.ones(1)
        return steps is not None and bool((steps > 0).all()) and _same_shape(graph, node)
    return False


def _same_shape(graph: ProgramGraph, node: Node) -> bool:
    before, after = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    return before is not None and None not in before and before == after


# -- two moves as one --------------------------------------------------------------------------------------------------
def _merged(program: Program, known: Known) -> Program:
    graph, changed = ProgramGraph(program, known, lambda name: False), False
    nodes = list[Node]()
    for node in program.nodes:
        merge = _MERGES.get(node.op_type) if not node.domain else None
        merged = merge(graph, node) if merge is not None else None
        changed |= merged is not None
        nodes += merged if merged is not None else [node]
    if not changed:
        return program
    constants = {**program.constants, **graph.new_constants}
    return replace(program, nodes=needed_nodes(nodes, program.outputs), constants=constants)


def _reshape(graph: ProgramGraph, node: Node) -> list[Node] | None:
    """A Reshape of what was reshaped or flattened: the second alone, whose sizes ask nothing of the first."""
    first, sizes = graph.only(node.inputs[0], "Reshape", "Flatten"), graph.array(node.inputs[1])
    if first is None or sizes is None or 0 in sizes:
        return None
    return [replace(node, inputs=(first.inputs[0], node.inputs[1]))]


def _squeeze(graph: ProgramGraph, node: Node) -> list[Node] | None:
    """A Squeeze of a Slice of one place: a Gather of that place."""
    part = graph.only(node.inputs[0], "Slice")
    shape = graph.shape(part.inputs[0]) if part else None
    axes = graph.array(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    known = [graph.array(name) for name in part.inputs[1:]] if part else []
    if part is None or shape is None or axes is None or len(known) < 3 or any(k is None or k.size != 1 for k in known):
        return None
    begin, end, axis, *step = (int(k.reshape(-1)[0]) for k in known if k is not None)
    size = shape[axis] if -len(shape) <= axis < len(shape) else None
    if axes.size != 1 or (int(axes.reshape(-1)[0]) - axis) % len(shape) or step not in ([], [1]):
        return None
    if not isinstance(size, int) or len(range(size)[begin:end]) != 1:
        return None
    place = graph.constant(f"{node.outputs[0]}:place", np.array(range(size)[begin:end][0]))
    return [Node("Gather", (part.inputs[0], place), node.outputs, node.name, "", {"axis": axis})]


def _gather_nd(graph: ProgramGraph, node: Node) -> list[Node] | None:
    """A GatherND by the first axis alone: a Gather."""
    if node.attribute("batch_dims"):
        return None
    array, maker = graph.array(node.inputs[1]), graph.made_by(node.inputs[1], "Unsqueeze")
    index = graph.shape(node.inputs[1])
    if array is not None and array.ndim > 1 and array.shape[-1] == 1:
        places = graph.constant(f"{node.outputs[0]}:places", array[..., 0])
    elif maker is not None and index is not None:
        axes = graph.array(maker.inputs[1])
        if axes is None or axes.size != 1 or (int(axes.reshape(-1)[0]) + 1) % len(index):
            return None
        places = maker.inputs[0]
    else:
        return None
    return [Node("Gather", (node.inputs[0], places), node.outputs, node.name, "", {"axis": 0})]


def _transpose(graph: ProgramGraph, node: Node) -> list[Node] | None:
    """Rows gathered of a matrix that was turned, and turned back: columns of the matrix as it was."""
    rows = graph.only(node.inputs[0], "Gather")
    if tuple(node.attribute("perm") or (1, 0)) != (1, 0) or rows is None or rows.attribute("axis", 0):
        return None
    known, indices = graph.array(rows.inputs[1]), graph.shape(rows.inputs[1])
    rank = known.ndim if known is not None else None if indices is None else len(indices)
    move = graph.only(rows.inputs[0], "Transpose", "Flatten")
    if rank != 1 or move is None:
        return None
    if move.op_type == "Transpose":
        matrix, extra = move.inputs[0], list[Node]()
        if len(graph.shape(matrix) or ()) != 2:
            return None
    else:
        first = _axes_put_last(graph, move)
        if first is None:
            return None
        matrix = f"{node.outputs[0]}:matrix"
        turn = graph.producers[move.inputs[0]]
        extra = [Node("Flatten", turn.inputs, (matrix,), matrix, "", {"axis": first})]
    return [*extra, Node("Gather", (matrix, rows.inputs[1]), node.outputs, node.name, "", {"axis": 1})]


def _axes_put_last(graph: ProgramGraph, flat: Node) -> int | None:
    """Of a Flatten between the last axes of a tensor, which a Transpose had put in front, and its first ones: how many
    these are. Its transpose is then a Flatten of the tensor as it was."""
    turn = graph.only(flat.inputs[0], "Transpose")
    perm = tuple(turn.attribute("perm") or ()) if turn is not None else ()
    split = perm.index(0) if perm else 0
    first = len(perm) - split
    fits = split and perm == (*range(first, len(perm)), *range(first)) and flat.attribute("axis", 1) == split
    return first if fits else None


_MERGES: dict[str, Callable[[ProgramGraph, Node], list[Node] | None]] = {
    "Reshape": _reshape, "Squeeze": _squeeze, "GatherND": _gather_nd, "Transpose": _transpose,
}  # fmt: skip

__all__ = ["tidied"]
