"""Boxes: overlap, anchors, which anchor answers for which object, offsets, and non-maximum suppression.

A box is (x1, y1, x2, y2) in pixels: x to the right, y down, the end outside of the box, so that x2 - x1 is its width.
Everything is vectorised over boxes, in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deep500.errors import InputError

VARIANCES = (0.1, 0.1, 0.2, 0.2)
"""Divisors of offsets, so that a network's outputs are of the size of 1 (Liu et al. 2016, SSD's code)."""

LONGEST = math.log(1000 / 16)
"""Offsets of sizes are cut here: a box is at most 62 times as large as its anchor (as in torchvision)."""


def areas(boxes: np.ndarray) -> np.ndarray:
    """Width times height of boxes (..., 4); 0 where a box has no area."""
    size = np.clip(boxes[..., 2:] - boxes[..., :2], 0, None)
    return size[..., 0] * size[..., 1]


def intersection_over_union(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Overlap of every box of ``a`` (n, 4) with every box of ``b`` (m, 4): (n, m), 0 where neither has an area.

    Example:
        >>> intersection_over_union(np.array([[0, 0, 2, 2]]), np.array([[1, 0, 3, 2], [5, 5, 6, 6]])).round(3).tolist()
        [[0.333, 0.0]]
    """
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    inner = areas(np.concatenate([low, high], axis=-1))
    whole = areas(a)[:, None] + areas(b)[None] - inner
    return np.divide(inner, whole, out=np.zeros_like(whole, dtype=np.result_type(whole, 0.0)), where=whole > 0)


def anchor_grid(
    image: tuple[int, int], stride: int, sizes: Sequence[float], ratios: Sequence[float] = (1.0,)
) -> np.ndarray:
    """Boxes around the centres of the cells of a feature map, in the order (row, column, size, ratio).

    Args:
        image: height and width in pixels.
        stride: pixels of a cell.
        sizes: square roots of areas, in pixels.
        ratios: height over width.

    Returns:
        float32 (rows * columns * len(sizes) * len(ratios), 4).

    Example:
        >>> anchor_grid((4, 8), 4, [2.0]).tolist()
        [[1.0, 1.0, 3.0, 3.0], [5.0, 1.0, 7.0, 3.0]]
    """
    rows, columns = (-(-extent // stride) for extent in image)
    y, x = np.meshgrid((np.arange(rows) + 0.5) * stride, (np.arange(columns) + 0.5) * stride, indexing="ij")
    centres = np.stack([x, y], axis=-1).reshape(-1, 1, 2)
    roots = np.sqrt(np.asarray(ratios, np.float64))
    halves = np.array([(size / root / 2, size * root / 2) for size in sizes for root in roots])[None]
    return np.concatenate([centres - halves, centres + halves], axis=-1).reshape(-1, 4).astype(np.float32)


def encode(boxes: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Offsets of boxes from their anchors: shift of the centre over the anchor's size, log ratio of the sizes.

    Girshick et al. 2014, appendix C, divided by :data:`VARIANCES`. :func:`decode` is the inverse.
    """
    centre, size = _centre_size(boxes)
    middle, extent = _centre_size(anchors)
    shift = (centre - middle) / extent
    return (np.concatenate([shift, np.log(size / extent)], axis=-1) / VARIANCES).astype(np.float32)


def decode(offsets: np.ndarray, anchors: np.ndarray) -> np.ndarray:
    """Boxes (..., anchors, 4) of offsets.

    Example:
        >>> anchors = anchor_grid((8, 8), 4, [4.0])
        >>> boxes = anchors + np.float32([0, 1, 2, 1])
        >>> bool(np.allclose(decode(encode(boxes, anchors), anchors), boxes, atol=1e-5))
        True
    """
    middle, extent = _centre_size(anchors)
    scaled = offsets * np.asarray(VARIANCES, offsets.dtype)
    centre = middle + scaled[..., :2] * extent
    half = extent * np.exp(np.minimum(scaled[..., 2:], LONGEST)) / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def _centre_size(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]


def match(
    boxes: np.ndarray, there: np.ndarray, anchors: np.ndarray, positive: float = 0.5, negative: float = 0.4
) -> np.ndarray:
    """Match each anchor with the object that it answers for, in every picture of a batch.

    An anchor answers for the object that it overlaps most, from ``positive`` on; below ``negative`` it is background,
    in between it is not judged. The anchor that overlaps an object most answers for it in any case (Liu et al. 2016,
    section 2.2), where one does; where it is the best one of several, for the last of them.

    Args:
        boxes: (pictures, objects, 4).
        there: (pictures, objects): whether there is such an object, or padding.
        anchors: (anchors, 4).
        positive, negative: intersection over union.

    Returns:
        int64 (pictures, anchors): the number of the object, -1 background, -2 not judged.

    Example:
        >>> anchors = np.array([[0, 0, 4, 4], [0, 0, 4, 9], [8, 8, 12, 12]])
        >>> match(np.array([[[0, 0, 4, 4]]]), np.ones((1, 1), bool), anchors).tolist()
        [[0, -2, -1]]
    """
    pictures, objects = there.shape
    answers = np.full((pictures, len(anchors)), -1, np.int64)
    if not objects:
        return answers
    overlap = intersection_over_union(anchors, boxes.reshape(-1, 4)).reshape(len(anchors), pictures, objects)
    overlap = np.where(there[None], overlap, -1.0)
    best, which = overlap.max(axis=2).T, overlap.argmax(axis=2).T
    answers[best >= negative] = -2
    np.copyto(answers, which, where=best >= positive)
    nearest = overlap.argmax(axis=0)
    picture, number = np.nonzero(there & (overlap.max(axis=0, initial=0.0) > 0))
    answers[picture, nearest[picture, number]] = number
    return answers


def suppress(boxes: np.ndarray, scores: np.ndarray, threshold: float = 0.5, most: int | None = None) -> np.ndarray:
    """Non-maximum suppression: positions of the boxes that stay, highest score first; ties by position.

    A box stays unless one that stays, with a higher score, overlaps it by more than ``threshold``.

    Args:
        boxes: (n, 4).
        scores: (n,).
        threshold: of intersection over union.
        most: at most so many stay; None: no limit.

    Example:
        >>> boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 5], [8, 8, 9, 9]])
        >>> suppress(boxes, np.array([0.5, 0.9, 0.1])).tolist()
        [1, 2]
    """
    if boxes.shape != (len(scores), 4):
        raise InputError(f"got boxes of shape {boxes.shape} and {len(scores)} scores; expected (n, 4) and n")
    order = np.argsort(-scores, kind="stable")
    overlap = intersection_over_union(boxes[order], boxes[order]) > threshold
    alive, staying = np.ones(len(order), bool), []
    for position in range(len(order)):
        if alive[position]:
            staying.append(position)
            if most is not None and len(staying) >= most:
                break
            alive[position + 1 :] &= ~overlap[position, position + 1 :]
    return order[staying]


def suppress_by_class(
    boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, threshold: float = 0.5, most: int | None = None
) -> np.ndarray:
    """:func:`suppress` within each class: boxes of other classes are moved so far apart that they do not overlap."""
    if not len(boxes):
        return np.zeros(0, np.intp)
    apart = (labels * (boxes.max() - boxes.min() + 1))[:, None]
    return suppress(boxes + apart, scores, threshold, most)
