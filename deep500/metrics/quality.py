"""Quality of the trained network."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import variance
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.events import Event
from deep500.metrics.base import Combined, Direction, Kind, Metric, ProbingMetric


class _FieldMetric(Metric):
    """A field of the epoch records: the final epoch's value, or the best of all epochs (which its name then says)."""

    field: str
    kind: Kind = "quality"

    def __init__(self, best: bool = False) -> None:
        self.best = best
        self.name = f"best_{self.field}" if best else self.field

    def measure(self, statistics: Any) -> float | None:
        """The value; None if no epoch, or not the final one, has it."""
        final = getattr(statistics, "final", None)
        if final is not None and not self.best and self.field.startswith("test_"):
            return final.get(self.field)
        values = [record.get(self.field) for record in statistics.epochs]
        if not self.best:
            return values[-1] if values else None
        known = [value for value in values if value is not None]
        return (max if self.direction == "higher" else min)(known) if known else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.best or ''})"


class TestAccuracy(_FieldMetric):
    """Accuracy in percent after the final epoch, on the test data of three splits, else on the validation data.

    Args:
        max_acc: take the best epoch instead, on the validation data, also of three splits. That picks the epoch by the
            very data that judge it, which flatters; the name says ``best_test_accuracy``.
    """

    field, unit, direction = "test_accuracy", "%", "higher"

    def __init__(self, max_acc: bool = False) -> None:
        super().__init__(max_acc)


class TrainingAccuracy(_FieldMetric):
    """Accuracy on the training batches as they were trained on, in percent; final or (``max_acc``) best epoch."""

    field, unit, direction = "train_accuracy", "%", "higher"

    def __init__(self, max_acc: bool = False) -> None:
        super().__init__(max_acc)


class TestLoss(_FieldMetric):
    """Mean loss on the data of :class:`TestAccuracy`, after the final or (``best``) at the best epoch."""

    field, direction = "test_loss", "lower"


class TrainingLoss(_FieldMetric):
    """Mean loss over the training batches of the final or (``best``) best epoch."""

    field, direction = "train_loss", "lower"


class TestQuality(_FieldMetric):
    """A quality of the run's task on data that training did not see, after the final or (``best``) at the best epoch.

    Args:
        quality: its name, as the task has it, such as ``"word_error_rate"``.
        unit, direction: as the task has them; a recipe whose task says otherwise is refused.
        best: take the best epoch instead, see :class:`TestAccuracy`.

    Example:
        >>> TestQuality("word_error_rate", "%", "lower").passes(1.5, 2.0)
        True
    """

    def __init__(self, quality: str, unit: str = "", direction: Direction = "higher", best: bool = False) -> None:
        self.quality, self.field, self.unit, self.direction = quality, f"test_{quality}", unit, direction
        super().__init__(best)

    def __repr__(self) -> str:
        return f"TestQuality({self.quality!r})"


