"""Rule of Resize. It is linear in its data and acts on each axis by one matrix, which is Resize of the identity;
the gradient is the product with the transposed matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule
from deep500.networks.node import OPSET


@gradient_rule("Resize")
def resize(g: GradContext) -> Sequence[Value | None]:
    """Nearest, linear and cubic with every coordinate mode but tf_crop_and_resize; resized axes need known sizes."""
    x, dy = g.input(0), g.grad()
    if g.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        g.refuse("coordinate_transformation_mode 'tf_crop_and_resize' has no rule")
    if g.needs(1) or g.needs(2):
        g.refuse("regions and scales have no rule: take them out of wrt")
    rank = g.rank(x)
    attributes = {n: v for n, v in g.node.all_attributes().items() if n not in ("axes", "keep_aspect_ratio_policy")}
    scales = g.constant_of(2) if g.optional(2) else None
    axes = [int(a) % rank for a in g.attribute("axes") or range(rank)]
    for axis in axes:
        scale = None if scales is None or scales.size == 0 else float(scales[axes.index(axis)])
        size, new = (g.static(v, [axis]) for v in (x, g.output()))
        if scale == 1 or (g.dims(x) or ())[axis] == (g.dims(g.output()) or ())[axis] is not None:
            continue
        if size is None or new is None:
            g.refuse(f"axis {axis} is resized from or to a size that is not known when the network is built")
        matrix = _matrix(size[0], new[0], scale, attributes)
        last = [*(a for a in range(rank) if a != axis), axis]
        moved = g("MatMul", g.transpose(dy, last), g.array(matrix.T))
        dy = g.transpose(moved, np.argsort(last).tolist())
    return [dy]


def _matrix(size: int, new: int, scale: float | None, attributes: Mapping[str, Any]) -> np.ndarray:
    """[size, new]: what Resize makes of each unit vector."""
    from onnx.reference import ReferenceEvaluator

    make = onnx.helper
    double = onnx.TensorProto.DOUBLE
    inputs = ["x", "", "scales"] if scale is not None else ["x", "", "", "sizes"]
    node = make.make_node("Resize", inputs, ["y"], **attributes)
    extra = make.make_tensor_value_info(
        inputs[-1], onnx.TensorProto.FLOAT if scale is not None else onnx.TensorProto.INT64, [2]
    )
    graph = make.make_graph(
        [node],
        "resize",
        [make.make_tensor_value_info("x", double, [size, size]), extra],
        [make.make_tensor_value_info("y", double, None)],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", OPSET)])
    feed = np.array([1, scale], np.float32) if scale is not None else np.array([size, new], np.int64)
    results: Any = ReferenceEvaluator(model).run(None, {"x": np.eye(size), inputs[-1]: feed})
    return np.asarray(results[0])
