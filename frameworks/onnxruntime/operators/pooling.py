"""Pooling in float64, and under automatic padding with dilations."""

from __future__ import annotations

import math

from deep500.frameworks.onnxruntime.operators.table import Descriptors, ExpansionEmitter, expansion
from deep500.frameworks.onnxruntime.operators.windows import out_sizes, padded, unfold, window
from deep500.networks.attributes import Sliding, collect
from deep500.networks.node import Node
from deep500.networks.protos import UNKNOWN
from deep500.networks.windows import Window, make_window


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


def dilated_same(node: Node, descriptors: Descriptors) -> bool:
    """Whether pads are to be found for dilated windows, which kernels do as if there were no dilations."""
    return str(node.attribute("auto_pad")).startswith("SAME") and any(d != 1 for d in node.attribute("dilations") or ())


@expansion("LpPool", "MaxPool")
def padded_pool(op: ExpansionEmitter) -> dict[str, str] | None:
    """The padding written out (:func:`dilated_same`)."""
    sizes = (op.descriptors.get(op.node.inputs[0], UNKNOWN).shape or ())[2:]
    if not sizes or not all(isinstance(size, int) for size in sizes) or not dilated_same(op.node, op.descriptors):
        return None
    attributes = {**op.node.attributes, "ceil_mode": 0}
    settings = collect(Sliding, {**op.node.all_attributes(), "ceil_mode": 0})
    w = make_window(sizes, settings.kernel_shape, settings)
    del attributes["auto_pad"]
    attributes["pads"] = (*w.begin, *w.whole_end)
    names = op.many(op.node.op_type, op.node.inputs[0], outputs=len(op.node.outputs), **attributes)
    return dict(zip(op.node.outputs, names, strict=True))
