"""Resampling of images: Resize as one small matrix per axis, which covers every mode and has gradients; GridSample,
RoiAlign and DeformConv by reading an image at any place; NonMaxSuppression, which must know its boxes beforehand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.dtypes import is_float
from deep500.frameworks.jax.operators.table import Array, ints, op, positive, scalar

NEAREST: dict[str, Any] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _coordinates(mode: str, n: int, out: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Where each output sample lies, in units of input samples."""
    i = np.arange(out, dtype=np.float64)
    half, (start, end) = (i + 0.5) / scale - 0.5, roi
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (n - 1) / (scale * n - 1) if scale * n > 1 else i * 0
    if mode == "pytorch_half_pixel":
        return half if out > 1 else i * 0
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - out / (scale * n)) + half
    if mode == "tf_crop_and_resize" and out > 1:
        return start * (n - 1) + i * (end - start) * (n - 1) / (out - 1)
    return i + 0.5 * (start + end) * (n - 1) if mode == "tf_crop_and_resize" else half


def _triangle(d: np.ndarray, a: float) -> np.ndarray:
    return np.clip(1 - d, 0, None)


def _cubic(d: Any, a: float) -> Any:
    """Keys 1981 with coefficient ``a``."""
    lib = np if isinstance(d, np.ndarray) else jnp
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
    return lib.where(d <= 1, near, lib.where(d < 2, far, 0))


KERNELS: dict[str, tuple[Any, int]] = {"linear": (_triangle, 1), "cubic": (_cubic, 2)}


def _matrix(mode: str, x: np.ndarray, n: int, scale: float, a: float, exclude: int, antialias: int) -> np.ndarray:
    """Weights ``[outputs, inputs]``: beyond the edge counts the edge, or nothing under ``exclude_outside``."""
    kernel, reach = KERNELS[mode]
    shrink = min(scale, 1.0) if antialias else 1.0
    radius = math.ceil(reach / shrink)
    j = np.floor(x)[:, None] + np.arange(-radius, radius + 2)
    weights = kernel(np.abs(j - x[:, None]) * shrink, a)
    if exclude:
        weights = np.where((j < 0) | (j >= n), 0, weights)
    if exclude or antialias:
        weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros((len(x), n))
    np.add.at(matrix, (np.arange(len(x))[:, None], np.clip(j, 0, n - 1).astype(int)), weights)
    return matrix


def _plan(shape: Any, axes: list[int], scales: Any, sizes: Any, policy: str) -> tuple[list[float], list[int]]:
    """Scale and output size per axis."""
    if sizes:
        ratios = [s / shape[a] for s, a in zip(sizes, axes, strict=True)]
        if policy == "stretch":
            return ratios, list(sizes)
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        return [scale] * len(axes), [math.floor(scale * shape[a] + 0.5) for a in axes]
    return list(scales), [math.floor(shape[a] * s) for s, a in zip(scales, axes, strict=True)]


def _floats(value: Any) -> list[float]:
    return [] if value is None else [float(v) for v in np.ravel(value)]


@op("Resize", static=(1, 2, 3))
def resize(
    x: Array, roi: Any = None, scales: Any = None, sizes: Any = None, *, antialias: int = 0, axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:  # fmt: skip
    chosen = list(range(x.ndim)) if axes is None else [positive(a, x.ndim) for a in axes]
    ratios, outs = _plan(x.shape, chosen, _floats(scales), ints(sizes), keep_aspect_ratio_policy)
    bounds = _floats(roi) or [0.0] * len(chosen) + [1.0] * len(chosen)
    dtype, y, crop = x.dtype, x, coordinate_transformation_mode == "tf_crop_and_resize"
    for k, (axis, scale, out) in enumerate(zip(chosen, ratios, outs, strict=True)):
        n = x.shape[axis]
        if out == n and scale == 1 and not crop:
            continue
        at = _coordinates(coordinate_transformation_mode, n, out, scale, (bounds[k], bounds[k + len(chosen)]))
        if mode == "nearest":
            y = jnp.take(y, np.clip(NEAREST[nearest_mode](at), 0, n - 1).astype(np.int64), axis)
        else:
            y = y if is_float(y) else y.astype(np.float32)
            matrix = _matrix(mode, at, n, scale, cubic_coeff_a, exclude_outside, antialias).astype(y.dtype)
            y = jnp.moveaxis(jnp.tensordot(y, matrix, ([axis], [1])), -1, axis)
        if crop:
            outside = ((at < 0) | (at > n - 1)).reshape([-1 if i == axis else 1 for i in range(y.ndim)])
            y = jnp.where(outside, np.array(extrapolation_value, y.dtype), y)
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
    found = jnp.moveaxis(x, 1, -1)[(batch, *clipped)]
    if padding == "zeros":
        found = jnp.where(inside[..., None], found, 0)
    return jnp.moveaxis(found, -1, 1)


def _reflect(at: Array, n: int, align: int) -> Array:
    """Fold coordinates back at the centres of the border samples, or at the samples' outer edges."""
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if span == 0:
        return jnp.zeros_like(at)
    folded = jnp.abs(at - low) % (2 * span)
    return jnp.where(folded > span, 2 * span - folded, folded) + low


def _fold_indices(index: Array, n: int, align: int) -> Array:
    return jnp.clip(jnp.rint(_reflect(index, n, align)), 0, n - 1)


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
            weight = weight * (_cubic(distance, -0.75) if mode == "cubic" else 1 - distance)
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
        kept: list[int] = []
        for i in np.argsort(-scores[b, c], kind="stable").tolist():
            if len(kept) < most and scores[b, c, i] > least and all(ious[i, j] <= overlap for j in kept):
                kept.append(i)
        chosen += [(b, c, i) for i in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)
