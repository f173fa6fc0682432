"""How good the trained network is."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import variance
from typing import Any, ClassVar

from deep500.errors import InputError
from deep500.events import Event
from deep500.metrics.base import Combined, Direction, Kind, Metric
from deep500.metrics.errors import top_k_accuracy
from deep500.metrics.probe import ProbingMetric


class _FieldMetric(Metric):
    """A field of the epoch records: the final epoch's value, or the best of all epochs (which its name then says)."""

    field: ClassVar[str]
    kind: Kind = "quality"

    def __init__(self, best: bool = False) -> None:
        self.best = best
        self.name = f"best_{self.field}" if best else self.field

    def measure(self, statistics: Any) -> float | None:
        """The value; None if no epoch, or not the final one, has it."""
        values = [getattr(record, self.field) for record in statistics.epochs]
        if not self.best:
            return values[-1] if values else None
        known = [value for value in values if value is not None]
        return (max if self.direction == "higher" else min)(known) if known else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.best or ''})"


class TestAccuracy(_FieldMetric):
    """Accuracy on the validation data in percent, after the final epoch.

    Args:
        max_acc: take the best epoch instead. That picks the epoch by the very data that judge it, which flatters; the
            name says ``best_test_accuracy``.
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
    """Mean loss on the validation data, after the final or (``best``) at the best epoch."""

    field, direction = "test_loss", "lower"


class TrainingLoss(_FieldMetric):
    """Mean loss over the training batches of the final or (``best``) best epoch."""

    field, direction = "train_loss", "lower"


class TopKAccuracy(ProbingMetric):
    """Percent of validation samples whose label is among the k highest scores of the trained network.

    It runs the network over the validation data once more, after the run.

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
        trainer, executor = self.run.trainer, self.run.executor
        if trainer.validation_sampler is None or trainer.network_output is None:
            self.reason = "the run had no validation data, or a network without class scores"
        elif statistics.communication is not None:
            self.reason = "the run was distributed, and every rank validates its share only"
        if self.reason:
            return None
        right, seen = 0.0, 0
        for batch in self.batches():
            tensor = executor.inference(batch, [trainer.network_output])[trainer.network_output]
            scores, labels = (executor.network.to_numpy(one) for one in (tensor, batch[trainer.label]))
            try:
                right += top_k_accuracy(scores, labels, self.k) * len(labels)
            except InputError as error:
                self.reason = str(error)
                return None
            seen += len(labels)
        return right / seen if seen else None


class VarianceOverSeeds(Metric):
    """Unbiased variance of another metric over the seeds of a run (``--repeat``): how much of it is luck.

    Args:
        metric: one that is measured from a run's statistics alone, such as ``TestAccuracy()``.

    Raises:
        InputError: a metric that watches the run.

    Example:
        >>> VarianceOverSeeds(TestAccuracy()).combine([90.0, 92.0, 94.0])
        Combined(value=4.0, low=None, high=None, remark='variance over 3 seeds')
    """

    direction: Direction = "lower"
    kind: Kind = "quality"

    def __init__(self, metric: Metric) -> None:
        if isinstance(metric, Event):
            raise InputError(
                f"got {metric!r}, which watches the run; expected one of statistics: name it by itself too"
            )
        self.metric, self.name = metric, f"variance_of_{metric.name}"
        self.unit = f"{metric.unit}²" if metric.unit else ""

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
