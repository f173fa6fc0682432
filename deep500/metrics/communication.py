"""Communication between processes, their load balance, and the speedup from more of them.

The distributed level leaves ``statistics.communication``: per rank a mapping with ``payload_bytes``, ``messages``,
``wait_seconds`` and ``step_seconds``. Without it nothing here is measured: one process does not send 0 bytes, it does
not communicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deep500.errors import InputError
from deep500.metrics.base import Metric


class _OfRanks(Metric):
    def column(self, statistics: Any, field: str) -> list[float] | None:
        """One field of every rank; None, and a reason, where a rank has none."""
        ranks: Mapping[Any, Mapping[str, Any]] | None = statistics.communication
        self.reason, self.details = "", {}
        if not ranks:
            self.reason = "the run was not distributed"
            return None
        values = [facts.get(field) for facts in ranks.values()]
        if None in values:
            self.reason = f"not every rank has {field}"
            return None
        self.details = {str(rank): value for rank, value in zip(ranks, values, strict=True)}
        return [float(value) for value in values]  # type: ignore[arg-type]


class CommunicationVolume(_OfRanks):
    """Bytes of tensors that all ranks together handed to their communicators; ``details`` has them by rank."""

    name, unit, direction, kind = "communication_volume", "B", "lower", "count"

    def measure(self, statistics: Any) -> float | None:
        """The sum over ranks."""
        values = self.column(statistics, "payload_bytes")
        return None if values is None else sum(values)


class Messages(_OfRanks):
    """Tensors that all ranks together handed to their communicators."""

    name, unit, direction, kind = "messages", "", "lower", "count"

    def measure(self, statistics: Any) -> float | None:
        """The sum over ranks."""
        values = self.column(statistics, "messages")
        return None if values is None else sum(values)


class LoadImbalance(_OfRanks):
    """Percent by which the slowest rank works longer than the mean; 0 is perfect balance.

    Work is the time of the steps less the waiting for others.
    """

    name, unit, direction, kind = "load_imbalance", "%", "lower", "ratio"

    def measure(self, statistics: Any) -> float | None:
        """``100 (max / mean - 1)`` over ranks."""
        waiting, steps = self.column(statistics, "wait_seconds"), self.column(statistics, "step_seconds")
        if waiting is None or steps is None:
            self.reason = self.reason or "not every rank has wait_seconds"
            return None
        work = [step - wait for step, wait in zip(steps, waiting, strict=True)]
        self.details = {rank: value for rank, value in zip(self.details, work, strict=True)}
        mean = sum(work) / len(work)
        if not mean > 0:
            self.reason = f"the ranks worked {mean:.3g} s on average"
            return None
        return 100 * (max(work) / mean - 1)


class WaitShare(_OfRanks):
    """Percent of the steps' time that ranks spent in communication, waiting included: all ranks' sums."""

    name, unit, direction, kind = "wait_share", "%", "lower", "ratio"

    def measure(self, statistics: Any) -> float | None:
        """The share."""
        waiting, steps = self.column(statistics, "wait_seconds"), self.column(statistics, "step_seconds")
        if waiting is None or steps is None or not sum(steps):
            self.reason = self.reason or "not every rank has wait_seconds"
            return None
        return 100 * sum(waiting) / sum(steps)


class ScalingEfficiency(Metric):
    """Speedup over one process in percent of the number of processes. A whole table, with Amdahl's bound:
    :func:`deep500.measure.bounds.scaling_table`.

    Args:
        base_seconds: training time of the same recipe on one process, measured, not guessed; the record keeps it.
        weak: the problem grew with the processes, so that the same time is perfect.

    Example:
        >>> from deep500.training.statistics import EpochRecord, TrainingStatistics
        >>> run = TrainingStatistics([EpochRecord(0, train_seconds=30.0)])
        >>> run.communication = {str(rank): {} for rank in range(4)}
        >>> ScalingEfficiency(90.0).measure(run), ScalingEfficiency(27.0, weak=True).measure(run)
        (75.0, 90.0)
    """

    unit, direction, kind = "%", "higher", "ratio"

    def __init__(self, base_seconds: float, weak: bool = False) -> None:
        if not base_seconds > 0:
            raise InputError(f"got base_seconds={base_seconds!r}; expected the time on one process: measure it")
        self.base_seconds, self.weak = base_seconds, weak
        self.name = f"{'weak' if weak else 'strong'}_scaling_efficiency"

    def measure(self, statistics: Any) -> float | None:
        """The efficiency; None for a run that was not distributed."""
        ranks, seconds = statistics.communication, statistics.total("train_seconds")
        self.reason = ""
        if not ranks or not seconds:
            self.reason = "no time was measured" if ranks else "the run was not distributed"
            return None
        processes = len(ranks)
        speedup = self.base_seconds / seconds * (processes if self.weak else 1)
        self.details = {
            "processes": processes,
            "seconds": seconds,
            "base_seconds": self.base_seconds,
            "speedup": speedup,
            "ideal": processes,
        }
        return 100 * speedup / processes
