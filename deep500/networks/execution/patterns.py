"""The table of :mod:`deep500.networks.execution.recognition`: one function per operator and form.

A pattern gets the graph and a node, and returns the nodes that give the same output, with the names of those that
they replace, or None. Forms are those of PyTorch's two exporters and of the models that write operators out
themselves. A dense layer has no operator in ONNX for more than two dimensions: it becomes ``Linear`` of
:data:`DOMAIN`, which no file holds; ``OrderedLSTM`` and ``OrderedGRU`` take the weights of every direction one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from deep500.networks.execution.chains import DOMAIN, Found, Pattern, Product, ProgramGraph, replacement
from deep500.networks.execution.gathers import adaptive_pool, outer_sum, scatter_reduce
from deep500.networks.node import Node

HIDDEN = -1e30
"""An addend below this leaves nothing of a score."""


# -- activations -------------------------------------------------------------------------------------------------------
def swish(graph: ProgramGraph, root: Node) -> Found | None:
    """x * sigmoid(x)."""
    return _gated(graph, root, "Swish", lambda x, gate: gate.op_type == "Sigmoid" and gate.inputs[0] == x)


def hard_swish(graph: ProgramGraph, root: Node) -> Found | None:
    """x * hardsigmoid(x) with a slope of 1/6."""

    def fits(x: str, gate: Node) -> bool:
        slope = gate.op_type == "HardSigmoid" and graph.near(gate.attribute("alpha"), 1 / 6, x)
        return slope and gate.attribute("beta") == 0.5 and gate.inputs[0] == x

    return _gated(graph, root, "HardSwish", fits)


def hard_swish_clipped(graph: ProgramGraph, root: Node) -> Found | None:
    """x * clip(x + 3, 0, 6) / 6."""
    if root.op_type not in ("Mul", "Div"):
        return None
    product = graph.product(root)
    for gate in product.factors:
        clip, (x, *more) = graph.made_by(gate, "Clip"), product.without(gate) or ("",)
        inside = graph.plus(clip.inputs[0], 3.0) if clip and len(clip.inputs) == 3 and not more else None
        if clip is None or inside is None or inside[0] != x or not graph.near(product.scale, 1 / 6, x):
            continue
        if graph.number(clip.inputs[1]) == 0 and graph.number(clip.inputs[2]) == 6:
            return Found([replacement(root, "HardSwish", (x,))], product.inner | {clip.name, inside[1]})
    return None


def mish(graph: ProgramGraph, root: Node) -> Found | None:
    """x * tanh(softplus(x))."""
    inner: list[str] = []

    def fits(x: str, gate: Node) -> bool:
        plus = graph.made_by(gate.inputs[0], "Softplus") if gate.op_type == "Tanh" else None
        inner[:] = [plus.name] if plus is not None else []
        return plus is not None and plus.inputs[0] == x

    match = _gated(graph, root, "Mish", fits)
    return match and replace(match, inner=match.inner | set(inner))


def _gated(graph: ProgramGraph, root: Node, operator: str, fits: Callable[[str, Node], bool]) -> Found | None:
    """A value times a gate that is made of it."""
    if root.op_type != "Mul":
        return None
    for x, other in (root.inputs, root.inputs[::-1]):
        gate = graph.producers.get(other)
        if gate is not None and not gate.domain and fits(x, gate):
            return Found([replacement(root, operator, (x,))], {gate.name})
    return None


def gelu(graph: ProgramGraph, root: Node) -> Found | None:
    """x / 2 * (1 + erf(x / sqrt(2))), or its approximation x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    if root.op_type not in ("Mul", "Div"):
        return None
    product = graph.product(root)
    if len(product.factors) != 2 or not graph.near(product.scale, 0.5, root.outputs[0]):
        return None
    for x, factor in (product.factors, product.factors[::-1]):
        plus = graph.plus(factor, 1.0)
        bend = graph.made_by(plus[0], "Erf", "Tanh") if plus else None
        if plus is None or bend is None:
            continue
        inside = graph.product_of(bend.inputs[0])
        inner = product.inner | inside.inner | {plus[1], bend.name}
        if bend.op_type == "Erf" and inside.factors == [x] and graph.near(inside.scale, math.sqrt(0.5), x):
            return Found([replacement(root, "Gelu", (x,))], inner)
        cubic = _cubic(graph, inside, x) if bend.op_type == "Tanh" else None
        if cubic is not None:
            return Found([replacement(root, "Gelu", (x,), approximate="tanh")], inner | cubic)
    return None


