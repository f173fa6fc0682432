"""Convolution as a matrix product, and transposed convolution as convolution: ONNX Runtime has both in float32 only.

Sizes may be unknown: they are computed when the session runs. ConvTranspose(X, W) with strides s is Conv of X, with
s - 1 zeros between its elements, and W with reversed spatial axes and exchanged channels (Dumoulin and Visin 2016).
"""

from __future__ import annotations

import numpy as np

from deep500.frameworks.onnxruntime.operators.pooling import dilated_same
from deep500.frameworks.onnxruntime.operators.table import Descriptors, ExpansionEmitter, expansion
from deep500.frameworks.onnxruntime.operators.windows import out_sizes, padded, unfold, window
from deep500.networks.attributes import Sliding, collect
from deep500.networks.kernel_sizes import adding
from deep500.networks.node import Node
from deep500.networks.protos import UNKNOWN
from deep500.networks.windows import Window


@expansion("Conv")
def conv(op: ExpansionEmitter) -> dict[str, str] | None:
    """Windows [N, g, c*k, o] times weights [g, m, c*k]; of float32 a Conv with its padding written out."""
    node, (x, weight) = op.node, op.node.inputs[:2]
    shape = op.descriptors[weight].shape if weight in op.descriptors else None
    kernel = list(node.attribute("kernel_shape") or (shape or ())[2:])
    w = window(op, kernel if kernel and all(isinstance(k, int) for k in kernel) else None)
    if w is None:
        return None
    if op.dtype() == "float32" and dilated_same(node, op.descriptors):
        attributes = {n: v for n, v in node.attributes.items() if n != "auto_pad"} | {"pads": (*w.begin, *w.end)}
        return {node.outputs[0]: op("Conv", *node.inputs, **attributes)}
    group = int(node.attribute("group"))
    x, kernel_sizes = padded(op, x, w), op.sizes(weight)
    sizes = out_sizes(op, x, kernel_sizes, w)
    columns = unfold(op, x, kernel_sizes, sizes, w)  # [N, C, k1, o1, k2, o2, ...]
    order = [0, 1, *range(2, 2 + 2 * len(w.strides), 2), *range(3, 3 + 2 * len(w.strides), 2)]
    columns = op("Transpose", columns, perm=order)
    samples = op("Shape", x, start=0, end=1)
    places = op("ReduceProd", sizes, keepdims=1)
    columns = op("Reshape", columns, op("Concat", samples, op.ints(group, -1), places, axis=0))
    flat = op("Flatten", weight, axis=1)
    flat = op("Reshape", flat, op("Concat", op.ints(group, -1), op("Shape", flat, start=1), axis=0))
    y = op("MatMul", flat, columns)
    y = op("Reshape", y, op("Concat", samples, op.ints(-1), sizes, axis=0))
    return {node.outputs[0]: biased(op, y, w)}


def adding_window(node: Node, descriptors: Descriptors) -> Window | None:
    """The window of a ConvTranspose whose padding is negative, which ONNX Runtime refuses, or takes for none."""
    shape, settings = descriptors.get(node.inputs[1], UNKNOWN).shape, collect(Sliding, node.all_attributes())
    kernel = [k for k in settings.kernel_shape or (shape or ())[2:] if isinstance(k, int)]
    return adding(kernel, settings) if kernel else None


@expansion("ConvTranspose")
def conv_transpose(op: ExpansionEmitter) -> dict[str, str] | None:
    """A convolution of the spread input; ``output_shape`` is left alone, and automatic padding that cuts away."""
    node, (x, weight) = op.node, op.node.inputs[:2]
    w = adding_window(node, op.descriptors) or window(op, None)
    if w is None or node.attribute("output_shape") is not None:
        return None
    group, half = int(node.attribute("group")), len(w.strides)
    extra = list(node.attribute("output_padding") or [0] * half)
    x = _spread(op, x, w)
    reach = op("Mul", op.ints(*w.dilations), op("Sub", op.sizes(weight), op.ints(*[1] * half)))
    begins = op("Sub", reach, op.ints(*w.begin))
    shift = [e - p - (s - 1) for e, p, s in zip(extra, w.end, w.strides, strict=True)]
    ends, none = op("Add", reach, op.ints(*shift)), op.ints(0, 0)
    x = op("Pad", x, op("Concat", none, begins, none, ends, axis=0))
    y = op("Conv", x, _turned(op, weight, group, half), group=group, dilations=w.dilations)
    return {node.outputs[0]: biased(op, y, w)}


def _spread(op: ExpansionEmitter, x: str, w: Window) -> str:
    """s - 1 zeros after every element along every spatial axis."""
    if all(s == 1 for s in w.strides):
        return x
    wide = op("Unsqueeze", x, op.ints(*range(3, 3 + 2 * len(w.strides), 2)))
    ends = [n for s in w.strides for n in (0, s - 1)]
    wide = op("Pad", wide, op.ints(*[0] * (2 + 2 * len(w.strides)), 0, 0, *ends))
    sizes = op("Mul", op.sizes(x), op.ints(*w.strides))
    return op("Reshape", wide, op("Concat", op("Shape", x, end=2), sizes, axis=0))


def _turned(op: ExpansionEmitter, weight: str, group: int, rank: int) -> str:
    """[g c, m, k...] -> [g m, c, k...], the spatial axes reversed."""
    axes = list(range(2, 2 + rank))
    far = -(2**62)
    weight = op("Slice", weight, op.ints(*[-1] * rank), op.ints(*[far] * rank), op.ints(*axes), op.ints(*[-1] * rank))
    tail = op("Shape", weight, start=1)
    grouped = op("Reshape", weight, op("Concat", op.ints(group, -1), tail, axis=0))  # [g, c, m, k...]
    grouped = op("Transpose", grouped, perm=[0, 2, 1, *range(3, 3 + rank)])
    return op("Reshape", grouped, op("Concat", op.ints(-1), op("Shape", grouped, start=2), axis=0))


def biased(op: ExpansionEmitter, y: str, w: Window) -> str:
    """With the node's bias, one number per channel, if it has one."""
    bias = op.operand(2)
    return op("Add", y, op("Unsqueeze", bias, op.constant(np.arange(1, 1 + len(w.strides))))) if bias else y
