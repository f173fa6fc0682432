"""Attention in separate nodes, put as the one operator that ONNX has for it: for runtimes with a kernel of its own.

Rules do not reach it, as softmax has no specification. What is found here (`patterns.attention`, with fewer heads of
keys than of queries, and rotary positions) is justified by the body that ONNX's schema gives the operator: `bodies`
writes that, which a check runs in float64. Where a mask of -inf hides every key of a query, separate nodes give NaN,
and the operator 0.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np

from deep500.networks.execution.chains import Found, ProgramGraph, replacement
from deep500.networks.execution.patterns import attention
from deep500.networks.execution.program import Program, expand
from deep500.networks.execution.recognition import everywhere
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.tensors import Shape
from deep500.transformations.substitutions.graph.stacked import with_nodes

WHOLE = frozenset({"Attention", "RotaryEmbedding"})
"""Operators that are put in."""
HEADS = (0, 2, 1, 3)
"""Permutation between (batch, words, heads, size) and (batch, heads, words, size)."""


def fused(network: Network) -> Network:
    """The network with one operator for each attention, and for each rotary position that it reads; itself without any.

    Example:
        >>> network = Network("n")
        >>> for name in "qv":
        ...     network.add_input(name, (1, 2, 3, 4))
        >>> network.add_input("k", (1, 2, 4, 3))
        >>> for op_type, inputs, output in (
        ...     ("MatMul", ["q", "k"], "scores"), ("Softmax", ["scores"], "weights"), ("MatMul", ["weights", "v"], "y")
        ... ):
        ...     _ = network.add_node(op_type, inputs, [output])
        >>> network.add_output("y")
        >>> [node.op_type for node in fused(network).nodes]
        ['Transpose', 'Attention']
    """
    described, arrays = dict(network.descriptors()), network.parameters
    program = Program(list(network.inputs), list(network.outputs), list(network.nodes), descriptors=described)
    values = list[str]()
    for pattern in (_attention, _rotary, _flat):
        graph = ProgramGraph(program, lambda name: arrays[name].value if name in arrays else None, lambda name: False)
        program, more = everywhere(graph, pattern)
        values += more
    return with_nodes(network, program.nodes, program.constants) if values else network


def bodies(network: Network) -> Network:
    """The same with ONNX's own bodies in place of what is put in; the scale, in them of float32, stands before them."""
    whole, nodes, arrays = fused(network), list[Node](), dict[str, np.ndarray]()
    described, before = whole.descriptors(), {node.name: node.op_type for node in network.nodes}
    for node in whole.nodes:
        if node.domain or node.op_type not in WHOLE or before.get(node.name) == node.op_type:
            nodes.append(node)
            continue
        unscaled = node
        if node.op_type == "Attention":
            scale, scaled = f"{node.name}:scale", f"{node.name}:scaled"
            arrays[scale] = np.asarray(node.attribute("scale"), described[node.inputs[0]].dtype)
            nodes.append(Node("Mul", (node.inputs[0], scale), (scaled,), scaled))
            described[scaled] = described[node.inputs[0]]
            attributes = {**node.attributes, "scale": 1.0}
            unscaled = replace(node, inputs=(scaled, *node.inputs[1:]), attributes=attributes)
        nodes += expand(unscaled, described) or [node]
    return with_nodes(whole, nodes, arrays)


def _attention(graph: ProgramGraph, root: Node) -> Found | None:
    """Attention on the keys as they lie, and on keys and values of fewer heads before these are repeated for all."""
    match = attention(graph, root)
    if match is None:
        return None
    *extra, turn, node = match.nodes
    keys, before = turn.outputs[0], graph.made_by(turn.inputs[0], "Transpose")
    if before is not None:
        perm = [(before.attribute("perm") or ())[axis] for axis in turn.attribute("perm")]
        turn = replace(turn, inputs=before.inputs, attributes={"perm": tuple(perm)})
        keys = before.inputs[0] if perm == sorted(perm) else keys
    query, _, values, *mask = node.inputs
    few = _few_heads(graph, keys), _few_heads(graph, values)
    if few[0] and few[1] and _shape(graph, few[0])[:3] == _shape(graph, few[1])[:3]:
        keys, values = few[0], few[1]
    extra += [turn] if keys == turn.outputs[0] else []
    return Found([*extra, replace(node, inputs=(query, keys, values, *mask))], match.inner)


