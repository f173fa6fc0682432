"""Times of training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, ClassVar

from deep500.errors import InputError
from deep500.measure.survival import FEWEST, time_to_target
from deep500.metrics.base import Combined, Metric, ObservingMetric
from deep500.metrics.quality import TestAccuracy


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


class TimeToQuality(Metric):
    """Seconds of training until a quality reaches a target, as validations see it. Evaluation is not in the time.

    Of several runs some may never get there. They are neither infinite nor left out: what is known of them is that it
    takes longer than they lasted, and the median over all is Kaplan and Meier's (:mod:`deep500.measure.survival`).

    Args:
        metric: what is judged after the last epoch, such as ``TestAccuracy()`` or ``TestQuality("word_error_rate", "%",
            "lower")``; its direction says what reaching is.
        target: in its unit.
        every: judge every so many steps; at the ends of epochs if None. A recipe adds the checks by itself; in Python
            they are those of :class:`deep500.training.listeners.JudgeEvery`.

    Raises:
        InputError: a metric that is no field of the epochs' records, or of the best epoch; an interval below 1.

    Example:
        >>> from deep500.metrics import TestAccuracy
        >>> TimeToQuality(TestAccuracy(), 90, every=100).name
        'time_to_accuracy_90_every_100'
    """

    unit, direction, kind = "s", "lower", "cost"
    counts_validation: ClassVar[bool] = False

    def __init__(self, metric: Metric, target: float, every: int | None = None) -> None:
        field = getattr(metric, "field", "")
        if not field.startswith("test_") or getattr(metric, "best", False):
            raise InputError(
                f"got {metric!r} to reach; expected a quality that validations judge: TestAccuracy(), TestLoss() or "
                "TestQuality(name)"
            )
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise InputError(f"got every={every!r}; expected a whole number of steps >= 1, or None for epochs")
        self.metric, self.target, self.every = metric, target, every
        self.quality = getattr(metric, "quality", None)
        self.name = f"time_to_{field.removeprefix('test_')}_{target:g}" + (f"_every_{every}" if every else "")

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the constructor, as JSON."""
        metric = self.metric
        about = {"field": metric.field, "unit": metric.unit, "direction": metric.direction}  # type: ignore[attr-defined]
        return {**about, "target": self.target, "every": self.every}

    def measure(self, statistics: Any) -> float | None:
        """The time; None if the target was never reached."""
        self.reason, before, known = "", 0.0, []
        for record in statistics.epochs:
            for seconds, value in self._judged(record):
                if value is None:
                    continue
                if self.metric.passes(value, self.target):
                    return None if seconds is None else before + seconds
                known.append(value)
            training = self._seconds(record)
            before += math.nan if training is None else training
        best = max(known, default=0.0) if self.metric.direction == "higher" else min(known, default=0.0)
        unit, what = "check" if self.every else "epoch", self.metric.name.replace("_", " ")
        text = f"best of {len(known)} {unit}s: {best:.4g} {self.metric.unit}".rstrip()
        self.reason = text if known else f"no {unit} has a {what}"
        self.details = {} if math.isnan(before) or self.counts_validation else {"lasted": before}
        return None

    def _judged(self, record: Any) -> list[tuple[float | None, float | None]]:
        """Return the times within an epoch at which quality was judged, and the values."""
        field = self.metric.field  # type: ignore[attr-defined]
        if self.every is None:
            return [(self._seconds(record), record.get(field))]
        return [(c["seconds"], c.get(field)) for c in record.checks if c["step"] % self.every == 0]

    def _seconds(self, record: Any) -> float | None:
        if not self.counts_validation or record.train_seconds is None or record.test_seconds is None:
            return None if self.counts_validation else record.train_seconds
        return record.train_seconds + record.test_seconds

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
        remark += "; too few for an interval" if estimate.runs < FEWEST else ""
        interval = "95 % interval (Kaplan-Meier)" if estimate.low is not None else ""
        return Combined(estimate.median, estimate.low, estimate.high, remark, interval)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metric!r}, {self.target:g}, every={self.every})"


class TimeToAccuracy(TimeToQuality):
    """Seconds, validations included, until the end of the first epoch whose test accuracy reaches a target.

    It is :class:`TimeToQuality` of the accuracy at ends of epochs, except that validations are in the time.

    Args:
        target: percent, 0 to 100.

    Example:
        >>> TimeToAccuracy(90).combine([10.0, 12.0, None], lasted=[20.0, 20.0, 20.0])
        Combined(value=12.0, low=None, high=None, remark='2 of 3 runs reached it; too few for an interval', interval='')
    """

    counts_validation = True

    def __init__(self, target: float) -> None:
        if not 0 <= target <= 100:
            raise InputError(f"got target {target!r}; expected percent, 0 to 100: give the accuracy so")
        super().__init__(TestAccuracy(), target)

    def __repr__(self) -> str:
        return f"TimeToAccuracy({self.target:g})"


def _sum(records: Any, field: str) -> float | None:
    values = [getattr(record, field) for record in records]
    return None if not values or None in values else sum(values)