def _cubic(graph: ProgramGraph, inside: Product, x: str) -> set[str] | None:
    """The nodes of sqrt(2 / pi) * (x + 0.044715 x^3)."""
    total = graph.made_by(inside.factors[0], "Add") if len(inside.factors) == 1 else None
    rest = graph.other(total, x) if total is not None else None
    if total is None or rest is None or not graph.near(inside.scale, math.sqrt(2 / math.pi), x):
        return None
    cube = graph.product_of(rest)
    fits = cube.factors == [x] * 3 and graph.near(cube.scale, 0.044715, x)
    return cube.inner | {total.name} if fits else None


# -- normalisations ----------------------------------------------------------------------------------------------------
def group_norm(graph: ProgramGraph, root: Node) -> Found | None:
    """Channels in groups as one axis, an InstanceNormalization without weights, the channels again, weights."""
    for scaled, bias in (root.inputs, root.inputs[::-1]) if root.op_type == "Add" else ():
        product = graph.made_by(scaled, "Mul")
        for whole, scale in (product.inputs, product.inputs[::-1]) if product else ():
            back = graph.made_by(whole, "Reshape")
            norm = graph.made_by(back.inputs[0], "InstanceNormalization") if back else None
            there = graph.made_by(norm.inputs[0], "Reshape") if norm else None
            if product is None or back is None or norm is None or there is None:
                continue
            x, groups = there.inputs[0], graph.shape(there.outputs[0])
            shape = graph.shape(x)
            if groups is None or len(groups) != 3 or not _same_channels(shape, graph.shape(whole), groups):
                continue
            weights = _channel_weights(graph, root, norm, groups[1], shape, (scale, bias))
            if weights is None:
                continue
            extra, vectors = weights
            inputs = (x, *vectors)
            options = {"num_groups": groups[1], "epsilon": norm.attribute("epsilon")}
            node = replacement(root, "GroupNormalization", inputs, **options)
            return Found([*extra, node], {product.name, back.name, norm.name, there.name})
    return None


def _same_channels(shape: Any, after: Any, groups: Any) -> bool:
    """Whether groups hold whole channels of one sample."""
    if shape is None or len(shape) < 3 or after is None or None in shape or tuple(after) != tuple(shape):
        return False
    channels, number = shape[1], groups[1]
    whole = isinstance(channels, int) and isinstance(number, int) and number > 0 and channels % number == 0
    return whole and groups[0] == shape[0]


def _channel_weights(
    graph: ProgramGraph, root: Node, norm: Node, groups: Any, shape: Any, vectors: tuple[str, str]
) -> tuple[list[Node], list[str]] | None:
    """Scale and bias of every channel, and the nodes that make them: of vectors that are broadcast over places, and of
    the normalisation's own, one of each per group, unless these are ones and zeros."""
    per_channel = (shape[1], *[1] * (len(shape) - 2))
    if any(tuple(graph.shape(value) or ()) not in (per_channel, (1, *per_channel)) for value in vectors):
        return None
    ones, zeros = (graph.array(name) for name in norm.inputs[1:])
    nodes: list[Node] = []

    def emit(operator: str, *inputs: str) -> str:
        name = f"{root.outputs[0]}:{len(nodes)}"
        nodes.append(Node(operator, inputs, (name,), name))
        return name

    flat = graph.constant(f"{root.outputs[0]}:flat", np.array([-1]))
    if ones is not None and zeros is not None and (ones == 1).all() and not zeros.any():
        plain = [graph.made_by(value, "Unsqueeze") for value in vectors]
        return nodes, [
            node.inputs[0] if node and graph.shape(node.inputs[0]) == (shape[1],) else emit("Reshape", value, flat)
            for node, value in zip(plain, vectors, strict=True)
        ]
    if any(graph.shape(name) != (groups,) for name in norm.inputs[1:]):
        return None
    rows = graph.constant(f"{root.outputs[0]}:rows", np.array([groups, -1]))
    scale, bias, inner, shift = (emit("Reshape", name, rows) for name in (*vectors, *norm.inputs[1:]))
    total = emit("Add", emit("Mul", scale, shift), bias)
    return nodes, [emit("Reshape", emit("Mul", scale, inner), flat), emit("Reshape", total, flat)]


