"""Sizes as kernels make them, where ONNX's shape inference says others or none.

* A factor of a Resize is a float32, and so is its product with a size: 10 times 1.3 is 13 there. The inference
  multiplies in float64, where it is less, and says 12.
* A ConvTranspose whose padding is automatic makes its input's size times the stride, also where its kernel is smaller
  than that; the inference says less. Of padding that is negative, which is the same in numbers, it says nothing.
* Chunks of a Split in 4 are 3, 3, 3 and 0 of 9 samples; the inference gives up where one is left without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deep500.networks.attributes import Sliding, collect
from deep500.networks.resampling import resized
from deep500.networks.windows import Window, make_transposed

_Sizes = dict[str, list[int | None]]


def chunks(size: int, count: int) -> list[int]:
    """The sizes of ``count`` chunks: all of one size as long as there is something left.

    Example:
        >>> chunks(9, 4), chunks(10, 4)
        ([3, 3, 3, 0], [3, 3, 3, 1])
    """
    chunk = -(-size // count)
    return [min(chunk, max(size - number * chunk, 0)) for number in range(count)]


def put_sizes(graph: onnx.GraphProto, inferred: onnx.GraphProto) -> bool:
    """Give nodes sizes in place of factors and numbers where the inference goes wrong, in place.

    Args:
        graph: what was inferred.
        inferred: the same graph with what the inference says of its values.

    Returns:
        Whether a node has other sizes now.
    """
    arrays = {tensor.name: tensor for tensor in graph.initializer}
    shapes: _Sizes = {
        value.name: [dim.dim_value if dim.HasField("dim_value") else None for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.input, *inferred.value_info)
    }
    shapes |= {name: list(tensor.dims) for name, tensor in arrays.items()}
    changed = False
    for number, node in enumerate(graph.node):
        name = f"sizes{number}/{node.name}"
        if node.domain or not shapes.get(node.input[0] if node.input else ""):
            continue
        if node.op_type == "Resize" and len(node.input) == 3 and node.input[2] in arrays:
            sizes = _by_factors(node, shapes, numpy_helper.to_array(arrays[node.input[2]]).tolist())
            if sizes is not None:
                _change(graph, node, name, [*sizes.values()], ["", name], axes=[*sizes])
                changed = True
        elif node.op_type == "ConvTranspose":
            changed = _write_pads(node, shapes) or changed
        elif node.op_type == "Split" and len(node.input) == 1:
            parts = _in_chunks(node, shapes)
            if parts is not None:
                _change(graph, node, name, parts, [name])
                changed = True
    return changed


def _by_factors(node: onnx.NodeProto, shapes: _Sizes, factors: Sequence[float]) -> dict[int, int] | None:
    """Sizes of the axes of a Resize, None where the inference has them."""
    before, after = shapes[node.input[0]], shapes.get(node.output[0])
    chosen = next((list(a.ints) for a in node.attribute if a.name == "axes"), [])
    axes = [axis % len(before) for axis in chosen or range(len(before))]
    if not after or len(factors) != len(axes):
        return None
    sizes = {
        axis: resized(size, factor)
        for axis, factor in zip(axes, factors, strict=True)
        if (size := before[axis]) is not None and np.isfinite(factor) and factor > 0
    }
    return None if all(after[axis] in (None, size) for axis, size in sizes.items()) else sizes


def _in_chunks(node: onnx.NodeProto, shapes: _Sizes) -> list[int] | None:
    """Sizes of the parts of a Split, None where all have elements."""
    shape, count = shapes[node.input[0]], len(node.output)
    size = shape[next((a.i for a in node.attribute if a.name == "axis"), 0)]
    parts = [] if size is None else chunks(size, count)
    return parts if parts and not parts[-1] else None


def adding(kernel: Sequence[int], settings: Sliding) -> Window | None:
    """The window of a ConvTranspose whose padding is negative somewhere, so that it adds zeros; else None.

    Example:
        >>> adding([2, 2], Sliding(auto_pad="SAME_LOWER", strides=(3, 1))).padding()
        [(0, -1), (1, 0)]
    """
    if settings.output_shape:
        return None
    window = make_transposed([1] * len(kernel), kernel, settings)
    return window if min(*window.begin, *window.end) < 0 else None


def _write_pads(node: onnx.NodeProto, shapes: _Sizes) -> bool:
    """Write negative padding of a ConvTranspose as more output, in place; whether there was such."""
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    spatial = values.get("kernel_shape") or (shapes.get(node.input[1]) or [])[2:]
    kernel = [size for size in spatial if size is not None]
    if not kernel or len(kernel) < len(spatial):
        return False
    window = adding(kernel, collect(Sliding, {**values, "auto_pad": values.get("auto_pad", b"NOTSET").decode()}))
    if window is None:
        return False
    more = [
        e - min(before, 0) - min(after, 0)
        for e, before, after in zip(window.extra, window.begin, window.end, strict=True)
    ]
    written = {"pads": [max(n, 0) for n in (*window.begin, *window.end)], "output_padding": more}
    others = [a for a in node.attribute if a.name not in ("auto_pad", *written)]
    del node.attribute[:]
    node.attribute.extend([*others, *(helper.make_attribute(key, value) for key, value in written.items())])
    return True


def _change(
    graph: onnx.GraphProto, node: onnx.NodeProto, name: str, sizes: Sequence[int], inputs: Sequence[str], **more: Any
) -> None:
    graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), name))
    del node.input[2 if node.op_type == "Resize" else 1 :]
    node.input.extend(inputs)
    others = [a for a in node.attribute if a.name not in ("axes", "keep_aspect_ratio_policy", "num_outputs")]
    del node.attribute[:]
    node.attribute.extend([*others, *(helper.make_attribute(key, value) for key, value in more.items())])
