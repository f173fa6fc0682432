"""Inverse Fourier transforms in float64, which ONNX Runtime's kernel multiplies by 1/n in float32."""

from __future__ import annotations

import numpy as np

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion
from deep500.networks.gradients.rules.signals import multiplicity
from deep500.networks.protos import UNKNOWN
from deep500.networks.shapes import known_value


@expansion("DFT")
def dft(op: ExpansionEmitter) -> dict[str, str] | None:
    """The conjugate of the transform of the conjugate, divided by n; of half a spectrum its sizes must be known."""
    shape, node = op.descriptors.get(op.node.inputs[0], UNKNOWN).shape, op.node
    place = known_value(op.network, op.operand(2)) if op.operand(2) else np.array(-2)
    if not node.attribute("inverse") or op.dtype() != "float64" or shape is None or place is None:
        return None
    axis, length, onesided = int(place) % len(shape), op.operand(1), node.attribute("onesided")
    x = op("Mul", node.inputs[0], op.like([1, -1])) if shape[-1] == 2 else node.inputs[0]
    if onesided:
        rows, size = shape[axis], known_value(op.network, length) if length else None
        if not isinstance(rows, int) or (length and size is None):
            return None
        n = 2 * (rows - 1) if size is None else int(size)
        times = multiplicity(n)[:rows]
        x = op("Slice", x, op.ints(0), op.ints(len(times)), op.ints(axis))
        x = op("Mul", x, op.like(times.reshape(-1, *[1] * (len(shape) - axis - 1))))
        length = op.constant(np.array(n, np.int64))
    y = op("DFT", x, length, op.operand(2))
    y = op("Slice", y, op.ints(0), op.ints(1), op.ints(-1)) if onesided else op("Mul", y, op.like([1, -1]))
    count = op("CastLike", op("Shape", y, start=axis, end=axis + 1), y)
    return {node.outputs[0]: op("Div", y, count)}
