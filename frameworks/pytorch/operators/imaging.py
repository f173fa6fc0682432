"""Resampling of images: Resize as one small matrix per axis, which covers every mode and has gradients; GridSample."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from deep500.frameworks.pytorch.operators.table import ints, op, positive, scalar

Tensor = torch.Tensor
NEAREST: dict[str, Any] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _coordinates(mode: str, n: int, out: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Where each output sample lies, in units of input samples."""
    i = np.arange(out, dtype=np.float64)
    half = (i + 0.5) / scale - 0.5
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        return i * (n - 1) / (scale * n - 1) if scale * n > 1 else i * 0
    if mode == "pytorch_half_pixel":
        return half if out > 1 else i * 0
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - out / (scale * n)) + half
    if mode == "tf_crop_and_resize":
        start, end = roi
        return (
            start * (n - 1) + i * (end - start) * (n - 1) / (out - 1) if out > 1 else i + 0.5 * (start + end) * (n - 1)
        )
    return half


def _triangle(d: np.ndarray, a: float) -> np.ndarray:
    return np.clip(1 - d, 0, None)


def _cubic(d: np.ndarray, a: float) -> np.ndarray:
    """Keys 1981 with coefficient ``a``."""
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


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


@op("Resize", static=(1, 2, 3))
def resize(
    x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *, antialias: int = 0, axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    chosen = list(range(x.ndim)) if axes is None else [positive(a, x.ndim) for a in axes]
    ratios, outs = _plan(x.shape, chosen, ints(scales), ints(sizes), keep_aspect_ratio_policy)
    bounds = ints(roi) or [0.0] * len(chosen) + [1.0] * len(chosen)
    dtype, y = x.dtype, x
    for k, (axis, scale, out) in enumerate(zip(chosen, ratios, outs, strict=True)):
        n = x.shape[axis]
        crop = coordinate_transformation_mode == "tf_crop_and_resize"
        if out == n and scale == 1 and not crop:
            continue
        at = _coordinates(coordinate_transformation_mode, n, out, scale, (bounds[k], bounds[k + len(chosen)]))
        if mode == "nearest":
            index = np.clip(NEAREST[nearest_mode](at), 0, n - 1).astype(np.int64)
            y = y.index_select(axis, torch.from_numpy(index).to(y.device))
        else:
            y = y if y.is_floating_point() else y.float()
            matrix = _matrix(mode, at, n, scale, cubic_coeff_a, exclude_outside, antialias)
            weights = torch.from_numpy(matrix).to(dtype=y.dtype, device=y.device)
            y = torch.tensordot(y, weights, ([axis], [1])).movedim(-1, axis)
        if crop:
            outside = torch.from_numpy((at < 0) | (at > n - 1)).to(y.device)
            y = torch.where(outside.reshape([-1 if i == axis else 1 for i in range(y.ndim)]), extrapolation_value, y)
    return y.to(dtype)


@op("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    return F.grid_sample(x, grid.to(x.dtype), names.get(mode, mode), padding_mode, bool(align_corners))


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
    """Greedy selection per batch and class; rows are (batch, class, box)."""
    most, overlap, least = int(scalar(limit, 0)), scalar(iou, 0.0), scalar(threshold, float("-inf"))
    if center_point_box:
        centre, size = boxes[..., :2], boxes[..., 2:]
        low, high = centre - size / 2, centre + size / 2
    else:
        low, high = torch.minimum(boxes[..., :2], boxes[..., 2:]), torch.maximum(boxes[..., :2], boxes[..., 2:])
    chosen = []
    for b in range(scores.shape[0]):
        extent = (torch.minimum(high[b, :, None], high[b]) - torch.maximum(low[b, :, None], low[b])).clamp(min=0)
        shared, area = extent.prod(-1), (high[b] - low[b]).prod(-1)
        ious = shared / (area[:, None] + area - shared)
        for c in range(scores.shape[1]):
            kept: list[int] = []
            for i in torch.argsort(scores[b, c], descending=True, stable=True).tolist():
                if len(kept) < most and scores[b, c, i] > least and all(ious[i, j] <= overlap for j in kept):
                    kept.append(i)
            chosen += [(b, c, i) for i in kept]
    return torch.tensor(chosen, dtype=torch.int64, device=boxes.device).reshape(-1, 3)
