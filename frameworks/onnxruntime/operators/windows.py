"""Sliding windows out of Gather, for convolution and pooling in dtypes that ONNX Runtime's own kernels lack."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter
from deep500.networks.settings import check_axes


class Window(NamedTuple):
    """Strides, dilations and pads (begins, then ends) of a node, all explicit."""

    strides: list[int]
    dilations: list[int]
    pads: list[int]

    @property
    def rank(self) -> int:
        return len(self.strides)


def window(op: ExpansionEmitter, kernel: list[int] | None) -> Window | None:
    """The node's window; None where it is not known: automatic padding over unknown sizes, rounding up."""
    node, rank = op.node, op.rank(0)
    if rank is None or rank < 3 or node.attribute("ceil_mode", 0):
        return None
    spatial = rank - 2
    check_axes(f"node {node.name!r} ({node.op_type})", node.attributes, spatial)
    strides = list(node.attribute("strides") or [1] * spatial)
    dilations = list(node.attribute("dilations") or [1] * spatial)
    kind = node.attribute("auto_pad", "NOTSET")
    if kind in ("NOTSET", "VALID"):
        return Window(strides, dilations, list(node.attribute("pads") or [0] * 2 * spatial))
    shape = (op.descriptors[node.inputs[0]].shape or ())[2:]
    sizes = [size for size in shape if isinstance(size, int)]
    if kernel is None or len(sizes) != spatial:
        return None
    totals = [
        max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
        for n, s, d, k in zip(sizes, strides, dilations, kernel, strict=True)
    ]
    less, more = [t // 2 for t in totals], [-(-t // 2) for t in totals]
    return Window(strides, dilations, less + more if kind == "SAME_UPPER" else more + less)


def padded(op: ExpansionEmitter, value: str, pads: list[int]) -> str:
    """The value with zeros around its spatial axes."""
    if not any(pads):
        return value
    half = len(pads) // 2
    return op("Pad", value, op.ints(0, 0, *pads[:half], 0, 0, *pads[half:]))


def out_sizes(op: ExpansionEmitter, value: str, kernel: str, w: Window) -> str:
    """Sizes after the window has moved over a (padded) value: (n - d (k - 1) - 1) // s + 1."""
    one = op.ints(*[1] * w.rank)
    reach = op("Mul", op.ints(*w.dilations), op("Sub", kernel, one))
    left = op("Sub", op("Sub", op.sizes(value), reach), one)
    return op("Add", op("Div", left, op.ints(*w.strides)), one)


def unfold(op: ExpansionEmitter, value: str, kernel: str, sizes: str, w: Window) -> str:
    """[N, C, n...] -> [N, C, k1, o1, k2, o2, ...]: every element of every window."""
    zero, one = op.constant(np.array(0, np.int64)), op.constant(np.array(1, np.int64))
    for axis in range(w.rank):
        index = op.constant(np.array(axis, np.int64))
        within, place = (op("Range", zero, op("Gather", v, index), one) for v in (kernel, sizes))
        within = op("Unsqueeze", op("Mul", within, op.constant(np.array(w.dilations[axis], np.int64))), op.ints(1))
        place = op("Mul", place, op.constant(np.array(w.strides[axis], np.int64)))
        value = op("Gather", value, op("Add", within, place), axis=2 + 2 * axis)
    return value
