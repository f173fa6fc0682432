"""Sizes behind a Resize by factors: as the kernels round them, not as ONNX's shape inference does.

A factor is a float32, and so is its product with a size: 10 times 1.3 is 13 there. ONNX's inference multiplies in
float64, where it is less, and says 12.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deep500.networks.resampling import resized


def put_sizes(graph: onnx.GraphProto, inferred: onnx.GraphProto) -> bool:
    """Give Resize nodes sizes in place of factors where the inference went wrong, in place; returns whether it did.

    Args:
        graph: what was inferred.
        inferred: the same graph with what the inference says of its values.
    """
    arrays = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {
        value.name: [dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.input, *inferred.value_info)
    }
    shapes |= {name: list(tensor.dims) for name, tensor in arrays.items()}
    changed = False
    for number, node in enumerate(graph.node):
        if node.op_type != "Resize" or node.domain or len(node.input) != 3 or node.input[2] not in arrays:
            continue
        before, after = shapes.get(node.input[0]), shapes.get(node.output[0])
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        axes = [axis % len(before) for axis in attributes.get("axes") or range(len(before))] if before else []
        factors = numpy_helper.to_array(arrays[node.input[2]]).tolist()
        if not axes or not after or len(factors) != len(axes):
            continue
        sizes = {
            axis: resized(size, factor)
            for axis, factor in zip(axes, factors, strict=True)
            if isinstance(size := before[axis], int) and np.isfinite(factor) and factor > 0
        }
        if all(after[axis] in (None, size) for axis, size in sizes.items()):
            continue
        name = f"{node.input[2]}/sizes{number}"
        graph.initializer.append(numpy_helper.from_array(np.array([*sizes.values()], np.int64), name))
        node.input[2:] = ["", name]
        others = [a for a in node.attribute if a.name not in ("axes", "keep_aspect_ratio_policy")]
        del node.attribute[:]
        node.attribute.extend([*others, helper.make_attribute("axes", [*sizes])])
        changed = True
    return changed
