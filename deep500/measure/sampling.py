"""One launch: call a function until its quantiles are known well enough, and say so where they are not.

Looks at the data are at geometrically growing sizes, and the autocorrelation time is the largest of this look and of
the two before it: otherwise stopping at the first interval that happens to be tight would make intervals too short
(where dependence is ignored, "99 %" covers 76 %). If it could only grow, half as many samples again would be taken. A
run is never extended after a comparison was looked at: that is what plans are for.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.measure.dependence import finite
from deep500.measure.plan import Plan, Target
from deep500.measure.quantiles import Estimate, quantile
from deep500.measure.standing import coarse, likely_cause, ties
from deep500.measure.steady import SteadyState, find_steady_state
from deep500.measure.units import unit_for

Clock = Callable[[], int]
GROWTH = 1.3
MEMORY = 2
"""Number of looks for which an autocorrelation time counts."""
TIMER_SHARE = 0.05
COARSE = "reading the clock takes more than 5 % of a sample: measure several calls as one"


@dataclass(frozen=True)
class Measurement:
    """All samples of one launch or of several, and what they say.

    Attributes:
        samples: seconds, in the order in which they were taken, warm-up included.
        steady: where warm-up ends and whether the rest is steady; of several launches, of the first that is not.
        estimates: one per target of the plan, on the samples after the cut.
        reached: whether every target was met within the budget, on a steady series.
        problems: what a reader must know, in words: not reached, drifting, timer too coarse.
        timer_overhead: seconds that reading the clock adds to each sample.
        basis: what the interval of the first target holds over: ``"over 8 launches"``, ``"within one launch"``.
        launches: each of several launches; empty for one.
    """

    samples: np.ndarray
    steady: SteadyState
    estimates: tuple[Estimate, ...]
    reached: bool
    problems: tuple[str, ...]
    timer_overhead: float = 0.0
    basis: str = "within one launch"
    launches: tuple[Measurement, ...] = ()

    @property
    def kept(self) -> np.ndarray:
        """Samples after the warm-up."""
        if self.launches:
            return np.concatenate([launch.kept for launch in self.launches])
        return self.samples[self.steady.cut :] if self.steady.cut < self.samples.size else self.samples

    def __str__(self) -> str:
        lines = [f"{in_words(self.estimates[0])}, {self.basis}", *self.problems]
        return "\n  ".join(lines)


def in_words(estimate: Estimate) -> str:
    """A quantile of seconds, in the unit in which it has one to three digits before the point.

    Example:
        >>> from deep500.measure import quantile
        >>> in_words(quantile([0.0021, 0.0022, 0.0023], independent=True))
        '2.2 ms, the median of 3 samples, an observation (n too small for an interval)'
    """
    factor, unit = unit_for(estimate.value)
    value, low, high = (
        None if x is None else f"{factor * x:.4g}" for x in (estimate.value, estimate.low, estimate.high)
    )
    name = "median" if estimate.q == 0.5 else f"{100 * estimate.q:g} % quantile"
    worth = "" if estimate.n_eff > 0.99 * estimate.n else f" worth {estimate.n_eff:.0f}"
    if low is None or high is None:
        return f"{value} {unit}, the {name} of {estimate.n} samples{worth}, an observation ({estimate.reason})"
    return f"{value} {unit} [{low}, {high}], {estimate.level:.0%} CI of the {name} of {estimate.n} samples{worth}"


class Judge:
    """Examines a growing series repeatedly and decides whether it is long enough."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._taus: list[list[float]] = [[] for _ in plan.targets]

    def __call__(self, samples: Any) -> tuple[SteadyState, tuple[Estimate, ...], bool]:
        """Steady state, estimates, and whether all targets are met; estimates without interval are observations."""
        plan, values = self.plan, finite(samples)
        steady = find_steady_state(values, plan.alpha, plan.max_fraction)
        remaining = values[steady.cut :] if steady.cut < values.size else values
        estimates = tuple(
            self._estimate(remaining, steady, t, past) for t, past in zip(plan.targets, self._taus, strict=True)
        )
        return steady, estimates, all(e.precision <= t.rel for e, t in zip(estimates, plan.targets, strict=True))

    def _estimate(self, remaining: np.ndarray, steady: SteadyState, target: Target, past: list[float]) -> Estimate:
        # series that are still short underestimate their dependence: earlier, larger values count for a while
        least, before = self.plan.budget.min_neff, max(past[-MEMORY:], default=1.0)
        now = quantile(remaining, target.q, target.level, steady=steady, min_neff=least)
        past.append(now.tau)
        if now.tau >= before or now.low is None:
            return now
        return quantile(remaining, target.q, target.level, before, steady=steady, min_neff=least)


