"""Resampling of images: Resize as one small matrix per axis, which covers every mode and is differentiable; others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.operators.table import ints, number, op, rank, scalar, static_sizes, value_of
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.attributes import Resizing, Sliding
from deep500.networks.execution.operator_table import positive
from deep500.networks.resampling import resize_steps
from deep500.networks.windows import make_transposed, make_window

Tensor = Any


@op("Resize", static=(1, 2, 3))
def resize(x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *, settings: Resizing) -> Tensor:
    chosen = list(range(rank(x))) if settings.axes is None else [positive(a, rank(x)) for a in settings.axes]
    ratios, crop = ints(scales), settings.coordinate_transformation_mode == "tf_crop_and_resize"
    for k, axis in enumerate(chosen):
        if not ratios or ratios[k] != 1 or crop:
            static_sizes(x, axis)  # must be known where it does not stay as it is
    steps = resize_steps(x.shape.as_list(), ints(roi) or [], ratios, ints(sizes), settings._replace(axes=chosen))
    dtype, y = x.dtype, x
    for axis, index, matrix, outside in steps:
        if index is not None:
            y = tf.gather(y, index, axis=axis)
        if matrix is not None:
            y = y if y.dtype.is_floating else tf.cast(y, tf.float32)
            y = tf.tensordot(y, number(matrix, y), [[axis], [1]])
            y = tf.transpose(y, [*range(axis), rank(x) - 1, *range(axis, rank(x) - 1)])
        if outside is not None:
            beyond = outside.reshape([-1 if i == axis else 1 for i in range(rank(x))])
            y = tf.where(beyond, number(settings.extrapolation_value, y), y)
    return tf.cast(y, dtype)


# -- GridSample -------------------------------------------------------------------------------------------------------
def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """Coordinates mirrored at both bounds until they lie between them."""
    span = number(high - low, x)
    if high <= low:
        return tf.zeros_like(x)
    away = tf.math.floormod(x - number(low, x), 2 * span)
    return number(low, x) + tf.where(away > span, 2 * span - away, away)


def _place(grid: Tensor, n: int, padding: str, corners: int) -> Tensor:
    """From [-1, 1] to samples, moved inside as the padding says (zeros: left where it is)."""
    x = (grid + 1) * number((n - 1) / 2, grid) if corners else ((grid + 1) * number(n, grid) - 1) / 2
    return _inside(x, n, padding, corners)


def _inside(x: Tensor, n: int, padding: str, corners: int) -> Tensor:
    if padding == "reflection":
        x = _reflected(x, 0, n - 1) if corners else _reflected(x, -0.5, n - 0.5)
    return x if padding == "zeros" else tf.clip_by_value(x, number(0, x), number(n - 1, x))


def _pick(x: Tensor, index: list[Tensor], sizes: list[int], zeros: bool) -> Tensor:
    """Samples of ``x`` [N, *sizes, C] at whole coordinates [N, points]; zero outside where that is asked for."""
    valid = tf.ones_like(index[0], tf.bool)
    flat: Any = tf.zeros_like(index[0], tf.int64)
    for i, n in zip(index, sizes, strict=True):
        valid = tf.logical_and(valid, tf.logical_and(i >= 0, i <= n - 1))
        flat = flat * n + tf.cast(tf.clip_by_value(i, number(0, i), number(n - 1, i)), tf.int64)
    picked = tf.gather(tf.reshape(x, [tf.shape(x)[0], math.prod(sizes), x.shape[-1]]), flat, batch_dims=1)
    return tf.where(tf.expand_dims(valid, -1), picked, number(0, picked)) if zeros else picked


@op("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """Samples at places that ``grid`` gives, the last axis first; any number of spatial axes."""
    places, channels = static_sizes(x)[2:], x.shape[1]
    d = len(places)
    last = tf.transpose(x, [0, *range(2, d + 2), 1])
    grid = tf.cast(grid, x.dtype)
    shape = tf.shape(grid)
    at = tf.reshape(grid, [shape[0], -1, d])
    zeros = padding_mode == "zeros"
    early = "zeros" if mode == "cubic" else padding_mode  # cubic moves its sixteen samples, not their centre
    where = [_place(at[..., d - 1 - a], places[a], early, align_corners) for a in range(d)]
    if mode == "nearest":
        total = _pick(last, [tf.round(w) for w in where], places, zeros)
    else:
        total = _blend(last, where, places, mode, padding_mode, align_corners)
    y = tf.reshape(total, tf.concat([shape[:-1], [channels]], 0))
    y.set_shape([x.shape[0], *grid.shape[1:-1], channels])
    return tf.transpose(y, [0, d + 1, *range(1, d + 1)])


def _blend(last: Tensor, where: list[Tensor], places: list[int], mode: str, padding: str, corners: int) -> Tensor:
    """Weighted sum over the samples around each place."""
    taps = [(0, 1)] * len(where) if mode == "linear" else [(-1, 0, 1, 2)] * len(where)
    floors = [tf.floor(w) for w in where]
    total: Any = 0
    for offsets in np.array(np.meshgrid(*taps, indexing="ij")).reshape(len(where), -1).T:
        weight: Any = 1
        for w, f, o in zip(where, floors, offsets, strict=True):
            distance = tf.abs(w - f - number(o, w))
            weight = weight * (1 - distance if mode == "linear" else _keys(distance))
        index = [f + number(o, f) for f, o in zip(floors, offsets, strict=True)]
        if padding != "zeros":
            index = [tf.round(_inside(i, n, padding, corners)) for i, n in zip(index, places, strict=True)]
        total = total + _pick(last, index, places, padding == "zeros") * tf.expand_dims(weight, -1)
    return total


def _keys(d: Tensor) -> Tensor:
    """Keys' cubic kernel with coefficient -0.75."""
    a = -0.75
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
    return tf.where(d <= 1, near, tf.where(d < 2, far, tf.zeros_like(d)))


