"""Mean average precision of detections, as COCO defines it, picture by picture.

For each class and each threshold of overlap (0.5, 0.55, ... 0.95) detections are taken in the order of their scores; one
is right if an object of its class that no better one has taken overlaps it that much. Average precision is the mean, over
101 levels of recall, of the best precision at that recall or beyond; the mean over classes that occur and thresholds is
the number that is called mAP (Lin et al. 2014, arXiv 1405.0312; pycocotools gives the same to the last digits).

What is kept of a picture are its detections' classes, scores and hits, 100 per class at most, and counts of its objects,
so states of several processes put together give what one process gives.
"""

from __future__ import annotations

import numpy as np

from deep500.errors import InputError
from deep500.tasks.boxes import intersection_over_union

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
MOST = 100
"""Detections of a class that count in one picture."""


class AveragePrecision:
    """Sums up pictures.

    Args:
        classes: their number.

    Example:
        >>> found = AveragePrecision(classes=2)
        >>> box = np.array([[0.0, 0.0, 4.0, 4.0]])
        >>> found.add(box, np.array([0.9]), np.array([1]), box, np.array([1]))
        >>> round(found.value(), 9), round(found.at(0.5), 9)
        (1.0, 1.0)
    """

    def __init__(self, classes: int) -> None:
        self.objects = np.zeros(classes, np.int64)
        self.pictures = 0
        self._labels: list[np.ndarray] = []
        self._scores: list[np.ndarray] = []
        self._hits: list[np.ndarray] = []

    def add(
        self, boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, true_boxes: np.ndarray, true_labels: np.ndarray
    ) -> None:
        """One picture: its detections (n, 4), (n,), (n,), and its objects (m, 4), (m,).

        Raises:
            InputError: lengths that differ, a class that does not exist, or a score that is no number.
        """
        if not len(boxes) == len(scores) == len(labels) or len(true_boxes) != len(true_labels):
            raise InputError(
                f"got {len(boxes)} boxes, {len(scores)} scores, {len(labels)} labels, {len(true_boxes)} true boxes, "
                f"{len(true_labels)} true labels; expected as many of each kind: one row per box"
            )
        both = np.concatenate([labels, true_labels]).astype(np.int64)
        if both.size and not 0 <= both.min() <= both.max() < len(self.objects):
            raise InputError(f"got class {both.max()}; expected 0 <= class < {len(self.objects)}: correct the labels")
        if not np.isfinite(scores).all():
            raise InputError("got a score that is not finite; expected numbers: the network may have diverged")
        self.pictures += 1
        self.objects += np.bincount(np.asarray(true_labels, np.int64), minlength=len(self.objects))
        for label in np.unique(labels):
            mine, true = np.flatnonzero(labels == label), np.flatnonzero(true_labels == label)
            mine = mine[np.argsort(-scores[mine], kind="stable")[:MOST]]
            overlap = intersection_over_union(boxes[mine].astype(np.float64), true_boxes[true].astype(np.float64))
            self._labels.append(np.full(len(mine), label, np.int32))
            self._scores.append(np.asarray(scores[mine], np.float64))
            self._hits.append(_hits(overlap))

    def state(self) -> dict[str, np.ndarray]:
        """What :meth:`merge` takes: arrays, of which those of several processes can be put together."""
        return {
            "objects": self.objects,
            "pictures": np.array(self.pictures),
            "labels": np.concatenate([np.zeros(0, np.int32), *self._labels]),
            "scores": np.concatenate([np.zeros(0, np.float64), *self._scores]),
            "hits": np.concatenate([np.zeros((0, len(THRESHOLDS)), bool), *self._hits]),
        }

    def merge(self, state: dict[str, np.ndarray]) -> None:
        """Add what another one has seen, after what this one has."""
        self.objects = self.objects + state["objects"]
        self.pictures += int(state["pictures"])
        self._labels.append(state["labels"])
        self._scores.append(state["scores"])
        self._hits.append(state["hits"])

    def table(self) -> np.ndarray:
        """Average precision (classes, thresholds); NaN for classes without objects."""
        state = self.state()
        order = np.argsort(-state["scores"], kind="stable")
        labels, hits = state["labels"][order], state["hits"][order]
        found = np.full((len(self.objects), len(THRESHOLDS)), np.nan)
        for label in np.flatnonzero(self.objects):
            found[label] = _average(hits[labels == label], int(self.objects[label]))
        return found

    def value(self) -> float | None:
        """The mean over classes and thresholds, from 0 to 1; None without an object."""
        table = self.table()
        return float(np.nanmean(table)) if np.isfinite(table).any() else None

    def at(self, threshold: float) -> float | None:
        """The mean over classes at one threshold of overlap."""
        column = self.table()[:, int(np.argmin(np.abs(THRESHOLDS - threshold)))]
        return float(np.nanmean(column)) if np.isfinite(column).any() else None


def _hits(overlap: np.ndarray) -> np.ndarray:
    """Which detections (rows, best first) are right at each threshold: (detections, thresholds)."""
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
    found = np.zeros(hits.shape[1])
    for threshold in range(hits.shape[1]):
        places = np.searchsorted(recall[:, threshold], RECALLS, side="left")
        reached = places[places < len(hits)]
        found[threshold] = precision[reached, threshold].sum() / len(RECALLS)
    return found
