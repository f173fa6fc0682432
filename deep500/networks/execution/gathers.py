"""Patterns of what is gathered, scattered, or multiplied and then summed up: a part of the table of
:mod:`deep500.networks.execution.patterns`.

``AdaptiveAveragePool`` and ``ScatterReduce`` of :data:`~deep500.networks.execution.chains.DOMAIN` have no operator in
ONNX.
"""

from __future__ import annotations

import numpy as np

from deep500.networks.execution.chains import DOMAIN, Found, ProgramGraph, replacement
from deep500.networks.node import Node

_LOWEST = -3e38
"""Start of the search for a largest element, where it is not -inf."""


def _axes(graph: ProgramGraph, node: Node, rank: int) -> list[int] | None:
    """The axes of a reduction of this rank, counted from the front; None if unknown."""
    axes = graph.array(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
    return None if axes is None else sorted(int(a) % rank for a in axes.reshape(-1))


def adaptive_pool(graph: ProgramGraph, root: Node) -> Found | None:
    """The mean over windows of an image, gathered by their places, where all windows have one size."""
    if root.op_type != "ReduceMean" or root.attribute("keepdims", 1) or _axes(graph, root, 6) != [3, 5]:
        return None
    back = graph.only(root.inputs[0], "Transpose")
    picked = graph.only(back.inputs[0], "GatherND") if back else None
    there = graph.only(picked.inputs[0], "Transpose") if picked else None
    if back is None or picked is None or there is None or picked.attribute("batch_dims"):
        return None
    if tuple(back.attribute("perm")) != (4, 5, 0, 1, 2, 3) or tuple(there.attribute("perm")) != (2, 3, 0, 1):
        return None
    places, image = graph.array(picked.inputs[1]), graph.shape(there.inputs[0])
    if places is None or places.ndim != 5 or places.shape[-1] != 2 or image is None:
        return None
    for axis, (size, (count, width)) in enumerate(zip(image[2:], (places.shape[:2], places.shape[2:4]), strict=True)):
        if not isinstance(size, int):
            return None
        begin, end = np.arange(count) * size // count, -(-(np.arange(count) + 1) * size // count)
        windows = (begin[:, None] + np.arange(width)).reshape((count, width, 1, 1) if axis == 0 else (count, width))
        if (end - begin != width).any() or (places[..., axis] != windows).any():
            return None
    counts = (places.shape[0], places.shape[2])
    node = replacement(root, "AdaptiveAveragePool", there.inputs, DOMAIN, size=counts)
    return Found([node], {back.name, picked.name, there.name})


def scatter_reduce(graph: ProgramGraph, root: Node) -> Found | None:
    """The largest or smallest update of each place; what was there is made the lowest first, so it does not count."""
    reduction = root.attribute("reduction", "") if root.op_type == "ScatterElements" else ""
    first = graph.only(root.inputs[0], "ScatterElements") if reduction in ("max", "min") else None
    if first is None or {first.attribute("reduction"), reduction} != {"max", "min"}:
        return None
    if first.inputs[1] != root.inputs[1] or first.attribute("axis", 0) != root.attribute("axis", 0):
        return None
    fill = graph.made_by(first.inputs[2], "ConstantOfShape")
    value = np.asarray(fill.attribute("value")).reshape(-1)[0] if fill and "value" in fill.attributes else 0
    if (value > _LOWEST if reduction == "max" else value < -_LOWEST) or "float" not in graph.dtype(root.inputs[2]):
        return None
    inputs = (first.inputs[0], *root.inputs[1:])
    node = replacement(root, "ScatterReduce", inputs, DOMAIN, axis=root.attribute("axis", 0), reduction=reduction)
    return Found([node], {first.name})


def outer_sum(graph: ProgramGraph, root: Node) -> Found | None:
    """The sum over the last axis but one of [a, n, k, 1] * [b, 1, k, m]: a product of matrices."""
    product = graph.only(root.inputs[0], "Mul") if root.op_type == "ReduceSum" else None
    if product is None or root.attribute("keepdims", 1) or _axes(graph, root, 4) != [2]:
        return None
    for left, right in (product.inputs, product.inputs[::-1]):
        shapes = [graph.shape(value) or () for value in (left, right)]
        a, b = ((1, *shape) if len(shape) == 3 else shape for shape in shapes)
        if len(a) != 4 or len(b) != 4 or a[3] != 1 or b[1] != 1:
            continue
        if a[2] != b[2] or a[2] in (None, 1) or (a[0] != b[0] and 1 not in (a[0], b[0])):
            continue
        nodes = list[Node]()
        whole = [
            value if len(shape) == 4 else _moved(graph, root, nodes, "Unsqueeze", value, 0)
            for value, shape in zip((left, right), shapes, strict=True)
        ]
        factors = tuple(_moved(graph, root, nodes, "Squeeze", v, axis) for v, axis in zip(whole, (3, 1), strict=True))
        return Found([*nodes, replacement(root, "MatMul", factors)], {product.name})
    return None


def _moved(graph: ProgramGraph, root: Node, nodes: list[Node], operator: str, value: str, axis: int) -> str:
    """A value with one axis more or less; the node joins the others."""
    name = f"{root.outputs[0]}:{len(nodes)}"
    nodes.append(Node(operator, (value, graph.constant(f"{name}:axes", np.array([axis]))), (name,), name))
    return name


__all__ = ["adaptive_pool", "outer_sum", "scatter_reduce"]
