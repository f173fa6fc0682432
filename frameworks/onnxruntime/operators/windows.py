"""Sliding windows out of Gather, for convolution and pooling in dtypes that ONNX Runtime's own kernels lack."""

from __future__ import annotations

import numpy as np

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter
from deep500.networks.attributes import Sliding, collect
from deep500.networks.settings import check_axes
from deep500.networks.windows import Window, make_window


def window(op: ExpansionEmitter, kernel: list[int] | None) -> Window | None:
    """The node's window; None where it is not known: automatic padding over unknown sizes, rounding up."""
    node, rank = op.node, op.rank(0)
    if rank is None or rank < 3 or node.attribute("ceil_mode", 0):
        return None
    spatial = rank - 2
    check_axes(f"node {node.name!r} ({node.op_type})", node.attributes, spatial)
    settings = collect(Sliding, node.all_attributes())
    shape = (op.descriptors[node.inputs[0]].shape or ())[2:]
    sizes = [size if isinstance(size, int) else None for size in shape] or [None] * spatial
    if settings.auto_pad.startswith("SAME") and (kernel is None or None in sizes):
        return None
    return make_window(sizes, kernel or [1] * spatial, settings)  # paddings that a node names need no kernel


def padded(op: ExpansionEmitter, value: str, w: Window) -> str:
    """The value with zeros around its spatial axes."""
    if not any(w.begin + w.end):
        return value
    return op("Pad", value, op.ints(0, 0, *w.begin, 0, 0, *w.end))


def out_sizes(op: ExpansionEmitter, value: str, kernel: str, w: Window) -> str:
    """Sizes after the window has moved over a (padded) value: (n - d (k - 1) - 1) // s + 1."""
    ones = op.ints(*[1] * len(w.strides))
    reach = op("Mul", op.ints(*w.dilations), op("Sub", kernel, ones))
    left = op("Sub", op("Sub", op.sizes(value), reach), ones)
    return op("Add", op("Div", left, op.ints(*w.strides)), ones)


def unfold(op: ExpansionEmitter, value: str, kernel: str, sizes: str, w: Window) -> str:
    """[N, C, n...] -> [N, C, k1, o1, k2, o2, ...]: every element of every window."""
    zero, unit = op.constant(np.array(0, np.int64)), op.constant(np.array(1, np.int64))
    for axis in range(len(w.strides)):
        index = op.constant(np.array(axis, np.int64))
        within, place = (op("Range", zero, op("Gather", v, index), unit) for v in (kernel, sizes))
        within = op("Unsqueeze", op("Mul", within, op.constant(np.array(w.dilations[axis], np.int64))), op.ints(1))
        place = op("Mul", place, op.constant(np.array(w.strides[axis], np.int64)))
        value = op("Gather", value, op("Add", within, place), axis=2 + 2 * axis)
    return value