def layer_norm(graph: ProgramGraph, root: Node) -> Found | None:
    """(x - mean) / sqrt(variance + epsilon) over the last axis, times a vector, with another one added or none."""
    for scaled, bias in (root.inputs, root.inputs[::-1]) if root.op_type == "Add" else [("", "")]:
        product = graph.made_by(scaled, "Mul") if bias else root if root.op_type == "Mul" else None
        for normal, scale in (product.inputs, product.inputs[::-1]) if product else ():
            ratio = graph.made_by(normal, "Div")
            centred = graph.made_by(ratio.inputs[0], "Sub") if ratio else None
            if product is None or ratio is None or centred is None:
                continue
            x, mean = centred.inputs[0], graph.made_by(centred.inputs[1], "ReduceMean")
            deviation = _deviation(graph, ratio.inputs[1], centred.outputs[0])
            if mean is None or mean.inputs[0] != x or graph.axes(mean) != [-1] or deviation is None:
                continue
            vectors = [scale, bias] if bias else [scale]
            if any(graph.shape(v) != (graph.shape(x) or ())[-1:] or graph.shape(x) is None for v in vectors):
                continue
            epsilon, inner = deviation
            node = replacement(root, "LayerNormalization", (x, *vectors), axis=-1, epsilon=epsilon)
            return Found([node], inner | {product.name, ratio.name, centred.name, mean.name})
    return None


def rms_norm(graph: ProgramGraph, root: Node) -> Found | None:
    """x / sqrt(mean of squares + epsilon) over the last axis, times a vector."""
    for normal, scale in (root.inputs, root.inputs[::-1]) if root.op_type == "Mul" else ():
        part, match = graph.producers.get(normal), None
        if part is None or part.domain or graph.shape(scale) is None:
            continue
        for x, factor in (part.inputs, part.inputs[::-1]) if part.op_type == "Mul" else ():
            inverse = graph.made_by(factor, "Reciprocal", "Div")
            if inverse is None or (inverse.op_type == "Div" and graph.number(inverse.inputs[0]) != 1):
                continue
            deviation = _deviation(graph, inverse.inputs[-1], x)
            match = (x, deviation, {inverse.name}) if deviation else match
        if part.op_type == "Div" and (deviation := _deviation(graph, part.inputs[1], part.inputs[0])):
            match = (part.inputs[0], deviation, set())
        if match is None or graph.shape(match[0]) is None or graph.shape(scale) != (graph.shape(match[0]) or ())[-1:]:
            continue
        x, (epsilon, inner), more = match
        return Found(
            [replacement(root, "RMSNormalization", (x, scale), axis=-1, epsilon=epsilon)], inner | more | {part.name}
        )
    return None


def _deviation(graph: ProgramGraph, value: str, x: str) -> tuple[float, set[str]] | None:
    """Epsilon, and the nodes, of sqrt(mean of x squared + epsilon) over the last axis."""
    root = graph.made_by(value, "Sqrt")
    total = graph.made_by(root.inputs[0], "Add") if root else None
    for mean, epsilon in (total.inputs, total.inputs[::-1]) if total else ():
        average, number = graph.made_by(mean, "ReduceMean"), graph.number(epsilon)
        if root is None or total is None or average is None or number is None or not graph.is_scalar(epsilon):
            continue
        squares = graph.product_of(average.inputs[0])
        if graph.axes(average) == [-1] and squares.factors == [x, x] and squares.scale == 1:
            return number, squares.inner | {root.name, total.name, average.name}
    return None


