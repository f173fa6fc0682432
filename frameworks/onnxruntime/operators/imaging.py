"""Resize in float64, for which ONNX Runtime has no kernel: every axis by one matrix product, or by one Gather."""

from __future__ import annotations

import numpy as np

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion
from deep500.networks.protos import UNKNOWN
from deep500.networks.resampling import AxisStep, steps_of_node
from deep500.networks.shapes import known_value


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


def _steps(op: ExpansionEmitter) -> list[AxisStep] | None:
    shape, new = (op.descriptors.get(v, UNKNOWN).shape for v in (op.node.inputs[0], op.node.outputs[0]))
    if shape is None or new is None:
        return None
    return steps_of_node(op.node, shape, new, lambda i: known_value(op.network, op.operand(i)))
