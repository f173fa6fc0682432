"""The end of warm-up, and whether what follows is steady at all.

The cut is MSER-5 (White, Cobb and Spratt 2000) on medians, because times have spikes: with ``b`` the medians of
consecutive groups of five and ``m`` their number, the cut is the ``d <= m max_fraction`` that minimises
``var(b[d:]) / (m - d)``. A minimum at the very end of that range means that the series was still settling. A cut that
gains little (less than half of that error; warm-ups gain tenfold and more, chance seldom twofold) is not made where the
series is steady without it. What is kept must keep its level: no drift and no steps (:mod:`deep500.measure.changes`),
or no single number describes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.measure.changes import change_points, level_change, trend, without_levels
from deep500.measure.dependence import finite

GROUP = 5
NEARLY = 1.02  # the earliest cut that is nearly as good as the best one: the minimum is flat, and samples are dear
GAIN = 2.0
"""A cut that does not divide the squared error by this may be chance."""

STEADY, SETTLING, DRIFTING, SHORT = "steady", "still settling", "drifting", "too short to tell"
SHIFTING = "changing its level"
MOST_NAMED = 4
"""More change points than these are counted, not listed."""


@dataclass(frozen=True)
class SteadyState:
    """The steadiness of a series.

    Attributes:
        cut: number of leading samples that are warm-up.
        state: ``"steady"``, ``"still settling"``, ``"drifting"``, ``"changing its level"`` or ``"too short to tell"``.
        trend_p: p value of Kendall's test on what follows the cut; None if it was not made.
        trend: relative change of the level from the first to the last third of what is kept.
        change_p: p value of "what follows the cut has one level"; None if it was not tested.
        changes: numbers of the samples with which a new level begins, where it does so.
    """

    cut: int
    state: str
    trend_p: float | None = None
    trend: float = 0.0
    change_p: float | None = None
    changes: tuple[int, ...] = ()

    @property
    def is_steady(self) -> bool:
        """Return whether a single number may describe the rest of the series; True for one too short to tell."""
        return self.state in (STEADY, SHORT)

    def __str__(self) -> str:
        if self.is_steady:
            return self.state
        named = self.changes[:MOST_NAMED]
        more = f" and {len(self.changes) - len(named)} places more" if len(self.changes) > len(named) else ""
        where = f", new level{'s' if len(self.changes) > 1 else ''} from sample {', '.join(map(str, named))}{more}"
        return f"{self.state}, level changes by {self.trend:+.1%}{where if named else ''}"


def find_steady_state(samples: Any, alpha: float = 0.001, max_fraction: float = 0.5, earliest: int = 0) -> SteadyState:
    """Cut the warm-up off and test what remains for drift and for changes of the level.

    Args:
        samples: in the order in which they were taken.
        alpha: level of each of the two tests.
        max_fraction: at most this part of the series may be warm-up.
        earliest: the cut is never before this sample (compilation is known to have happened until there).

    Example:
        >>> find_steady_state([9.0, 5.0, 3.0, 2.0, 2.0] + [1.0, 1.1, 1.0, 0.9, 1.0] * 20).cut
        5
        >>> print(find_steady_state([1.0, 1.1, 0.9] * 40 + [1.5, 1.6, 1.4] * 40 + [1.0, 1.1, 0.9] * 30))
        changing its level, level changes by +0.0%, new levels from sample 120, 240
    """
    values = finite(samples)[earliest:]
    groups = values.size // GROUP
    if groups < 6:
        return SteadyState(min(earliest, finite(samples).size), SHORT)
    medians = np.median(values[: groups * GROUP].reshape(groups, GROUP), axis=1)
    last = max(1, int(groups * max_fraction))
    cut, gain = _mser(medians, last)
    if cut and gain < GAIN:
        whole = examine(values, alpha, earliest)
        if whole.is_steady:
            return whole
    if cut >= last:
        change = trend(values)[1]
        changes = tuple(earliest + place for place in change_points(values, alpha))
        return SteadyState(earliest + cut * GROUP, SETTLING, trend=change, changes=changes)
    return examine(values[cut * GROUP :], alpha, earliest + cut * GROUP)


def examine(samples: np.ndarray, alpha: float = 0.001, cut: int = 0) -> SteadyState:
    """Judge whether samples without warm-up keep their level; ``cut`` samples came before them.

    Example:
        >>> examine(np.linspace(1, 2, 100)).state
        'drifting'
    """
    if samples.size < 6 * GROUP:
        return SteadyState(cut, SHORT)
    drift_p, change = trend(samples)
    change_p, places = level_change(samples)
    drifts, shifts = drift_p is not None and drift_p < alpha, change_p < alpha
    if drifts and shifts:  # a step looks like a drift: is there one without it?
        within = trend(without_levels(samples, places))[0]
        drifts = within is None or within < alpha
    state = DRIFTING if drifts else SHIFTING if shifts else STEADY
    changes = tuple(cut + place for place in change_points(samples, alpha)) if state == SHIFTING else ()
    return SteadyState(cut, state, drift_p, change, change_p, changes)


def _mser(values: np.ndarray, last: int) -> tuple[int, float]:
    """The first d <= last with nearly the smallest squared standard error of the mean of ``values[d:]``.

    With it, how many times smaller that is than without a cut.
    """
    tail_sum = np.cumsum(values[::-1] - values.mean())[::-1]
    tail_square = np.cumsum((values[::-1] - values.mean()) ** 2)[::-1]
    count = np.arange(values.size, 0, -1)
    error = (tail_square - tail_sum**2 / count) / count**2
    best = max(NEARLY * error[: last + 1].min(), 1e-12 * error[0])  # below that it is rounding
    cut = int(np.flatnonzero(error[: last + 1] <= best)[0])
    return cut, float(error[0] / best) if best else 1.0