def _shape(graph: ProgramGraph, value: str) -> Shape:
    """Shape of a value; of no axes where a size has neither number nor name."""
    shape = graph.shape(value) or ()
    return () if None in shape else shape


def _few_heads(graph: ProgramGraph, value: str) -> str | None:
    """Find what a value repeats for several heads; None if it does not."""
    whole = graph.made_by(value, "Reshape")
    repeats = graph.made_by(whole.inputs[0], "Expand") if whole else None
    wide = graph.made_by(repeats.inputs[0], "Unsqueeze", "Reshape") if repeats else None
    names = (*wide.inputs[:1], *wide.outputs, *repeats.outputs, value) if wide and repeats else ()
    shapes = [_shape(graph, name) for name in names]
    if wide is None or len(shapes[0]) != 4 or len(shapes[2]) != 5:
        return None
    batch, heads, *rest = shapes[0]
    times = shapes[2][2]
    both = isinstance(heads, int) and isinstance(times, int) and (batch, heads * times, *rest)
    alike = shapes[1:] == [(batch, heads, 1, *rest), (batch, heads, times, *rest), both]
    return wide.inputs[0] if alike else None


def _flat(graph: ProgramGraph, root: Node) -> Found | None:
    """Attention on heads that lie side by side in one axis, where they were taken apart for it alone."""
    back = graph.made_by(root.inputs[0], "Transpose") if root.op_type == "Reshape" else None
    whole = graph.made_by(back.inputs[0], "Attention") if back and back.attribute("perm") == HEADS else None
    shape, result = _shape(graph, root.inputs[0]), _shape(graph, root.outputs[0])
    extra = dict[str, Node]()
    sides = [_side(graph, name, extra) for name in whole.inputs[:3]] if whole else []
    if whole is None or back is None or not (shape and result) or None in sides:
        return None
    values, heads, _ = zip(*(side for side in sides if side), strict=True)
    attributes = {**whole.attributes, "q_num_heads": heads[0], "kv_num_heads": heads[1]}
    inputs, inner = (*values, *whole.inputs[3:]), {back.name, whole.name}
    if result == (*shape[:2], heads[0] * sides[2][2]):  # type: ignore[index]
        inner |= _between(graph, root.inputs[1], whole.outputs[0])  # exporters ask the result for its sizes
        return Found([*extra.values(), replacement(root, "Attention", inputs, **attributes)], inner)
    target, flat = graph.array(root.inputs[1]), f"{root.outputs[0]}:flat"
    if target is None or 0 in target:
        return None
    node = Node("Attention", inputs, (flat,), flat, "", attributes)
    return Found([*extra.values(), node, replace(root, inputs=(flat, root.inputs[1]))], inner)


def _between(graph: ProgramGraph, value: str, source: str) -> set[str]:
    """Names of the nodes by which sizes of one value become another."""
    node = graph.made_by(value, "Shape", "Gather", "Slice", "Squeeze", "Unsqueeze", "Concat", "Mul", "Cast")
    if node is None or source in node.reads:
        return {node.name} if node else set()
    inner = set[str]().union(*(_between(graph, name, source) for name in node.reads))
    return {*inner, node.name} if inner else inner