# -- attention ---------------------------------------------------------------------------------------------------------
def attention(graph: ProgramGraph, root: Node) -> Found | None:
    """softmax(scale * q k^T + mask) v, the scale anywhere, the mask added or put in by Where."""
    if root.op_type != "MatMul":
        return None
    weights, inner = root.inputs[0], set[str]()
    guard = graph.made_by(weights, "Where")  # against rows that are hidden altogether
    if guard is not None:
        test = graph.made_by(guard.inputs[0], "IsNaN")
        if test is None or test.inputs[0] != guard.inputs[2] or graph.number(guard.inputs[1]) != 0:
            return None
        weights, inner = guard.inputs[2], {guard.name, test.name}
    soft = graph.made_by(weights, "Softmax")
    shape = graph.shape(weights)
    if soft is None or shape is None or len(shape) not in (3, 4) or soft.attribute("axis") not in (-1, len(shape) - 1):
        return None
    inner.add(soft.name)
    scores, mask, extra = soft.inputs[0], "", list[Node]()
    if (masked := _mask(graph, scores, root)) is not None:
        scores, mask, extra, more = masked
        inner |= more
    product = graph.product_of(scores)
    match = graph.made_by(product.factors[0], "MatMul") if len(product.factors) == 1 else None
    if match is None:
        return None
    q, k = (graph.product_of(name) for name in match.inputs)
    if any(len(part.factors) != 1 for part in (q, k)) or not _same_batches(graph, q, k, root.inputs[1], mask, shape):
        return None
    inner |= product.inner | q.inner | k.inner | {match.name}
    swapped = f"{root.outputs[0]}:keys"
    perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    extra.append(Node("Transpose", (k.factors[0],), (swapped,), swapped, "", {"perm": perm}))
    options: dict[str, Any] = {"scale": product.scale * q.scale * k.scale}
    if len(shape) == 3:
        options |= {"q_num_heads": 1, "kv_num_heads": 1}
    if mask and _is_causal(graph.array(mask), shape):
        options["is_causal"], mask = 1, ""
    inputs = (q.factors[0], swapped, root.inputs[1], mask) if mask else (q.factors[0], swapped, root.inputs[1])
    return Found([*extra, replacement(root, "Attention", inputs, **options)], inner)


def _mask(graph: ProgramGraph, scores: str, root: Node) -> tuple[str, str, list[Node], set[str]] | None:
    """The scores that are masked, the mask, the nodes that make it and those of the old form; None without a mask."""
    node = graph.made_by(scores, "Add", "Where")
    if node is None:
        return None
    if node.op_type == "Add":
        for inside, mask in (node.inputs, node.inputs[::-1]):
            if graph.made_by(mask, "MatMul", "Mul", "Div") is None or graph.made_by(inside, "MatMul") is not None:
                return inside, mask, [], {node.name}
        return None
    condition, yes, no = node.inputs
    for inside, number, swap in ((no, yes, False), (yes, no, True)):
        hidden = graph.number(number)
        if hidden is not None and hidden < HIDDEN:
            name, zero = f"{root.outputs[0]}:mask", f"{root.outputs[0]}:seen"
            graph.constant(zero, np.zeros((), graph.dtype(scores) or "float32"))
            choice = (condition, zero, number) if swap else (condition, number, zero)
            return inside, name, [Node("Where", choice, (name,), name)], {node.name}
    return None


def _same_batches(graph: ProgramGraph, q: Product, k: Product, v: str, mask: str, shape: tuple[Any, ...]) -> bool:
    """Whether nothing is broadcast but the mask, which must not be trained: the fused functions have no gradient."""
    shapes = [graph.shape(name) for name in (q.factors[0], k.factors[0], v)]
    if any(s is None or len(s) != len(shape) or s[:-2] != shape[:-2] for s in shapes):
        return False
    if not mask or (mask not in graph.producers and mask not in graph.program.descriptors):
        return True  # made here, of a condition that was broadcast to the scores
    sizes = graph.shape(mask)
    fits = sizes is not None and 2 <= len(sizes) <= len(shape) and not graph.trained(mask)
    return fits and all(a in (1, b) for a, b in zip(sizes[::-1], shape[::-1], strict=False))  # type: ignore[index]


def _is_causal(mask: np.ndarray | None, shape: tuple[Any, ...]) -> bool:
    """Whether a mask hides what lies ahead, and nothing else."""
    if mask is None or shape[-1] != shape[-2] or mask.shape[-2:] != tuple(shape[-2:]) or mask.size != shape[-1] ** 2:
        return False
    square = mask.reshape(mask.shape[-2:])
    ahead = np.triu(np.ones(square.shape, bool), 1)
    return bool((square[ahead] < HIDDEN).all() and (square[~ahead] == 0).all())


