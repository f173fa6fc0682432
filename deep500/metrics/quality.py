"""How good the trained network is."""

from __future__ import annotations

from typing import Any, ClassVar

from deep500.metrics.base import Kind, Metric


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
