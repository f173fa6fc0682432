"""How long training takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from deep500.errors import InputError
from deep500.measure.survival import FEWEST, time_to_target
from deep500.metrics.base import Combined, Metric, ObservingMetric


class WallTime(ObservingMetric):
    """Seconds of the whole run: training, validation, checkpoints and listeners, from first to last.

    Args:
        clock: seconds.
    """

    name, unit, direction, kind = "wall_time", "s", "lower", "cost"

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._begin = self._end = 0.0

    def before_run(self, run: Any) -> None:
        """The run begins."""
        super().before_run(run)
        self._begin = self._clock()

    def after_run(self, run: Any) -> None:
        """The run ends, when the device has finished."""
        run.executor.synchronize()
        self._end = self._clock()

    def measure(self, statistics: Any) -> float | None:
        """The time; None if the run was not watched from its beginning."""
        return self._end - self._begin if self.observed() else None


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

    Of several runs some may never get there. They are neither infinite nor left out: what is known of them is that it
    takes longer than they lasted, and the median over all is Kaplan and Meier's (:mod:`deep500.measure.survival`).

    Args:
        target: percent, 0 to 100.

    Example:
        >>> TimeToAccuracy(90).combine([10.0, 12.0, None], lasted=[20.0, 20.0, 20.0])
        Combined(value=12.0, low=None, high=None, remark='2 of 3 runs reached it; too few for an interval')
    """

    unit, direction, kind = "s", "lower", "cost"

    def __init__(self, target: float) -> None:
        if not 0 <= target <= 100:
            raise InputError(f"got target {target!r}; expected percent, 0 to 100: give the accuracy so")
        self.target = target
        self.name = f"time_to_accuracy_{target:g}"

    def measure(self, statistics: Any) -> float | None:
        """The time; None if the target was never reached."""
        self.reason = ""
        for number, record in enumerate(statistics.epochs):
            if record.test_accuracy is not None and record.test_accuracy >= self.target:
                training = _sum(statistics.epochs[: number + 1], "train_seconds")
                validation = _sum(statistics.epochs[: number + 1], "test_seconds")
                return None if training is None or validation is None else training + validation
        known = [record.test_accuracy for record in statistics.epochs if record.test_accuracy is not None]
        self.reason = f"best of {len(known)} epochs: {max(known):.4g} %" if known else "no epoch has a test accuracy"
        return None

    def combine(self, values: Sequence[float | None], lasted: Sequence[float | None] = ()) -> Combined:
        """The median over all runs with its interval; without a value if half of them or more missed the target."""
        if len(values) == 1:
            return super().combine(values)
        ends = list(lasted) or [None] * len(values)
        misses = [end for value, end in zip(values, ends, strict=True) if value is None]
        missed = [end for end in misses if end is not None]
        # a miss says "later than the run lasted": without its length it can be neither counted nor left out
        if len(missed) < len(misses):
            return Combined(None, remark="how long the runs lasted that missed the target is not known")
        estimate = time_to_target([value for value in values if value is not None], missed, level=0.95)
        remark = f"{estimate.reached} of {estimate.runs} runs reached it"
        remark += "; too few for an interval" if estimate.runs < FEWEST else "; 95 % interval (Kaplan-Meier)"
        return Combined(estimate.median, estimate.low, estimate.high, remark)

    def __repr__(self) -> str:
        return f"TimeToAccuracy({self.target:g})"


def _sum(records: Any, field: str) -> float | None:
    values = [getattr(record, field) for record in records]
    return None if not values or None in values else sum(values)
