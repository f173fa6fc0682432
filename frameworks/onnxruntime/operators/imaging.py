"""Resize by one matrix product or one Gather an axis, and Col2Im, which ONNX Runtime has in float32 only."""

from __future__ import annotations

import numpy as np

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion
from deep500.networks.attributes import Sliding, collect
from deep500.networks.protos import UNKNOWN
from deep500.networks.resampling import AxisStep, steps_of_node
from deep500.networks.shapes import known_value
from deep500.networks.windows import make_window


@expansion("Resize")
def resize(op: ExpansionEmitter) -> dict[str, str] | None:
    """The weights are computed in float64 here; the sizes of axes that change must be known."""
    steps = _steps(op) if op.dtype() == "float64" else None
    if steps is None:
        return None
    y, rank = op.node.inputs[0], op.rank(0) or 0
    for axis, places, matrix, outside in steps:
        if places is not None:
            y = op("Gather", y, op.constant(places), axis=axis)
        if matrix is not None:
            last = [*(a for a in range(rank) if a != axis), axis]
            product = op("MatMul", op("Transpose", y, perm=last), op.like(matrix.T))
            y = op("Transpose", product, perm=np.argsort(last).tolist())
        if outside is not None:
            beyond = op.constant(outside.reshape([-1 if a == axis else 1 for a in range(rank)]))
            y = op("Where", beyond, op.like(op.node.attribute("extrapolation_value")), y)
    return {op.node.outputs[0]: op("Identity", y)}


@expansion("Col2Im")
def col2im(op: ExpansionEmitter) -> dict[str, str] | None:
    """A transposed convolution, one kernel for each place in a window; the image's size must be known."""
    image, kernel = (known_value(op.network, op.operand(i)) for i in (1, 2))
    if image is None or kernel is None:
        return None
    w, taps = make_window(image.tolist(), kernel.tolist(), collect(Sliding, op.node.all_attributes())), kernel.prod()
    x = op.node.inputs[0]
    edges = zip(image.tolist(), w.begin, w.end, w.out, w.strides, w.reach, strict=True)
    y = op(
        "ConvTranspose",
        op("Reshape", x, op.ints(-1, taps, *w.out)),
        op.like(np.eye(taps).reshape(taps, 1, *kernel)),
        output_padding=[n + b + e - (out - 1) * s - reach for n, b, e, out, s, reach in edges],
        **{name: value for name in ("dilations", "pads", "strides") if (value := op.node.attribute(name))},
    )
    sizes = op("Concat", op.part(op("Shape", x), 0, 1), op.ints(-1, *image), axis=0)
    return {op.node.outputs[0]: op("Reshape", y, sizes)}


def _steps(op: ExpansionEmitter) -> list[AxisStep] | None:
    shape, new = (op.descriptors.get(v, UNKNOWN).shape for v in (op.node.inputs[0], op.node.outputs[0]))
    if shape is None or new is None:
        return None
    return steps_of_node(op.node, shape, new, lambda i: known_value(op.network, op.operand(i)))
