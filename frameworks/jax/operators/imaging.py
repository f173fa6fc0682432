"""Resampling of images: Resize as one small matrix per axis, which covers every mode and has gradients; GridSample by
reading an image at any place; NonMaxSuppression, which must know its boxes beforehand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.dtypes import is_float
from deep500.frameworks.jax.operators.table import Array, ints, op, scalar
from deep500.networks import grid_sampling
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


@op("GridSample")
def grid_sample(
    x: Array, grid: Array, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Array:
    """See :func:`deep500.networks.grid_sampling.grid_sample`."""
    return grid_sampling.grid_sample(jnp, x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


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
