"""Images read at other places.

Resize: along each axis samples are taken, or weighted by a small matrix; beyond the image a crop replaces them.
GridSample: the samples around a place, weighted.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from deep500.frameworks.reference.operators.table import ints, op
from deep500.networks.attributes import Resizing
from deep500.networks.resampling import resize_steps

Array = np.ndarray


@op("Resize")
def resize(
    x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None, *, settings: Resizing
) -> Array:
    """The steps of each axis one after the other; whole numbers are weighted as float32."""
    ratios = None if scales is None else _floats(scales)
    steps = resize_steps(x.shape, _floats(roi), ratios, ints(sizes), settings)
    dtype, y = x.dtype, x
    for axis, places, matrix, outside in steps:
        if places is not None:
            y = np.take(y, places, axis)
        if matrix is not None:
            y = y if y.dtype.kind == "f" else y.astype(np.float32)
            y = np.moveaxis(np.tensordot(y, matrix.astype(y.dtype), ([axis], [1])), -1, axis)
        if outside is not None:
            beyond = outside.reshape([-1 if a == axis else 1 for a in range(y.ndim)])
            y = np.where(beyond, np.array(settings.extrapolation_value, y.dtype), y)
    return np.ascontiguousarray(y.astype(dtype, copy=False))


def _floats(value: Array | None) -> list[float]:
    return [] if value is None else [float(v) for v in np.ravel(value)]


# -- reading an image at any place -----------------------------------------------------------------------------------
def _fetch(x: Array, index: Sequence[Array], padding: str) -> Array:
    """``x[n, :, index...]`` for ``x`` [N, C, *sizes] and indices [N, ...]: [N, C, ...]; zeros outside, or the edge."""
    sizes = x.shape[2:]
    inside: Array = np.ones((), bool)
    for i, n in zip(index, sizes, strict=True):
        inside = inside & (i >= 0) & (i < n)
    clipped = [np.clip(i, 0, n - 1).astype(np.int64) for i, n in zip(index, sizes, strict=True)]
    batch = np.arange(x.shape[0]).reshape((-1,) + (1,) * (index[0].ndim - 1))
    picked = np.moveaxis(x, 1, -1)[(batch, *clipped)]
    if padding == "zeros":
        picked = np.where(inside[..., None], picked, 0)
    return np.moveaxis(picked, -1, 1)


def _reflect(at: Array, n: int, align: int) -> Array:
    """Fold coordinates back at the centres of the border samples, or at the samples' outer edges."""
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if span == 0:
        return np.zeros_like(at)
    folded = np.abs(at - low) % (2 * span)
    return np.where(folded > span, 2 * span - folded, folded) + low


def _fold_indices(index: Array, n: int, align: int) -> Array:
    return np.clip(np.rint(_reflect(index, n, align)), 0, n - 1)


def _keys(d: Array) -> Array:
    """Keys' cubic kernel with coefficient -0.75."""
    a = -0.75
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


@op("GridSample")
def grid_sample(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Array:
    """Read the image where the grid says, between -1 and 1; the grid's last axis counts the last spatial axis first."""
    sizes = x.shape[2:]
    places = []
    for i, n in enumerate(sizes):
        g = grid[..., len(sizes) - 1 - i].astype(x.dtype)
        at = (g + 1) / 2 * (n - 1) if align_corners else ((g + 1) * n - 1) / 2
        if padding_mode == "border" and mode != "cubic":
            at = np.clip(at, 0, n - 1)
        elif padding_mode == "reflection" and mode != "cubic":
            at = np.clip(_reflect(at, n, align_corners), 0, n - 1)
        places.append(at)
    if mode == "nearest":
        return _fetch(x, [np.rint(at) for at in places], padding_mode)
    span = range(-1, 3) if mode == "cubic" else range(2)
    total: Any = 0
    for offsets in itertools.product(span, repeat=len(sizes)):
        weight: Any = 1
        index = []
        for at, offset, n in zip(places, offsets, sizes, strict=True):
            cell = np.floor(at) + offset
            distance = np.abs(at - cell)
            weight = weight * (_keys(distance) if mode == "cubic" else 1 - distance)
            fold = mode == "cubic" and padding_mode == "reflection"
            index.append(_fold_indices(cell, n, align_corners) if fold else cell)
        total = total + _fetch(x, index, padding_mode) * weight[:, None]
    return total.astype(x.dtype)
