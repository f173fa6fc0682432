"""Mean average precision of detections, as COCO defines it, picture by picture.

For each class and each threshold of overlap (0.5, 0.55, ... 0.95) detections are taken in the order of their scores;
one is right if an object of its class that no better one has taken overlaps it that much. Average precision is the
mean, over 101 levels of recall, of the best precision at that recall or beyond; the mean over classes that occur and
thresholds is the number that is called mAP (Lin et al. 2014, arXiv 1405.0312; pycocotools gives the same to the last
digits).

What is kept of a picture is a row for each detection, and counts of its objects, so that states of several processes
put together give what one process gives. Rows are :data:`COLUMNS` wide.
"""

from __future__ import annotations

import numpy as np

from deep500.errors import InputError
from deep500.tasks.boxes import intersection_over_union

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = 100
"""Detections of a class that count in one picture."""

COLUMNS = 3 + len(THRESHOLDS)
"""Class, score, number of the picture (which settles equal scores), and whether it is right at each threshold."""


def detection_rows(
    picture: int,
    boxes: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    true_boxes: np.ndarray,
    true_labels: np.ndarray,
) -> np.ndarray:
    """Rows of one picture: float64 (detections, :data:`COLUMNS`).

    Args:
        picture: its number in the data set.
        boxes, scores, labels: of the detections, (n, 4), (n,), (n,).
        true_boxes, true_labels: of the objects, (m, 4), (m,).

    Raises:
        InputError: lengths that differ, or a score that is no number.
    """
    if not len(boxes) == len(scores) == len(labels) or len(true_boxes) != len(true_labels):
        raise InputError(
            f"got {len(boxes)} boxes, {len(scores)} scores, {len(labels)} labels, {len(true_boxes)} true boxes, "
            f"{len(true_labels)} true labels; expected as many of each kind: one row per box"
        )
    if not np.isfinite(scores).all():
        raise InputError("got a score that is not finite; expected numbers: the network may have diverged")
    rows = [np.zeros((0, COLUMNS))]
    for label in np.unique(labels):
        mine, true = np.flatnonzero(labels == label), np.flatnonzero(true_labels == label)
        mine = mine[np.argsort(-scores[mine], kind="stable")[:MOST]]
        overlap = intersection_over_union(boxes[mine].astype(np.float64), true_boxes[true].astype(np.float64))
        known = [np.full(len(mine), label), scores[mine], np.full(len(mine), picture)]
        rows.append(np.concatenate([np.stack(known, axis=1), _hits(overlap)], axis=1))
    return np.concatenate(rows)


def average_precision(rows: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """Average precision (classes, thresholds) of the rows of all pictures, in any order of pictures.

    Args:
        rows: of :func:`detection_rows`, those of a picture in their order.
        objects: how many objects of each class there are; NaN is the value of a class without one.

    Example:
        >>> box = np.array([[0.0, 0.0, 4.0, 4.0]])
        >>> rows = detection_rows(0, box, np.array([0.9]), np.array([1]), box, np.array([1]))
        >>> average_precision(rows, np.array([0, 1])).mean(axis=1).round(9).tolist()
        [nan, 1.0]
    """
    rows = rows[np.lexsort([rows[:, 2], -rows[:, 1]])]
    precisions = np.full((len(objects), len(THRESHOLDS)), np.nan)
    for label in np.flatnonzero(objects):
        precisions[label] = _average(rows[rows[:, 0] == label, 3:] > 0, int(objects[label]))
    return precisions


def mean_over_classes(table: np.ndarray) -> float | None:
    """The mean of what is a number; None where nothing is."""
    return float(np.nanmean(table)) if np.isfinite(table).any() else None


def _hits(overlap: np.ndarray) -> np.ndarray:
    """Return which detections (rows, best first) are right at each threshold: (detections, thresholds)."""
    right = np.zeros((len(overlap), len(THRESHOLDS)), bool)
    if not overlap.size:
        return right
    free = np.ones((len(THRESHOLDS), overlap.shape[1]), bool)
    every = np.arange(len(THRESHOLDS))
    for detection, row in enumerate(overlap):
        allowed = np.where(free & (row >= np.minimum(THRESHOLDS, 1 - 1e-10)[:, None]), row, -1.0)
        # of objects that overlap alike the last is taken, as pycocotools does
        best = allowed.shape[1] - 1 - allowed[:, ::-1].argmax(axis=1)
        right[detection] = allowed[every, best] >= 0
        free[every, best] &= ~right[detection]
    return right


def _average(hits: np.ndarray, objects: int) -> np.ndarray:
    """Mean over levels of recall of the interpolated precision, at each threshold."""
    right = np.cumsum(hits, axis=0, dtype=np.float64)
    precision = right / (np.arange(len(hits)) + 1 + np.spacing(1))[:, None]
    precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    recall = right / objects
    average = np.zeros(hits.shape[1])
    for threshold in range(hits.shape[1]):
        places = np.searchsorted(recall[:, threshold], RECALLS, side="left")
        reached = places[places < len(hits)]
        average[threshold] = precision[reached, threshold].sum() / len(RECALLS)
    return average