class TopKAccuracy(ProbingMetric):
    """Percent of validation samples whose label is among the k highest scores of the trained network.

    It runs the network over the validation data once more, after the run. On several ranks each counts its share and
    the counts are added up, so all ranks measure it together.

    Args:
        k: how many.

    Raises:
        InputError: less than one.
    """

    unit, direction, kind = "%", "higher", "quality"

    def __init__(self, k: int = 5) -> None:
        if k < 1:
            raise InputError(f"got k={k}; expected at least 1")
        self.k, self.name = k, f"top_{k}_accuracy"

    def measure(self, statistics: Any) -> float | None:
        """The accuracy; None without validation data, or where scores are not (samples, classes >= k)."""
        if not self.ready():
            return None
        trainer = self.run.trainer
        if self.held_out() is None or trainer.network_output is None:
            self.reason = "the run had no validation data, or a network without class scores"
            return None
        counts = np.array(self._counted(trainer.network_output, trainer.label), np.float64)
        right, seen, refused = self.run.optimizer.totals(counts).tolist()
        if refused:  # all ranks refuse then: one that left before the sum would let the others wait
            self.reason = self.reason or f"the scores of other ranks ({refused:.0f}) cannot be judged"
            return None
        return 100.0 * right / seen if seen else None

    def held_out(self) -> Any:
        """Batches of the test data, of the validation data where there are no others."""
        trainer = self.run.trainer
        test = getattr(trainer, "test_sampler", None)
        return trainer.validation_sampler if test is None else test

    def _counted(self, output: str, label: str) -> tuple[int, int, bool]:
        """Of this rank's share: samples with the label among the k, all samples, whether scores cannot be judged."""
        right, seen, executor = 0, 0, self.run.executor
        with self.run.trainer.judged():
            for batch in self.held_out():
                labels = executor.network.to_numpy(batch[label])
                if not labels.size:  # a rank may have no share of a small batch
                    continue
                scores = executor.network.to_numpy(executor.inference(batch, [output])[output])
                if (ignored := getattr(self.run.trainer.task, "ignore_index", None)) is not None:
                    scores, labels = scores[labels != ignored], labels[labels != ignored]
                if not labels.size:
                    continue
                try:
                    right += round(top_k_accuracy(scores, labels, self.k) / 100 * len(labels))
                except InputError as error:
                    self.reason = str(error)
                    return right, seen, True
                seen += len(labels)
        return right, seen, False


def top_k_accuracy(scores: Any, labels: Any, k: int = 5) -> float:
    """Percent of samples whose label is among the k highest scores; ties count for the classes with lower numbers.

    Args:
        scores: (samples, classes); a sample with a NaN counts as wrong.
        labels: (samples,), class numbers.
        k: from 1 to the number of classes.

    Example:
        >>> top_k_accuracy(np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]]), np.array([2, 2]), k=2)
        50.0
    """
    values, expected = np.asarray(scores), np.asarray(labels)
    if values.ndim != 2 or expected.shape != values.shape[:1] or not 1 <= k <= values.shape[1] or not expected.size:
        raise InputError(
            f"got scores {values.shape}, labels {expected.shape}, k={k}; expected (n, classes), (n,) and k <= classes"
        )
    best = np.argsort(-values, axis=1, kind="stable")[:, :k]
    right = (best == expected[:, None]).any(axis=1) & ~np.isnan(values).any(axis=1)
    return 100.0 * float(right.mean())


class VarianceOverSeeds(Metric):
    """Unbiased variance of another metric over the seeds of a run (``--repeat``): how much of it is luck.

    Args:
        metric: one that is measured from a run's statistics alone, such as ``TestAccuracy()``.

    Raises:
        InputError: a metric that watches the run.

    Example:
        >>> VarianceOverSeeds(TestAccuracy()).combine([90.0, 92.0, 94.0])
        Combined(value=4.0, low=None, high=None, remark='variance over 3 seeds', interval='')
    """

    direction: Direction = "lower"
    kind: Kind = "quality"

    def __init__(self, metric: Metric) -> None:
        if isinstance(metric, Event):
            raise InputError(
                f"got {metric!r}, which watches the run; expected one of statistics: name it by itself too"
            )
        self.metric, self.name = metric, f"variance_of_{metric.name}"
        self.unit, self.unit_of_seeds = f"{metric.unit}²" if metric.unit else "", metric.unit

    def measure(self, statistics: Any) -> float | None:
        """The other metric's value."""
        value = self.metric.measure(statistics)
        self.reason = self.metric.reason
        return value

    def combine(self, values: Sequence[float | None], lasted: Sequence[float | None] = ()) -> Combined:
        """The variance; None for a single seed, or where one was not measured."""
        known = [float(value) for value in values if value is not None]
        if len(known) < len(values) or len(known) < 2:
            return Combined(None, remark="one seed: a variance needs two (--repeat 2)" if len(values) == 1 else "")
        return Combined(variance(known), remark=f"variance over {len(known)} seeds")