# -- recurrent layers --------------------------------------------------------------------------------------------------
_TORCH_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""For each of ONNX's gates, which of PyTorch's it is."""


def lstm(graph: ProgramGraph, root: Node) -> Found | None:
    """LSTM on weights that were put into ONNX's order of gates: the same on the weights as they were."""
    return _recurrent(graph, root) if root.op_type == "LSTM" else None


def gru(graph: ProgramGraph, root: Node) -> Found | None:
    """GRU likewise."""
    return _recurrent(graph, root) if root.op_type == "GRU" and root.attribute("linear_before_reset") else None


def _recurrent(graph: ProgramGraph, root: Node) -> Found | None:
    attributes = {name: value for name, value in root.attributes.items() if name != "input_forget" or value}
    plain = attributes.keys() <= {"direction", "hidden_size", "linear_before_reset", "layout"}
    if not plain or len(root.inputs) < 4 or any((*root.inputs[4:5], *root.inputs[7:])):
        return None
    order = _TORCH_ORDER[root.op_type]
    weights, inner = _in_torch_order(graph, root.inputs[1:3], order)
    biases, more = _in_torch_order(graph, root.inputs[3:4], order)
    extra: list[Node] = []
    if weights is not None and biases is None:  # an exporter put all biases together
        extra, biases = _picked_biases(graph, root, order, len(weights))
        more = set()
    if weights is None or biases is None:
        return None
    flat = [name for w, b in zip(weights, biases, strict=True) for name in (*w, *b)]
    states = (*root.inputs[5:], "", "")[: 2 if root.op_type == "LSTM" else 1]
    inputs = (root.inputs[0], *states, *flat)
    node = Node(f"Ordered{root.op_type}", inputs, root.outputs, root.name, DOMAIN, attributes)
    return Found([*extra, node], inner | more)


def _in_torch_order(
    graph: ProgramGraph, values: tuple[str, ...], order: tuple[int, ...]
) -> tuple[list[list[str]] | None, set[str]]:
    """For each direction the parameters whose rows stand in these values (a bias is two of them), in ONNX's order of
    gates; None if they are no such thing. And the nodes in between."""
    inner: set[str] = set()
    parts = [_directions(graph, value, inner) for value in values]
    if any(part is None or len(part) != len(parts[0] or ()) for part in parts):
        return None, inner
    parameters = []
    for direction in zip(*(part for part in parts if part), strict=True):
        blocks = direction if len(values) == 2 else _halves(graph, direction[0], inner)
        names = [_unordered(graph, block, order, inner) for block in blocks]
        if len(names) != 2 or None in names:
            return None, inner
        parameters.append([name for name in names if name is not None])
    return parameters, inner


def _picked_biases(
    graph: ProgramGraph, root: Node, order: tuple[int, ...], directions: int
) -> tuple[list[Node], list[list[str]] | None]:
    """Nodes that take both biases of every direction, in torch's order of gates, out of ONNX's one array."""
    shape, count = graph.shape(root.inputs[3]), 2 * len(order)
    if shape is None or len(shape) != 2 or shape[0] != directions or not isinstance(shape[1], int) or shape[1] % count:
        return [], None
    size = shape[1] // count
    back = [order.index(gate) for gate in range(len(order))]
    nodes, names = list[Node](), [["", ""] for _ in range(directions)]
    for half in range(2):
        rows = np.concatenate([np.arange(size) + (half * len(order) + gate) * size for gate in back])
        both, index = f"{root.outputs[0]}:biases{half}", graph.constant(f"{root.outputs[0]}:rows{half}", rows)
        nodes.append(Node("Gather", (root.inputs[3], index), (both,), both, "", {"axis": 1}))
        for direction in range(directions):
            bias = names[direction][half] = f"{both}:{direction}"
            place = graph.constant(f"{bias}:place", np.array(direction))
            nodes.append(Node("Gather", (both, place), (bias,), bias, "", {"axis": 0}))
    return nodes, names


