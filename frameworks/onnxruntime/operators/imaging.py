"""Resize in float64, for which ONNX Runtime has no kernel: every axis by one matrix product, or by one Gather."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion
from deep500.networks.execution.resampling import AxisStep, resize_steps
from deep500.networks.gradients.rules.context import known_value
from deep500.networks.protos import UNKNOWN

_ATTRIBUTES = (
    "antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "keep_aspect_ratio_policy",
    "mode", "nearest_mode",
)  # fmt: skip


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
    """What happens to each axis, None where that depends on sizes or operands which only the run knows."""
    shape, new = (op.descriptors.get(v, UNKNOWN).shape for v in (op.node.inputs[0], op.node.outputs[0]))
    if shape is None or new is None:
        return None
    axes = [int(a) % len(shape) for a in op.node.attribute("axes") or range(len(shape))]
    roi, scales, sizes = ([] if not op.given(i) else known_value(op.network, op.given(i)) for i in (1, 2, 3))
    attributes: dict[str, Any] = {name: op.node.attribute(name) for name in _ATTRIBUTES}
    if roi is None and attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        return None
    if not op.given(3):
        if scales is None or any(not isinstance(shape[a], int) and s != 1 for a, s in zip(axes, scales, strict=True)):
            return None
    elif sizes is None or attributes["keep_aspect_ratio_policy"] == "stretch":  # the inferred ones are the same
        axes = [a for a in axes if shape[a] != new[a] or not isinstance(new[a], (int, str))]
        sizes = [new[a] for a in axes]
        if any(not isinstance(shape[a], int) or not isinstance(new[a], int) for a in axes) or len(roi or ()):
            return None
    fixed = [d if isinstance(d, int) else None for d in shape]
    bounds = [] if roi is None else [float(v) for v in roi]
    given = {"scales": [float(s) for s in scales], "sizes": None} if not op.given(3) else {"scales": None, "sizes": sizes}
    return list(resize_steps(fixed, bounds, axes=axes, **given, **attributes)) if axes else []