def next_size(size: int) -> int:
    """Return the number of samples at the look after the one at ``size``.

    Example:
        >>> next_size(30)
        39
    """
    return math.ceil(GROWTH * size)


def measure_launch(
    function: Callable[[], object],
    plan: Plan,
    synchronize: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter_ns,
) -> Measurement:
    """Call a function repeatedly in this process and time every call; see :func:`deep500.measure.measure`.

    Raises:
        InputError: the clock went backwards.
    """
    judge, budget = Judge(plan), plan.budget
    cold = np.zeros(plan.cold_bytes, np.uint8) if plan.cold_bytes else None
    durations = array("q", bytes(8 * budget.max_n))  # allocated before: a growing list would be timed too
    deadline = clock() + int(budget.max_s * 1e9)
    taken, size = 0, min(budget.min_n, budget.max_n)
    while True:
        taken = _take(function, synchronize, clock, cold, durations, taken, size, deadline)
        samples = np.frombuffer(durations, np.int64, taken) / 1e9
        steady, estimates, reached = judge(samples)
        if reached or taken < size or size == budget.max_n:
            break
        size = min(next_size(size), budget.max_n)
    overhead = timer_overhead(clock)
    remaining = samples[steady.cut :] if steady.cut < samples.size else samples
    problems = _problems(plan, steady, remaining, estimates, reached, overhead)
    return Measurement(samples, steady, estimates, reached, problems, overhead)


def _take(
    function: Callable[[], object],
    synchronize: Callable[[], object] | None,
    clock: Clock,
    cold: np.ndarray | None,
    durations: array[int],
    taken: int,
    size: int,
    deadline: int,
) -> int:
    """Fill ``durations`` up to ``size`` samples or until the deadline; returns how many there are (at least one)."""
    for i in range(taken, size):
        if cold is not None:
            cold += 1
        begin = clock()
        function()
        if synchronize is not None:
            synchronize()
        end = clock()
        if end < begin:
            raise InputError(f"got {end - begin} ns from the clock; expected time to go forward: use a monotonic clock")
        durations[i] = end - begin
        if end > deadline:
            return i + 1
    return size


def timer_overhead(clock: Clock = time.perf_counter_ns) -> float:
    """Seconds between two readings of the clock with nothing in between (median of 201)."""
    gaps = []
    for _ in range(201):
        begin = clock()
        gaps.append(clock() - begin)
    return float(np.median(gaps)) / 1e9


def _problems(
    plan: Plan,
    steady: SteadyState,
    samples: np.ndarray,
    estimates: tuple[Estimate, ...],
    reached: bool,
    overhead: float,
) -> tuple[str, ...]:
    problems = []
    if not steady.is_steady:
        problems.append(f"no steady state: {steady}")
    for target, estimate in zip(plan.targets, estimates, strict=True):
        if not reached and estimate.precision > target.rel:
            problems.append(not_reached(target, estimate, samples))
    problems += [warning] if (warning := coarse(ties(samples))) else []
    if overhead > TIMER_SHARE * estimates[0].value:
        problems.append(COARSE)
    return tuple(problems)


def not_reached(target: Target, estimate: Estimate, samples: np.ndarray) -> str:
    """Say in words that a target was missed, by how much and probably why."""
    problem = f"not reached: {target.rel:.1%} wanted"
    if estimate.low is None:
        return f"{problem}, no interval at the end of the budget: {estimate.reason}"
    return (
        f"{problem}, {estimate.precision:.1%} at the end of the budget (n {estimate.n}, worth {estimate.n_eff:.0f}); "
        f"likely cause: {likely_cause(samples, estimate.n, estimate.tau)}"
    )
