"""Resampling of images: Resize as one small matrix per axis, which covers every mode and has gradients; GridSample."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from deep500.frameworks.pytorch.operators.table import ints, op, scalar
from deep500.networks.attributes import Resizing
from deep500.networks.resampling import resize_steps

Tensor = torch.Tensor


@op("Resize", static=(1, 2, 3))
def resize(x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None, *, settings: Resizing) -> Tensor:
    steps = resize_steps(x.shape, ints(roi) or [], ints(scales), ints(sizes), settings)
    dtype, y = x.dtype, x
    for axis, index, matrix, outside in steps:
        if index is not None:
            y = y.index_select(axis, torch.from_numpy(index).to(y.device))
        if matrix is not None:
            y = y if y.is_floating_point() else y.float()
            weights = torch.from_numpy(matrix).to(dtype=y.dtype, device=y.device)
            y = torch.tensordot(y, weights, ([axis], [1])).movedim(-1, axis)
        if outside is not None:
            beyond = torch.from_numpy(outside).to(y.device)
            y = torch.where(
                beyond.reshape([-1 if i == axis else 1 for i in range(y.ndim)]), settings.extrapolation_value, y
            )
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
    return _keep(low.detach(), high.detach(), scores.detach(), most, overlap, least)


@torch.library.custom_op("deep500::keep_boxes", mutates_args=())
def _keep(low: Tensor, high: Tensor, scores: Tensor, most: int, overlap: float, least: float) -> Tensor:
    """By NumPy, on the processor: which box comes next depends on those before. torch.compile calls it as it is."""
    lows, highs, values = (t.detach().cpu().numpy() for t in (low, high, scores))
    chosen = list[tuple[int, int, int]]()
    for b in range(values.shape[0]):
        area = (highs[b] - lows[b]).prod(-1)
        for c in range(values.shape[1]):
            order = np.argsort(-values[b, c], kind="stable")
            order = order[values[b, c, order] > least]
            count = 0
            while order.size and count < most:
                first, order = order[0], order[1:]
                chosen.append((b, c, int(first)))
                count += 1
                corners = np.minimum(highs[b, first], highs[b, order]), np.maximum(lows[b, first], lows[b, order])
                shared = np.clip(corners[0] - corners[1], 0, None).prod(-1)
                with np.errstate(invalid="ignore", divide="ignore"):
                    order = order[shared / (area[first] + area[order] - shared) <= overlap]
    return torch.tensor(chosen, dtype=torch.int64, device=low.device).reshape(-1, 3)


@_keep.register_fake
def _(low: Tensor, high: Tensor, scores: Tensor, most: int, overlap: float, least: float) -> Tensor:
    return low.new_empty((torch.library.get_ctx().new_dynamic_size(), 3), dtype=torch.int64)