def _directions(graph: ProgramGraph, value: str, inner: set[str]) -> list[str] | None:
    """The parts that are stacked along a new first axis."""
    node = graph.made_by(value, "Concat", "Unsqueeze")
    if node is None:
        return None
    inner.add(node.name)
    if node.op_type == "Concat":
        stacked = [_directions(graph, name, inner) for name in node.inputs]
        whole = node.attribute("axis") == 0 and all(f is not None and len(f) == 1 for f in stacked)
        return [f[0] for f in stacked if f] if whole else None
    axes = graph.array(node.inputs[1])
    return [node.inputs[0]] if axes is not None and axes.reshape(-1).tolist() == [0] else None


def _halves(graph: ProgramGraph, value: str, inner: set[str]) -> tuple[str, ...]:
    node = graph.made_by(value, "Concat")
    if node is None or len(node.inputs) != 2:
        return ()
    inner.add(node.name)
    return node.inputs


def _unordered(graph: ProgramGraph, value: str, order: tuple[int, ...], inner: set[str]) -> str | None:
    """The value of which this has the blocks of rows in this order, taken by slices and put together again."""
    node = graph.made_by(value, "Concat")
    slices = [graph.made_by(name, "Slice") for name in node.inputs] if node and node.attribute("axis") == 0 else []
    rows, sources = list[int](), set[str]()
    for part in slices:
        known = [graph.array(name) for name in part.inputs[1:]] if part else []
        sizes = graph.shape(part.inputs[0]) if part else None
        if part is None or len(known) < 3 or any(k is None or k.size != 1 for k in known) or not sizes:
            return None
        begin, end, axis, *step = (int(k.reshape(-1)[0]) for k in known if k is not None)
        if axis != 0 or step not in ([], [1]) or not isinstance(sizes[0], int):
            return None
        rows += range(sizes[0])[begin:end]
        sources.add(part.inputs[0])
        inner.add(part.name)
    if node is None or len(sources) != 1 or len(rows) % len(order):
        return None
    inner.add(node.name)
    block = len(rows) // len(order)
    (source,) = sources
    fits = rows == [row for gate in order for row in range(gate * block, (gate + 1) * block)]
    return source if fits and (graph.shape(source) or (None,))[0] == len(rows) else None


# -- dense layers ------------------------------------------------------------------------------------------------------
def linear(graph: ProgramGraph, root: Node) -> Found | None:
    """x W^T + b, or x W + b."""
    for product, bias in (root.inputs, root.inputs[::-1]) if root.op_type == "Add" else ():
        match, sizes = graph.made_by(product, "MatMul"), graph.shape(bias)
        x, weight = match.inputs if match else ("", "")
        shape, width = graph.shape(x), graph.shape(weight)
        if match is None or shape is None or width is None or len(shape) < 2 or len(width) != 2:
            continue
        if sizes != width[1:] or "float" not in graph.dtype(x):
            continue
        turned = graph.made_by(weight, "Transpose")
        if turned is not None and turned.attribute("perm") in (None, (1, 0)):
            return Found([replacement(root, "Linear", (x, turned.inputs[0], bias), DOMAIN)], {match.name})
        name = f"{root.outputs[0]}:weight"
        turn = Node("Transpose", (weight,), (name,), name, "", {"perm": (1, 0)})
        return Found([turn, replacement(root, "Linear", (x, name, bias), DOMAIN)], {match.name})
    return None


PATTERNS: tuple[tuple[tuple[str, str], Pattern], ...] = (
    ((DOMAIN, "AdaptiveAveragePool"), adaptive_pool),
    ((DOMAIN, "ScatterReduce"), scatter_reduce),
    (("", "MatMul"), outer_sum),
    (("", "Swish"), swish),
    (("", "HardSwish"), hard_swish),
    (("", "HardSwish"), hard_swish_clipped),
    (("", "Mish"), mish),
    (("", "Gelu"), gelu),
    (("", "GroupNormalization"), group_norm),
    (("", "LayerNormalization"), layer_norm),
    (("", "RMSNormalization"), rms_norm),
    (("", "Attention"), attention),
    ((DOMAIN, "OrderedLSTM"), lstm),
    ((DOMAIN, "OrderedGRU"), gru),
    ((DOMAIN, "Linear"), linear),
)
"""Operators and the forms in which they are found, in the order in which these are looked for."""
