"""Times to a target where some runs never reached it: misses are censored, neither infinite nor left out.

A run that ended after 300 s without reaching the target says "more than 300 s". The median over runs comes from the
Kaplan-Meier estimate of the share that is still on its way (Kaplan and Meier 1958), its interval from the log-log
transformed Greenwood formula (Kalbfleisch and Prentice 1980), both SciPy's.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deep500.errors import InputError

FEWEST = 6
"""With fewer runs only the range is reported: six are needed for a 95 % interval of a median."""


@dataclass(frozen=True)
class TimeToTarget:
    """The median time to a target over several runs.

    Attributes:
        median: seconds; None if half of the runs or more missed the target.
        low, high: ends of its interval; None where the data do not bound it, or where there are too few runs.
        reached, runs: how many runs got there, out of how many.
        level: confidence level.
    """

    median: float | None
    low: float | None
    high: float | None
    reached: int
    runs: int
    level: float = 0.95

    def __str__(self) -> str:
        share = f"{self.reached} of {self.runs} runs reached it"
        if self.median is None:
            return f"median unknown: {share}"
        if self.runs < FEWEST:
            return f"{self.median:.4g} s ({share}; too few for an interval)"
        low, high = ("?" if end is None else f"{end:.4g}" for end in (self.low, self.high))
        return f"{self.median:.4g} s ({share}, {self.level:.0%} CI {low}-{high})"


def time_to_target(reached: Sequence[float], missed: Sequence[float] = (), level: float = 0.95) -> TimeToTarget:
    """The median of times of which some are only known to be longer than what was observed.

    Args:
        reached: seconds until the target, of the runs that reached it.
        missed: seconds after which the others ended.
        level: confidence level.

    Raises:
        InputError: no run at all, or times that are negative or not finite.

    Example:
        >>> print(time_to_target([10, 12, 11, 14, 13, 12.5], missed=[20]))
        12.5 s (6 of 7 runs reached it, 95% CI 10-14)
    """
    times = np.asarray([*reached, *missed], np.float64)
    if not times.size or not np.isfinite(times).all() or (times < 0).any():
        raise InputError(f"got {times.size} times, {times.tolist()[:5]}; expected at least one, none negative or NaN")
    if not len(reached):
        return TimeToTarget(None, None, None, 0, times.size, level)
    from scipy.stats import CensoredData, ecdf

    share = ecdf(CensoredData(uncensored=list(reached), right=list(missed))).sf
    median = _crossing(share.quantiles, share.probabilities)
    low = high = None
    if times.size >= FEWEST:
        with np.errstate(all="ignore"), warnings.catch_warnings():  # it is undefined where the share is 0 or 1
            warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
            bounds = share.confidence_interval(level, method="log-log")
        known = np.isfinite(bounds.low.probabilities)  # before the first event all are on their way, and that is sure
        low = _crossing(share.quantiles, np.where(known, bounds.low.probabilities, share.probabilities))
        high = _crossing(share.quantiles, np.nan_to_num(bounds.high.probabilities, nan=1.0))
    return TimeToTarget(median, low, high, len(reached), times.size, level)


def _crossing(times: np.ndarray, share: np.ndarray) -> float | None:
    """First time at which at most half are still on their way."""
    below = np.flatnonzero(share <= 0.5)
    return float(times[below[0]]) if below.size and math.isfinite(times[below[0]]) else None