def _side(graph: ProgramGraph, value: str, extra: dict[str, Node]) -> tuple[str, int, int] | None:
    """Find what a value of (batch, heads, words, size) was side by side, its heads and their size; None: nothing."""
    turn = graph.made_by(value, "Transpose")
    parts = graph.made_by(turn.inputs[0], "Reshape") if turn and turn.attribute("perm") == HEADS else None
    shape = _shape(graph, parts.outputs[0]) if parts else ()
    if parts is None or len(shape) != 4:
        return None
    batch, words, heads, size = shape
    if not (isinstance(heads, int) and isinstance(size, int)):
        return None
    if _shape(graph, parts.inputs[0]) == (batch, words, heads * size):
        return parts.inputs[0], heads, size
    target, flat = graph.array(parts.inputs[1]), f"{parts.outputs[0]}:flat"
    if target is None or 0 in target:
        return None
    sizes = graph.constant(f"{flat}:shape", np.array([*target[:2], heads * size]))
    extra[flat] = Node("Reshape", (parts.inputs[0], sizes), (flat,), flat)
    return flat, heads, size


# -- rotary positions --------------------------------------------------------------------------------------------------
def _rotary(graph: ProgramGraph, root: Node) -> Found | None:
    """x * cos + (-second half of x, first half of x) * sin, for constant tables."""
    parts = [node for name in root.inputs if (node := graph.only(name, "Mul"))] if root.op_type == "Add" else []
    for straight, turned in itertools.permutations(parts, 2):
        orders = (itertools.permutations(node.inputs) for node in (straight, turned))
        for (x, cos), (other, sin) in itertools.product(*orders):
            inner, shape = _halves_turned(graph, x, other), _shape(graph, x)
            if inner is None or not shape:
                continue
            tables = _table(graph, cos, shape), _table(graph, sin, shape)
            if any(table is None for table in tables):
                continue
            places = np.tile(np.arange(shape[2]), (shape[0], 1))  # type: ignore[arg-type]
            named = zip(("cos", "sin", "places"), (*tables, places), strict=True)
            known = [graph.constant(f"{root.outputs[0]}:{name}", np.asarray(array)) for name, array in named]
            node = replacement(root, "RotaryEmbedding", (x, *known))
            return Found([node], {*inner, straight.name, turned.name})
    return None


def _halves_turned(graph: ProgramGraph, x: str, value: str) -> set[str] | None:
    """Nodes that make (-second half, first half) of x; None if a value is no such thing."""
    whole = graph.only(value, "Concat")
    minus = graph.only(whole.inputs[0], "Neg") if whole and len(whole.inputs) == 2 else None
    if whole is None or minus is None or graph.shape(value) != graph.shape(x):
        return None
    parts = [_half(graph, x, name) for name in (minus.inputs[0], whole.inputs[1])]
    return {whole.name, minus.name, *(node for _, node in parts)} if [half for half, _ in parts] == [1, 0] else None


def _half(graph: ProgramGraph, x: str, value: str) -> tuple[int | None, str]:
    """Which half of x along its last axis a value is, and the node that cuts it; None: none."""
    node, shape = graph.made_by(value, "Slice", "Split"), _shape(graph, x)
    size = shape[-1] if shape and isinstance(shape[-1], int) else 0
    if node is None or not shape or node.inputs[0] != x or _shape(graph, value) != (*shape[:-1], size // 2):
        return None, ""
    if node.op_type == "Split":
        return (node.outputs.index(value) if len(node.outputs) == 2 else None), node.name
    step = graph.number(node.inputs[4]) if len(node.inputs) > 4 else 1
    begin = graph.number(node.inputs[1]) if step == 1 else None
    return (None if begin is None else {0: 0, size // 2: 1, -(size // 2): 1}.get(int(begin))), node.name


def _table(graph: ProgramGraph, name: str, shape: Shape) -> np.ndarray | None:
    """The first half of a table of (words, size of a head) whose second half is the same; None if it is none."""
    array = graph.array(name)
    if array is None or not array.ndim or len(shape) != 4:
        return None
    words: tuple[int, ...] = (1, *array.shape)[-2:]
    if words != shape[2:] or array.size != math.prod(words):
        return None
    first, second = np.split(array.reshape(words), 2, axis=-1)
    return first if isinstance(shape[0], int) and np.array_equal(first, second) else None