# -- others -----------------------------------------------------------------------------------------------------------
@op("MaxUnpool", static=(2,))
def max_unpool(x: Tensor, indices: Tensor, shape: Any = None, *, settings: Sliding) -> Tensor:
    before = static_sizes(x)
    sizes = make_transposed(before[2:], settings.kernel_shape, settings).out
    after = ints(shape) or [*before[:2], *sizes]
    count = before[0] * before[1] * math.prod(sizes)
    flat = tf.scatter_nd(tf.reshape(indices, [-1, 1]), tf.reshape(x, [-1]), tf.constant([count], tf.int64))
    y = tf.reshape(flat, [*before[:2], *sizes])
    return tf.pad(y, [(0, 0), (0, 0), *((0, w - n) for w, n in zip(after[2:], sizes, strict=True))])


@op("Col2Im", static=(1, 2))
def col2im(x: Tensor, image: Any, block: Any, *, settings: Sliding) -> Tensor:
    sizes, kernel = ints(image) or [], ints(block) or []
    window = make_window(sizes, kernel, settings)
    full = [n + b + e for n, b, e in zip(sizes, window.begin, window.end, strict=True)]
    flat = np.arange(math.prod(full)).reshape(full)
    windows = np.lib.stride_tricks.sliding_window_view(flat, window.reach)
    windows = windows[
        tuple(slice(None, None, s) for s in window.strides) + tuple(slice(None, None, e) for e in window.dilations)
    ]
    places = windows.reshape(-1, math.prod(kernel)).T.reshape(-1)  # [kernel * positions]
    n, c, _ = static_sizes(x)
    columns = tf.transpose(tf.reshape(x, [n * (c // math.prod(kernel)), -1]))
    y = tf.math.unsorted_segment_sum(columns, places, math.prod(full))
    y = tf.reshape(tf.transpose(y), [n, c // math.prod(kernel), *full])
    return y[(slice(None), slice(None), *(slice(b, b + m) for b, m in zip(window.begin, sizes, strict=True)))]


@op("NonMaxSuppression", static=(2, 3, 4))
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    limit: Any = None,
    iou: Any = None,
    threshold: Any = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """Greedy selection per batch and class; rows are (batch, class, box). How many there are only a run knows."""
    most, overlap, least = int(scalar(limit, 0)), scalar(iou, 0.0), scalar(threshold, float("-inf"))
    box, score = value_of(boxes), value_of(scores)
    if center_point_box:
        low, high = box[..., :2] - box[..., 2:] / 2, box[..., :2] + box[..., 2:] / 2
    else:
        low, high = np.minimum(box[..., :2], box[..., 2:]), np.maximum(box[..., :2], box[..., 2:])
    chosen = []
    for b in range(score.shape[0]):
        extent = np.clip(np.minimum(high[b, :, None], high[b]) - np.maximum(low[b, :, None], low[b]), 0, None)
        shared, area = extent.prod(-1), (high[b] - low[b]).prod(-1)
        ious = shared / (area[:, None] + area - shared)
        for c in range(score.shape[1]):
            picked: list[int] = []
            for i in np.argsort(-score[b, c], kind="stable").tolist():
                if len(picked) < most and score[b, c, i] > least and all(ious[i, j] <= overlap for j in picked):
                    picked.append(i)
            chosen += [(b, c, i) for i in picked]
    return tf.constant(np.array(chosen, np.int64).reshape(-1, 3))
