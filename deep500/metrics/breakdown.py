"""Breakdown of a run's time: loading, forward, backward, update, communication, validation and the rest."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from deep500.events import Event
from deep500.metrics.base import Kind, ObservingMetric

PARTS = (
    *("io", "collection", "inference", "forward", "backward", "forward_backward"),
    *("update", "communication", "validation"),
)
"""Regions that count as parts. A backend whose compiled graph does both reports ``forward_backward`` alone."""
WHOLE = ("validation", "inference")
"""Parts that what runs forward within them belongs to."""
OTHER = "other"


class TimingBreakdown(ObservingMetric):
    """Seconds of the run; ``details`` has the seconds of each part and of ``"other"``, which sum to it.

    At every boundary the time since the last one goes to the innermost part that is open, so nothing counts twice and
    nothing is left out. What an optimizer's own ``step`` does in no other part counts as ``"update"``. A part ends when
    the device has finished what was asked of it; this waiting keeps the CPU from working ahead, so measure speed
    without this metric.

    Args:
        clock: nanoseconds.

    Example:
        >>> breakdown = TimingBreakdown()
        >>> breakdown.name, breakdown.unit, breakdown.measure(None), breakdown.reason
        ('timing_breakdown', 's', None, 'it did not watch a run')
    """

    name, unit, direction = "timing_breakdown", "s", "lower"
    kind: Kind = "cost"

    def __init__(self, clock: Callable[[], int] = perf_counter_ns) -> None:
        self._clock = clock
        self._parts: dict[str, int] = {}
        self._open: list[str] = []
        self._last = 0

    def before_run(self, run: Any) -> None:
        """The run begins."""
        super().before_run(run)
        self._parts, self._open, self._last = {OTHER: 0}, [], self._clock()

    def after_run(self, run: Any) -> None:
        """The run ends, however it does."""
        run.executor.synchronize()
        self._credit()
        self._open.clear()

    def before_batch(self, run: Any) -> None:
        """Of an optimizer with a step of its own, which tells nobody when it updates, all belongs to the update."""
        if _has_own_step(run):
            self._enter("update")

    def after_batch(self, run: Any) -> None:
        """The step ends."""
        if _has_own_step(run):
            self._leave("update")

    def _credit(self) -> None:
        now = self._clock()
        part = self._open[-1] if self._open else OTHER
        self._parts[part] = self._parts.get(part, 0) + now - self._last
        self._last = now

    def _enter(self, part: str) -> None:
        if not self._open or self._open[-1] not in WHOLE:
            self._credit()
            self._open.append(part)

    def _leave(self, part: str) -> None:
        if self._open[-1:] == [part]:
            self.run.executor.synchronize()  # or the next part would be charged for what this one asked for
            self._credit()
            self._open.pop()

    def parts(self) -> dict[str, float] | None:
        """Seconds by part; None if the run was not watched from its beginning."""
        return {name: spent / 1e9 for name, spent in self._parts.items()} if self.observed() else None

    def measure(self, statistics: Any) -> float | None:
        """Sum of all parts."""
        parts = self.parts()
        self.details = parts or {}
        return sum(parts.values()) if parts else None


def _has_own_step(run: Any) -> bool:
    """Return whether the run's optimizer overrides ``step`` outside of Deep500, whose steps report their parts."""
    step = getattr(type(getattr(run, "optimizer", None)), "step", None)
    return step is not None and step.__module__.partition(".")[0] not in ("deep500", "frameworks")


def _add_hooks(part: str) -> None:
    def before(self: TimingBreakdown, source: Any) -> None:
        self._enter(part)

    def after(self: TimingBreakdown, source: Any) -> None:
        self._leave(part)

    for when, hook in (("before", before), ("after", after)):
        hook.__name__, hook.__doc__ = f"{when}_{part}", getattr(Event, f"{when}_{part}").__doc__
        setattr(TimingBreakdown, hook.__name__, hook)


for _part in PARTS:
    _add_hooks(_part)


class IOShare(TimingBreakdown):
    """Percent of the training time (that of :class:`~deep500.metrics.TrainingTime`) in which the loop waited for the
    next batch.

    What a loader does ahead, in the background, is no waiting. What happens outside of epochs' training (validation,
    checkpoints) is left out on both sides.
    """

    name, unit, direction, kind, part = "io_share", "%", "lower", "ratio", "io"
    _trains = False

    def before_epoch(self, run: Any) -> None:
        """The time of the epoch's training begins."""
        self._trains = True

    def before_validation(self, source: Any) -> None:
        """It has ended."""
        self._trains = False

    def after_epoch(self, run: Any) -> None:
        """It has ended where there was no validation."""
        self._trains = False

    def _enter(self, part: str) -> None:
        if self._trains:
            super()._enter(part)

    def measure(self, statistics: Any) -> float | None:
        """The share; None if no batch was loaded."""
        parts = self.parts()
        if parts is None:
            return None
        seconds = statistics.total("train_seconds")
        self.details = {self.part: parts.get(self.part), "train_seconds": seconds}
        if self.part not in parts or not seconds:
            self.reason = f"the run had no part called {self.part}" if seconds else "no time of training was measured"
            return None
        return 100 * float(parts[self.part]) / float(seconds)


class CommunicationShare(IOShare):
    """Percent of the training time spent in communication between processes, waiting included."""

    name, unit, direction, kind, part = "communication_share", "%", "lower", "ratio", "communication"
