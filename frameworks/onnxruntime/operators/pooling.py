"""Pooling in float64."""

from __future__ import annotations

import math

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion
from deep500.frameworks.onnxruntime.operators.windows import out_sizes, padded, unfold, window
from deep500.networks.windows import Window


@expansion("GlobalAveragePool", "GlobalMaxPool")
def global_pool(op: ExpansionEmitter) -> dict[str, str] | None:
    """Reduction over all spatial axes."""
    rank = op.rank(0)
    if rank is None:
        return None
    reduction = "ReduceMean" if op.node.op_type == "GlobalAveragePool" else "ReduceMax"
    return {op.node.outputs[0]: op(reduction, op.node.inputs[0], op.ints(*range(2, rank)), keepdims=1)}


@expansion("AveragePool")
def average_pool(op: ExpansionEmitter) -> dict[str, str] | None:
    """Sum over each window by the number of its elements, with or without the padding."""
    kernel = list(op.node.attribute("kernel_shape"))
    w = window(op, kernel)
    if w is None:
        return None
    x = op.node.inputs[0]
    total = _window_sum(op, x, kernel, w)
    if op.node.attribute("count_include_pad") or not any(w.begin + w.end):
        count = op.like(float(math.prod(kernel)))
    else:
        count = _window_sum(op, op("Expand", op.like(1.0), op("Shape", x)), kernel, w)
    return {op.node.outputs[0]: op("Div", total, count)}


def _window_sum(op: ExpansionEmitter, x: str, kernel: list[int], w: Window) -> str:
    x, sizes = padded(op, x, w), op.ints(*kernel)
    columns = unfold(op, x, sizes, out_sizes(op, x, sizes, w), w)
    return op("ReduceSum", columns, op.ints(*range(2, 2 + 2 * len(w.strides), 2)), keepdims=0)
