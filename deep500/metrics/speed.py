"""How long training takes."""

from __future__ import annotations

from typing import Any

from deep500.errors import InputError
from deep500.metrics.base import Metric


class TrainingTime(Metric):
    """Seconds of training over all epochs, without validation."""

    name, unit, direction, kind = "training_time", "s", "lower", "cost"

    def measure(self, statistics: Any) -> float | None:
        """Sum over the epochs; None if there was none, or one without a time."""
        return _sum(statistics.epochs, "train_seconds")


class Throughput(Metric):
    """Samples trained on per second: all samples over all seconds (not a mean of rates)."""

    name, unit, direction, kind = "throughput", "samples/s", "higher", "rate"

    def measure(self, statistics: Any) -> float | None:
        """The rate; None if samples or seconds were not measured."""
        samples, seconds = _sum(statistics.epochs, "train_samples"), _sum(statistics.epochs, "train_seconds")
        return samples / seconds if samples is not None and seconds else None


class TimeToAccuracy(Metric):
    """Seconds, validations included, until the end of the first epoch whose test accuracy reaches a target.

    Args:
        target: percent, 0 to 100.
    """

    unit, direction, kind = "s", "lower", "cost"

    def __init__(self, target: float) -> None:
        if not 0 <= target <= 100:
            raise InputError(f"got target {target!r}; expected percent, 0 to 100: give the accuracy so")
        self.target = target
        self.name = f"time_to_accuracy_{target:g}"

    def measure(self, statistics: Any) -> float | None:
        """The time; None if the target was never reached."""
        for number, record in enumerate(statistics.epochs):
            if record.test_accuracy is not None and record.test_accuracy >= self.target:
                training = _sum(statistics.epochs[: number + 1], "train_seconds")
                validation = _sum(statistics.epochs[: number + 1], "test_seconds")
                return None if training is None or validation is None else training + validation
        return None

    def __repr__(self) -> str:
        return f"TimeToAccuracy({self.target:g})"


def _sum(records: Any, field: str) -> float | None:
    values = [getattr(record, field) for record in records]
    return None if not values or None in values else sum(values)
