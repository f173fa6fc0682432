"""Resampling of images: Resize as one small matrix per axis, which covers every mode and has gradients; GridSample,
RoiAlign and DeformConv by reading an image at any place; NonMaxSuppression, which must know its boxes beforehand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.dtypes import is_float
from deep500.frameworks.jax.operators.table import Array, ints, op, scalar
from deep500.networks.attributes import Resizing
from deep500.networks.resampling import resize_steps


def _floats(value: Any) -> list[float]:
    return [] if value is None else [float(v) for v in np.ravel(value)]


@op("Resize", static=(1, 2, 3))
def resize(x: Array, roi: Any = None, scales: Any = None, sizes: Any = None, *, settings: Resizing) -> Array:
    steps = resize_steps(x.shape, _floats(roi), _floats(scales), ints(sizes), settings)
    dtype, y = x.dtype, x
    for axis, index, matrix, outside in steps:
        if index is not None:
            y = jnp.take(y, index, axis)
        if matrix is not None:
            y = y if is_float(y) else y.astype(np.float32)
            y = jnp.moveaxis(jnp.tensordot(y, matrix.astype(y.dtype), ([axis], [1])), -1, axis)
        if outside is not None:
            beyond = outside.reshape([-1 if i == axis else 1 for i in range(y.ndim)])
            y = jnp.where(beyond, np.array(settings.extrapolation_value, y.dtype), y)
    return y.astype(dtype)


# -- reading an image at any place -----------------------------------------------------------------------------------
def _fetch(x: Array, index: Sequence[Array], padding: str) -> Array:
    """``x[n, :, index...]`` for ``x`` [N, C, *sizes] and indices [N, ...]: [N, C, ...]; zeros outside, or the edge."""
    sizes = x.shape[2:]
    inside = jnp.ones((), bool)
    for i, n in zip(index, sizes, strict=True):
        inside = inside & (i >= 0) & (i < n)
    clipped = [jnp.clip(i, 0, n - 1).astype(np.int64) for i, n in zip(index, sizes, strict=True)]
    batch = np.arange(x.shape[0]).reshape((-1,) + (1,) * (index[0].ndim - 1))
    picked = jnp.moveaxis(x, 1, -1)[(batch, *clipped)]
    if padding == "zeros":
        picked = jnp.where(inside[..., None], picked, 0)
    return jnp.moveaxis(picked, -1, 1)


def _reflect(at: Array, n: int, align: int) -> Array:
    """Fold coordinates back at the centres of the border samples, or at the samples' outer edges."""
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if span == 0:
        return jnp.zeros_like(at)
    folded = jnp.abs(at - low) % (2 * span)
    return jnp.where(folded > span, 2 * span - folded, folded) + low


def _fold_indices(index: Array, n: int, align: int) -> Array:
    return jnp.clip(jnp.rint(_reflect(index, n, align)), 0, n - 1)


def _keys(d: Array) -> Array:
    """Keys' cubic kernel with coefficient -0.75."""
    a = -0.75
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
    return jnp.where(d <= 1, near, jnp.where(d < 2, far, 0))


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
            at = jnp.clip(at, 0, n - 1)
        elif padding_mode == "reflection" and mode != "cubic":
            at = jnp.clip(_reflect(at, n, align_corners), 0, n - 1)
        places.append(at)
    if mode == "nearest":
        return _fetch(x, [jnp.rint(at) for at in places], padding_mode)
    span = range(-1, 3) if mode == "cubic" else range(2)
    total: Any = 0
    for offsets in itertools.product(span, repeat=len(sizes)):
        weight: Any = 1
        index = []
        for at, offset, n in zip(places, offsets, sizes, strict=True):
            cell = jnp.floor(at) + offset
            distance = jnp.abs(at - cell)
            weight = weight * (_keys(distance) if mode == "cubic" else 1 - distance)
            fold = mode == "cubic" and padding_mode == "reflection"
            index.append(_fold_indices(cell, n, align_corners) if fold else cell)
        total = total + _fetch(x, index, padding_mode) * weight[:, None]
    return total.astype(x.dtype)


@op("NonMaxSuppression", static=(0, 1, 2, 3, 4), host=True)
def non_max_suppression(
    boxes: Array, scores: Array, limit: Any = None, iou: Any = None, threshold: Any = None, *, center_point_box: int = 0
) -> Array:
    """Greedy selection per batch and class; rows are (batch, class, box)."""
    most, overlap, least = int(scalar(limit, 0)), scalar(iou, 0.0), scalar(threshold, float("-inf"))
    if center_point_box:
        centre, size = boxes[..., :2], boxes[..., 2:]
        low, high = centre - size / 2, centre + size / 2
    else:
        low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
    chosen = []
    for b, c in np.ndindex(scores.shape[:2]):
        extent = np.clip(np.minimum(high[b, :, None], high[b]) - np.maximum(low[b, :, None], low[b]), 0, None)
        shared, area = extent.prod(-1), (high[b] - low[b]).prod(-1)
        ious = shared / (area[:, None] + area - shared)
        picked: list[int] = []
        for i in np.argsort(-scores[b, c], kind="stable").tolist():
            if len(picked) < most and scores[b, c, i] > least and all(ious[i, j] <= overlap for j in picked):
                picked.append(i)
        chosen += [(b, c, i) for i in picked]
    return np.array(chosen, np.int64).reshape(-1, 3)
