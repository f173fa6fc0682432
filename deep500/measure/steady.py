"""Where warm-up ends, and whether what follows is steady at all.

The cut is MSER-5 (White, Cobb and Spratt 2000) on medians, because times have spikes: with ``b`` the medians of
consecutive groups of five and ``m`` their number, the cut is the ``d <= m max_fraction`` that minimises
``var(b[d:]) / (m - d)``. A minimum at the very end of that range means that the series was still settling. What is kept
must have no trend (Kendall's test, on medians of groups long enough to be independent): a drifting series has no steady
state, and no single number describes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.measure.quantiles import autocorrelation_time, finite

GROUP = 5
NEARLY = 1.02  # the earliest cut that is nearly as good as the best one: the minimum is flat, and samples are dear
STEADY, SETTLING, DRIFTING, SHORT = "steady", "still settling", "drifting", "too short to tell"


@dataclass(frozen=True)
class SteadyState:
    """What was found of a series.

    Attributes:
        cut: number of leading samples that are warm-up.
        state: ``"steady"``, ``"still settling"``, ``"drifting"`` or ``"too short to tell"``.
        trend_p: p value of Kendall's test on what follows the cut; None if it was not made.
        trend: relative change of the level from the first to the last third of what is kept.
    """

    cut: int
    state: str
    trend_p: float | None = None
    trend: float = 0.0

    @property
    def is_steady(self) -> bool:
        """Whether a single number may describe the rest of the series (a series too short to tell is given that)."""
        return self.state in (STEADY, SHORT)


def find_steady_state(samples: Any, alpha: float = 0.001, max_fraction: float = 0.5, earliest: int = 0) -> SteadyState:
    """Cut the warm-up off and test what remains for drift.

    Args:
        samples: in the order in which they were taken.
        alpha: level of the trend test.
        max_fraction: at most this part of the series may be warm-up.
        earliest: the cut is never before this sample (compilation is known to have happened until there).

    Example:
        >>> find_steady_state([9.0, 5.0, 3.0, 2.0, 2.0] + [1.0, 1.1, 1.0, 0.9, 1.0] * 20).cut
        5
    """
    values = finite(samples)[earliest:]
    groups = values.size // GROUP
    if groups < 6:
        return SteadyState(min(earliest, finite(samples).size), SHORT)
    medians = np.median(values[: groups * GROUP].reshape(groups, GROUP), axis=1)
    last = max(1, int(groups * max_fraction))
    cut = _mser(medians, last)
    kept = values[cut * GROUP :]
    if cut >= last:
        return SteadyState(earliest + cut * GROUP, SETTLING)
    p, change = _trend(kept)
    return SteadyState(earliest + cut * GROUP, DRIFTING if p is not None and p < alpha else STEADY, p, change)


def _mser(values: np.ndarray, last: int) -> int:
    """The first d <= last with nearly the smallest squared standard error of the mean of ``values[d:]``."""
    tail_sum = np.cumsum(values[::-1] - values.mean())[::-1]
    tail_square = np.cumsum((values[::-1] - values.mean()) ** 2)[::-1]
    count = np.arange(values.size, 0, -1)
    error = (tail_square - tail_sum**2 / count) / count**2
    best = max(NEARLY * error[: last + 1].min(), 1e-12 * error[0])  # below that it is rounding
    return int(np.flatnonzero(error[: last + 1] <= best)[0])


def _trend(kept: np.ndarray) -> tuple[float | None, float]:
    """Kendall's p on medians of groups long enough to be independent, and the relative change of the level."""
    from scipy.stats import kendalltau

    third = max(1, kept.size // 3)
    first, final = np.median(kept[:third]), np.median(kept[-third:])
    change = float((final - first) / first) if first else 0.0
    slope = (final - first) / (kept.size - third)  # from the middle of the first third to the middle of the last
    detrended = kept - slope * np.arange(kept.size)
    tau = autocorrelation_time(detrended <= np.median(detrended))
    size = 1 if tau < 1.5 else math.ceil(2 * tau)
    groups = kept.size // size
    if groups < 8:
        return None, change
    medians = np.median(kept[: groups * size].reshape(groups, size), axis=1)
    return float(kendalltau(np.arange(groups), medians).pvalue), change
