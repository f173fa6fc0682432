"""ONNX's GridSample, an image read at any place, for frameworks whose functions have NumPy's names and meanings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from deep500.networks.resampling import keys_cubic


def _fetch(xp: Any, x: Any, index: Sequence[Any], padding: str) -> Any:
    """``x[n, :, index...]`` for ``x`` [N, C, *sizes] and indices [N, ...]: [N, C, ...]; zeros outside, or the edge."""
    sizes = x.shape[2:]
    inside = xp.ones((), bool)
    for i, n in zip(index, sizes, strict=True):
        inside = inside & (i >= 0) & (i < n)
    clipped = [xp.clip(i, 0, n - 1).astype(np.int64) for i, n in zip(index, sizes, strict=True)]
    batch = np.arange(x.shape[0]).reshape((-1,) + (1,) * (index[0].ndim - 1))
    picked = xp.moveaxis(x, 1, -1)[(batch, *clipped)]
    if padding == "zeros":
        picked = xp.where(inside[..., None], picked, 0)
    return xp.moveaxis(picked, -1, 1)


def _reflect(xp: Any, at: Any, n: int, align: int) -> Any:
    """Fold coordinates back at the centres of the border samples, or at the samples' outer edges."""
    low, span = (0.0, n - 1.0) if align else (-0.5, float(n))
    if span == 0:
        return xp.zeros_like(at)
    folded = xp.abs(at - low) % (2 * span)
    return xp.where(folded > span, 2 * span - folded, folded) + low


def _fold_indices(xp: Any, index: Any, n: int, align: int) -> Any:
    return xp.clip(xp.rint(_reflect(xp, index, n, align)), 0, n - 1)


_CUBIC = -0.75
"""Coefficient of GridSample's cubic kernel."""


def grid_sample(
    xp: Any, x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Any:
    """Read the image where the grid says, between -1 and 1; the grid's last axis counts the last spatial axis first.

    Args:
        xp: the module of functions on arrays, ``numpy`` or one of its names and meanings.
        x: images [N, C, *sizes].
        grid: places [N, *outputs, axes].
        align_corners, mode, padding_mode: the operator's attributes.

    Example:
        >>> image, middle = np.arange(4.0).reshape(1, 1, 2, 2), np.zeros((1, 1, 1, 2))
        >>> grid_sample(np, image, middle).ravel().tolist()
        [1.5]
    """
    sizes = x.shape[2:]
    places = []
    for i, n in enumerate(sizes):
        g = grid[..., len(sizes) - 1 - i].astype(x.dtype)
        at = (g + 1) / 2 * (n - 1) if align_corners else ((g + 1) * n - 1) / 2
        if padding_mode == "border" and mode != "cubic":
            at = xp.clip(at, 0, n - 1)
        elif padding_mode == "reflection" and mode != "cubic":
            at = xp.clip(_reflect(xp, at, n, align_corners), 0, n - 1)
        places.append(at)
    if mode == "nearest":
        return _fetch(xp, x, [xp.rint(at) for at in places], padding_mode)
    span = range(-1, 3) if mode == "cubic" else range(2)
    total: Any = 0
    for offsets in itertools.product(span, repeat=len(sizes)):
        weight: Any = 1
        index = []
        for at, offset, n in zip(places, offsets, sizes, strict=True):
            cell = xp.floor(at) + offset
            distance = xp.abs(at - cell)
            weight = weight * (keys_cubic(distance, _CUBIC, xp) if mode == "cubic" else 1 - distance)
            fold = mode == "cubic" and padding_mode == "reflection"
            index.append(_fold_indices(xp, cell, n, align_corners) if fold else cell)
        total = total + _fetch(xp, x, index, padding_mode) * weight[:, None]
    return total.astype(x.dtype)
