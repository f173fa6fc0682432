"""What data a run saw."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.metrics.base import ObservingMetric


class DatasetBias(ObservingMetric):
    """How sure one can be that training drew some classes more often than others: the p value of the chi-square test.

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
        from scipy.stats import chisquare

        self.details = {str(number): int(count) for number, count in enumerate(counts)}
        return float(chisquare(counts).pvalue)
