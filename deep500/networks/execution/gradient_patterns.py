"""Gradients that rules wrote as nodes, found again: those of activations and normalisations for which a backend has one
function. The forms are those of :mod:`deep500.networks.gradients.rules`, in float32 and float64.
"""

from __future__ import annotations

import math

from deep500.networks.execution.chains import DOMAIN, Found, Pattern, ProgramGraph, replacement
from deep500.networks.node import Node


def _alike(graph: ProgramGraph, *values: str) -> bool:
    """Whether values have one shape, and a dtype in which functions round as nodes do."""
    shape = graph.shape(values[0])
    same = shape is not None and None not in shape and all(graph.shape(value) == shape for value in values)
    return same and graph.dtype(values[0]) in ("float32", "float64")


def gelu_gradient(graph: ProgramGraph, root: Node) -> Found | None:
    """dy * (F(x) + x f(x)), F and f the normal distribution and its density."""
    for dy, slope in (root.inputs, root.inputs[::-1]) if root.op_type == "Mul" else ():
        total = graph.made_by(slope, "Add")
        for left, right in (total.inputs, total.inputs[::-1]) if total else ():
            bell, half = graph.product_of(left), graph.product_of(right)
            plus = graph.plus(half.factors[0], 1.0) if len(half.factors) == 1 else None
            bend = graph.made_by(plus[0], "Erf") if plus else None
            if plus is None or bend is None or len(bell.factors) != 2:
                continue
            inside = graph.product_of(bend.inputs[0])
            x = inside.factors[0]
            exp = graph.made_by(next((v for v in bell.factors if v != x), ""), "Exp")
            square = graph.product_of(exp.inputs[0]) if exp else None
            if exp is None or square is None or square.factors != [x, x] or inside.factors != [x]:
                continue
            scales = (half.scale, 0.5), (bell.scale, 1 / math.sqrt(2 * math.pi)), (square.scale, -0.5)
            exact = all(graph.near(scale, target, x) for scale, target in (*scales, (inside.scale, math.sqrt(0.5))))
            if exact and x in bell.factors and _alike(graph, x, dy):
                inner = bell.inner | half.inner | inside.inner | square.inner
                inner |= {total.name, plus[1], bend.name, exp.name}  # type: ignore[union-attr]
                return Found([replacement(root, "GeluGradient", (dy, x), DOMAIN)], inner)
    return None


def softmax_gradient(graph: ProgramGraph, root: Node) -> Found | None:
    """y * (dy - sum(dy * y))."""
    for y, spread in (root.inputs, root.inputs[::-1]) if root.op_type == "Mul" else ():
        minus = graph.made_by(spread, "Sub")
        total = graph.made_by(minus.inputs[1], "ReduceSum") if minus else None
        product, axes = graph.made_by(total.inputs[0], "Mul") if total else None, graph.axes(total) if total else None
        if minus is None or total is None or product is None or len(axes or ()) != 1:
            continue
        dy = minus.inputs[0]
        if sorted(product.inputs) == sorted((dy, y)) and _alike(graph, y, dy):
            node = replacement(root, "SoftmaxGradient", (dy, y), DOMAIN, axis=axes[0])  # type: ignore[index]
            return Found([node], {minus.name, total.name, product.name})
    return None


def layer_norm_gradient(graph: ProgramGraph, root: Node) -> Found | None:
    """(d - mean(d) - xhat * mean(d * xhat)) / sd of x, with d = dy * scale; the sum of dy * xhat over the rows is that
    of scale."""
    for minus, inverse in (root.inputs, root.inputs[::-1]) if root.op_type == "Mul" else ():
        nodes = [root]

        def step(value: str, *operators: str, nodes: list[Node] = nodes) -> tuple[str, ...]:
            node = graph.made_by(value, *operators)
            nodes += [node] if node else []
            return node.inputs if node else ("", "")

        spread, along = step(minus, "Sub")
        d, mean = step(spread, "Sub")
        normal, projected = step(along, "Mul")
        product, *axes = step(projected, "ReduceMean")
        if step(mean, "ReduceMean") != (d, *axes) or sorted(step(product, "Mul")) != sorted((d, normal)):
            continue
        centred, again = step(normal, "Mul")
        variance, epsilon = step(step(step(inverse, "Reciprocal")[0], "Sqrt")[0], "Add")
        x, centre = step(centred, "Sub")
        squares, *_ = step(variance, "ReduceMean")
        if again != inverse or step(squares, "Mul") != (centred, centred) or step(centre, "ReduceMean")[0] != x:
            continue
        dy, scale = step(d, "Mul")
        means, shape = [node for node in nodes if node.op_type == "ReduceMean"], graph.shape(x) or ()
        axis, number = -len(graph.axes(means[0]) or ()), graph.number(epsilon)
        last = all(graph.axes(node) == list(range(axis, 0)) for node in means)
        if not axis or not last or number is None or graph.shape(scale) != shape[axis:] or not _alike(graph, x, dy):
            continue
        match = Found([], {node.name for node in nodes} - {root.name})
        outputs = (*root.outputs, *_scale_gradient(graph, root, (dy, normal), axis, match))
        attributes = {"axis": axis, "epsilon": number}
        match.nodes.append(Node("LayerNormalizationGradient", (dy, x, scale), outputs, root.name, DOMAIN, attributes))
        return match
    return None


def _scale_gradient(
    graph: ProgramGraph, root: Node, factors: tuple[str, str], axis: int, match: Found
) -> tuple[str, ...]:
    """The sum of a product over all axes but the last, if the program has it, after the root."""
    names = list(graph.nodes)
    for node in list(graph.nodes.values())[names.index(root.name) + 1 :]:
        product = graph.made_by(node.inputs[0], "Mul") if node.op_type == "ReduceSum" and not node.domain else None
        if product is None or sorted(product.inputs) != sorted(factors) or node.attribute("keepdims"):
            continue
        axes, rank = graph.array((*node.inputs, "")[1]), len(graph.shape(factors[0]) or ())
        if axes is not None and sorted(int(a) % rank for a in axes) == list(range(rank + axis)):
            match.inner |= {node.name, product.name}
            match.ends |= set(node.outputs)
            return node.outputs
    return ()


GRADIENT_PATTERNS: tuple[tuple[tuple[str, str], Pattern], ...] = (
    ((DOMAIN, "GeluGradient"), gelu_gradient),
    ((DOMAIN, "SoftmaxGradient"), softmax_gradient),
    ((DOMAIN, "LayerNormalizationGradient"), layer_norm_gradient),
)
"""Operators and the forms in which they are looked for."""
