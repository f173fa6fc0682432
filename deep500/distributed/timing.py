"""`parallel`: the time of a step that several ranks make together, with what rule 10 wants said about it.

Hoefler and Belli 2015 (*Scientific benchmarking of parallel computing systems*, section 4.2): a parallel time needs
its measurement, its synchronisation and its summary stated. Measured is every rank's own time of every step. Steps
begin together by windows (all ranks wait for an agreed time on synchronised clocks; a rank that is late has missed the
window, and that step counts for nothing), after a barrier (whose exit may differ between ranks by as much as it takes),
or without synchronisation. The summary is one number per step: the slowest rank's time by default. Samples of several
ranks are pooled only where Kruskal and Wallis's test finds no difference between ranks.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deep500.distributed.clocks import Clock, ClockReader, as_control, gather_quietly, synchronise
from deep500.distributed.transports.communicator import Communicator
from deep500.distributed.world import world
from deep500.errors import InputError
from deep500.measure.launches import DIFFER, FEWEST_TO_COMPARE, groups_differ, nearly_independent
from deep500.measure.machine import usable_cores
from deep500.measure.plan import Plan
from deep500.measure.quantiles import Estimate, quantile
from deep500.measure.sampling import Judge, next_size
from deep500.measure.steady import SteadyState

SYNCS, SUMMARIES = ("window", "barrier", "none"), ("max", "median", "pooled")
LEAD = 0.004
"""Seconds between telling the ranks when the first window begins and its beginning."""

SPIN = 0.0003
"""Seconds before a window's beginning from which on a rank spins, since sleep is not more exact than that; where there
are more ranks than cores none does, or it would keep another from its core."""

TOLERANCE, ASLEEP, TOLERATED = 0.0001, 0.0004, 0.05
"""A window is missed by a step that begins later than this many seconds, or this part of the longest step; where ranks
cannot spin, than what it takes to wake up."""

CHUNK = 0.5
"""Seconds of steps between two looks at what all ranks measured."""

MOST_MISSED = 0.5
"""If a larger part of the windows was missed there is no result."""


@dataclass(frozen=True)
class ParallelTiming:
    """Measurement by all ranks; the same on every rank.

    Attributes:
        starts: when each step began on rank 0's clock, seconds since the first; (steps, ranks).
        seconds: how long it took; (steps, ranks), warm-up and missed windows included.
        missed: whether any rank missed the window of this step; (steps,), all False without windows.
        clocks: one per rank; ``clocks[p].error`` bounds what ``starts`` of rank p may be wrong by.
        sync, summary: as asked.
        steady: warm-up and trend of the summary's series, without the missed ones.
        estimate: of the summary; the plan's first target.
        reached: whether the plan's targets were met within its budget.
        imbalance: median over steps of ``max / mean - 1`` over ranks.
        rank_p: of Kruskal and Wallis's test that ranks take equally long; None with one rank or too few steps.
        communicating: share of its steps that each rank spent in calls of the communicator, waiting included.
        sent_bytes: payload per step of each rank.
    """

    starts: np.ndarray
    seconds: np.ndarray
    missed: np.ndarray
    clocks: tuple[Clock, ...]
    sync: str
    summary: str
    steady: SteadyState
    estimate: Estimate
    reached: bool
    imbalance: Estimate
    rank_p: float | None
    communicating: tuple[float, ...]
    sent_bytes: tuple[float, ...]

    @property
    def kept(self) -> np.ndarray:
        """Times of the steps that count, seconds; (steps, ranks)."""
        return self.seconds[~self.missed][self.steady.cut :]

    def __str__(self) -> str:
        ranks = self.seconds.shape[1]
        how = {"max": "max over", "median": "median over", "pooled": "pooled over"}[self.summary]
        parts = [f"time = {how} {ranks} ranks per step: {self.estimate} s"]
        if self.sync == "window":
            error = max(clock.error for clock in self.clocks) / 1e3
            apart = 1e6 * float(np.median(np.ptp(self.starts[~self.missed], axis=1)))
            parts.append(
                f"window sync, offset error at most {error:.1f} us, ranks began {apart:.0f} us apart "
                f"(median), {int(self.missed.sum())} of {self.missed.size} windows missed"
            )
        else:
            parts.append({"barrier": "barrier sync", "none": "no synchronisation"}[self.sync])
        parts.append(f"imbalance {self.imbalance.value:.1%}")
        if self.rank_p is not None:
            parts.append(f"ranks {'differ' if self.rank_p < DIFFER else 'do not visibly differ'} (p {self.rank_p:.2g})")
        return "; ".join(parts)


def parallel(
    step: Callable[[], object],
    plan: Plan | None = None,
    comm: Communicator | None = None,
    sync: str = "window",
    summary: str = "max",
    now: ClockReader = time.perf_counter_ns,
) -> ParallelTiming:
    """Time a step on all ranks; all of them call this together.

    Args:
        step: this rank's part, takes nothing; it may communicate.
        plan: precision and budget, the same on every rank.
        comm: all ranks; those of this process (:func:`deep500.distributed.world`) if None.
        sync: ``"window"``, ``"barrier"`` or ``"none"``, see the module.
        summary: ``"max"``, ``"median"`` or ``"pooled"``.
        now: this rank's clock, nanoseconds.

    Raises:
        InputError: an unknown word, windows for ranks that take turns, more than half of the windows missed, or samples
            to be pooled of ranks that differ or may differ.

    Example:
        >>> from deep500.distributed import Serial
        >>> from deep500.measure.plan import Budget
        >>> plan = Plan(budget=Budget(max_n=40, max_s=1.0))
        >>> timing = parallel(lambda: sum(range(1000)), plan, Serial(), sync="barrier")
        >>> timing.seconds.shape[1], timing.rank_p
        (1, None)
    """
    comm, plan = world() if comm is None else comm, plan or Plan()
    _check(sync, summary, comm)
    clock = synchronise(comm, now=now)
    series, shares = _Series(comm, clock, now, sync).take(step, plan, summary)
    clocks = _clocks_of(comm, synchronise(comm, now=now, before=clock))
    if summary == "pooled" and comm.size > 1:
        _check_alike(series.rank_p)
    begin = float(series.rows[0, :, 0].min())
    return ParallelTiming(
        (series.rows[:, :, 0] - begin) / 1e9,
        series.seconds,
        series.missed,
        clocks,
        sync,
        summary,
        series.steady,
        series.estimate,
        series.reached,
        series.imbalance,
        series.rank_p,
        shares[0],
        shares[1],
    )


def _check(sync: str, summary: str, comm: Communicator) -> None:
    for name, word, known in (("sync", sync, SYNCS), ("summary", summary, SUMMARIES)):
        if word not in known:
            raise InputError(f"got {name}={word!r}; expected one of {', '.join(known)}")
    if sync == "window" and comm.transport == "threads" and comm.size > 1:
        raise InputError(
            "got windows for ranks that are threads; expected ranks that run at the same time, these take turns: use "
            'sync="barrier", or start processes with --ranks'
        )


def _check_alike(rank_p: float | None) -> None:
    if rank_p is None or rank_p < DIFFER:
        why = "that differ" if rank_p is not None else "with too few independent steps to tell whether they differ"
        p = "" if rank_p is None else f" (Kruskal-Wallis p {rank_p:.2g})"
        raise InputError(
            f'got ranks {why}{p} to be pooled; expected ranks that take equally long: use summary="max", and say so'
        )


class _Judged:
    """All rows so far and what they say; a row is one step: begin (rank 0's clock), duration, missed, of each rank."""

    def __init__(self, plan: Plan, summary: str) -> None:
        self.plan, self.summary, self.judge = plan, summary, Judge(plan)
        self.rows = np.empty((0, 0, 3), np.int64)
        self.steady: SteadyState
        self.estimate: Estimate
        self.imbalance: Estimate
        self.reached = False
        self.rank_p: float | None = None

    def add(self, rows: np.ndarray) -> None:
        """Rows of all ranks, (ranks, steps, 3)."""
        new = rows.transpose(1, 0, 2)
        self.rows = np.concatenate([self.rows, new]) if self.rows.size else new.copy()

    @property
    def seconds(self) -> np.ndarray:
        return self.rows[:, :, 1] / 1e9

    @property
    def missed(self) -> np.ndarray:
        return np.asarray(self.rows[:, :, 2].any(axis=1))

    def look(self) -> bool:
        """Whether it is enough."""
        valid = self.seconds[~self.missed]
        if valid.shape[0] < (1 - MOST_MISSED) * self.rows.shape[0]:
            raise InputError(
                f"got {int(self.missed.sum())} of {self.missed.size} windows missed; expected ranks that are there in "
                'time: there are more of them than cores, or others use the machine; use sync="barrier", and say so'
            )
        over = np.median(valid, axis=1) if self.summary == "median" else valid.max(axis=1)
        self.steady, estimates, self.reached = self.judge(over)
        steady = valid[self.steady.cut :] if self.steady.cut < len(valid) else valid
        self.imbalance = quantile(steady.max(axis=1) / steady.mean(axis=1) - 1)
        self.rank_p = _rank_p(steady)
        first = self.plan.targets[0]
        self.estimate = estimates[0] if self.summary != "pooled" else quantile(steady.ravel(), first.q, first.level)
        return self.reached


def _rank_p(seconds: np.ndarray) -> float | None:
    groups = {str(rank): nearly_independent(seconds[:, rank]) for rank in range(seconds.shape[1])}
    if len(groups) < 2 or min(map(len, groups.values())) < FEWEST_TO_COMPARE:
        return None
    return groups_differ(groups)


class _Series:
    """Takes steps in chunks; after each all ranks see all rows, and so decide alike."""

    def __init__(self, comm: Communicator, clock: Clock, now: ClockReader, sync: str) -> None:
        self.comm, self.clock, self.now, self.sync = comm, clock, now, sync
        self.room = 1.5  # length of a window over the longest step of the last chunk
        hosts = [str(name) for name in comm.gather_facts(platform.node())]
        self.spin = SPIN if hosts.count(hosts[comm.rank]) <= usable_cores() else 0.0
        self.tolerance = TOLERANCE if self.spin else ASLEEP

    def take(
        self, step: Callable[[], object], plan: Plan, summary: str
    ) -> tuple[_Judged, tuple[tuple[float, ...], tuple[float, ...]]]:
        """Until the plan's targets are met, or its budget ends; and each rank's communication."""
        comm, budget, series = self.comm, plan.budget, _Judged(plan, summary)
        waited, sent, begin = _spent(comm), comm.traffic.payload_bytes, time.perf_counter()
        size, longest = min(budget.min_n, budget.max_n), 0.0
        while True:
            # Two steps first, to learn how long one takes: windows must be longer than the longest step, and a chunk
            # short enough that all ranks see together, after each, whether the budget has ended.
            missing = size - len(series.rows)
            count = 2 if not longest else max(1, min(missing, int(CHUNK / longest)))
            rows, elapsed = self._chunk(step, min(count, missing), longest, time.perf_counter() - begin)
            series.add(rows)
            longest = float(rows[:, :, 1].max()) / 1e9
            if rows[:, :, 2].any(axis=0).mean() > 0.1:  # windows were too short for this machine: begin later
                self.room = min(64.0, 2 * self.room)
            out_of_time = elapsed > budget.max_s
            if len(series.rows) < size and not out_of_time:
                continue
            if series.look() or out_of_time or size == budget.max_n:
                break
            size = min(next_size(size), budget.max_n)
        mine = np.array([_spent(comm) - waited, comm.traffic.payload_bytes - sent], np.float64)
        with as_control(comm):
            totals = comm.all_gather(mine)
        shares = totals[:, 0] / series.seconds.sum(axis=0), totals[:, 1] / len(series.rows)
        return series, (tuple(shares[0].tolist()), tuple(shares[1].tolist()))

    def _chunk(
        self, step: Callable[[], object], count: int, longest: float, elapsed: float
    ) -> tuple[np.ndarray, float]:
        """Some steps: rows of all ranks, (ranks, steps, 3), and the longest that any rank is at work."""
        rows = np.zeros((count, 3), np.int64)
        length = int(1e9 * (self.room * longest + SPIN + 0.001))
        first = self._agree()
        for number in range(count):
            at = first + number * length
            self._begin(at)
            begin = self.now()
            step()
            end = self.now()
            late = self.sync == "window" and begin - at > 1e9 * max(self.tolerance, TOLERATED * longest)
            rows[number] = self.clock.to_global(begin), end - begin, late
        with as_control(self.comm):
            gather_quietly(self.comm)
            return self.comm.all_gather(rows), float(self.comm.all_gather(np.array([elapsed])).max())

    def _agree(self) -> int:
        """When the first window begins, on this rank's clock."""
        if self.sync != "window":
            return 0
        begin = np.zeros(1, np.int64)
        with as_control(self.comm):
            gather_quietly(self.comm)
            if self.comm.rank == 0:
                begin[0] = self.now() + int(LEAD * 1e9)
            self.comm.broadcast(begin)
        return round(self.clock.to_local(float(begin[0])))

    def _begin(self, at: int) -> None:
        """Synchronise; a window begins at ``at`` of this rank's clock."""
        if self.sync == "barrier":
            with as_control(self.comm):
                self.comm.barrier() if self.spin else gather_quietly(self.comm)
        if self.sync == "window":
            left = (at - self.now()) / 1e9 - self.spin
            if left > 0:
                time.sleep(left)
            while self.now() < at:
                pass


def _spent(comm: Communicator) -> float:
    """Seconds in calls of the program, without bookkeeping."""
    return sum(count.seconds for kind, count in comm.traffic.kinds.items() if kind != "control")


def _clocks_of(comm: Communicator, clock: Clock) -> tuple[Clock, ...]:
    """Every rank's clock, without its readings."""
    mine = np.array([clock.offset, clock.drift, clock.error, clock.at])
    with as_control(comm):
        return tuple(Clock(*row) for row in comm.all_gather(mine).tolist())
