"""The classes that a run was trained on, and how often."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.metrics.base import ObservingMetric


class DatasetBias(ObservingMetric):
    """Evidence that training drew some classes more often than others: the p value of the chi-square test.

    1 is what a sampler gives that draws every sample of a balanced data set once; below 0.05 the classes were not drawn
    equally. ``details`` counts them. On several ranks their counts are added up, so all ranks measure it together.

    Args:
        classes: how many there are.

    Raises:
        InputError: fewer than two; or, during the run, a label that is no class.
    """

    name, unit, direction, kind = "dataset_bias_p", "", "higher", "quality"

    def __init__(self, classes: int) -> None:
        if classes < 2:
            raise InputError(f"got {classes} classes; expected at least two")
        self.classes = classes
        self._counts = np.zeros(classes, np.int64)

    def after_batch(self, run: Any) -> None:
        """Count the labels of a batch."""
        labels = np.ravel(run.executor.network.to_numpy(run.inputs[run.trainer.label]))
        if labels.dtype.kind not in "iu" or (labels.size and not 0 <= labels.min() <= labels.max() < self.classes):
            raise InputError(f"got labels {labels[:5]}; expected whole numbers from 0 to {self.classes - 1}")
        self._counts += np.bincount(labels, minlength=self.classes)

    def measure(self, statistics: Any) -> float | None:
        """The p value; None if no label was seen."""
        if not self.observed():
            return None
        counts = self.run.optimizer.totals(self._counts.astype(np.float64))
        if not counts.any():
            self.reason = "no label was seen"
            return None
        self.details = {str(number): int(count) for number, count in enumerate(counts)}
        return class_bias(counts)


def class_bias(counts: Any) -> float:
    """The p value of the chi-square test that all classes are equally frequent.

    Example:
        >>> class_bias([5, 5]), round(class_bias([8, 2]), 3)
        (1.0, 0.058)
    """
    from scipy.stats import chisquare

    return float(chisquare(counts).pvalue)


def dataset_bias(labels: Any, classes: int) -> tuple[np.ndarray, float]:
    """Return how often each class was drawn, and the p value of the chi-square test that all are equally frequent.

    Args:
        labels: class numbers as a sampler gave them, over any number of batches.
        classes: how many there are.

    Raises:
        InputError: no labels, or one that is no class.

    Example:
        >>> counts, p = dataset_bias([0, 0, 0, 0, 0, 0, 0, 0, 1, 1], classes=2)
        >>> counts.tolist(), round(p, 3)
        ([8, 2], 0.058)
    """
    numbers = np.concatenate([np.ravel(np.asarray(part)) for part in labels]) if len(labels) else np.empty(0, int)
    if not numbers.size or numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= classes:
        raise InputError(f"got {numbers.size} labels; expected whole numbers from 0 to {classes - 1}, at least one")
    counts = np.bincount(numbers, minlength=classes)
    return counts, class_bias(counts)
