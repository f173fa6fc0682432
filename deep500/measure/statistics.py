"""Intervals for medians and for ratios of paired samples: no number without its spread.

All intervals are nonparametric: exact order-statistic ranks of the binomial distribution (Hahn and Meeker 1991,
section 5.2; Hoefler and Belli 2015, section 3.1.3), so nothing is assumed of the distribution of times. They do assume
independent samples; interleave what you compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deep500.errors import InputError
from deep500.measure.dependence import finite

MINIMUM_SAMPLES = 6
"""Fewer samples have no two-sided 95 % interval of the median."""


@dataclass(frozen=True)
class Interval:
    """A median with its confidence interval; ``low`` and ``high`` are None when there are too few samples for one."""

    median: float
    low: float | None
    high: float | None
    n: int
    level: float = 0.95

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter((self.median, self.low, self.high))

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.median:.4g} (median of {self.n}; n too small for an interval)"
        return f"{self.median:.4g} (median of {self.n}, {self.level:.0%} CI {self.low:.4g}-{self.high:.4g})"


def median_interval(samples: Sequence[float] | np.ndarray, level: float = 0.95) -> Interval:
    """Median of independent samples and its exact rank interval.

    The interval is [x_(l), x_(u)] with l, u the ranks that leave at most (1 - level)/2 of Binomial(n, 1/2) on each
    side. No interval (None) is given when n is too small for the level.

    Example:
        >>> print(median_interval([5.0, 1.0, 4.0, 2.0, 3.0, 6.0, 7.0, 8.0, 9.0]))
        5 (median of 9, 95% CI 2-8)
    """
    ordered = np.sort(finite(samples))
    ends = binomial_ranks(ordered.size, 0.5, level)
    low, high = (None, None) if ends is None else (float(ordered[end]) for end in ends)
    return Interval(float(np.median(ordered)), low, high, ordered.size, level)


def binomial_ranks(n: int, q: float, level: float) -> tuple[int, int] | None:
    """Ranks, from 0, that leave at most (1 - level)/2 of Binomial(n, q) on each side, or None: n is too small."""
    from scipy.stats import binom

    tail = (1 - level) / 2
    low = int(binom.ppf(tail, n, q))  # smallest k with P(B <= k) >= tail
    high = int(binom.ppf(1 - tail, n, q)) + 1
    low = low if binom.cdf(low - 1, n, q) <= tail else low - 1
    return None if low < 1 or high > n else (low - 1, high - 1)


def log_ratios(first: Sequence[float], second: Sequence[float]) -> np.ndarray:
    """``log(second[i] / first[i])`` of costs measured in turns.

    Raises:
        InputError: not the same number of positive costs on both sides.

    Example:
        >>> log_ratios([1.0, 2.0], [1.0, 2.0]).tolist()
        [0.0, 0.0]
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape or a.ndim != 1 or not a.size or not (np.isfinite(a * b) & (a > 0) & (b > 0)).all():
        raise InputError(
            f"got {a.shape} and {b.shape} costs; expected as many positive ones on both sides: measure in turns"
        )
    logs: np.ndarray = np.log(b / a)
    return logs


def paired_ratio(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray, level: float = 0.95) -> Interval:
    """Median of a[i] / b[i] with its interval, for costs measured in turns.

    The interval is made on log ratios, which are symmetric under exchange of a and b, and turned back.

    Example:
        >>> paired_ratio([2.0] * 8, [1.0] * 8).median
        2.0
    """
    first, second = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if first.shape != second.shape or (first <= 0).any() or (second <= 0).any():
        raise InputError(
            f"got {first.shape} and {second.shape} samples; expected pairs of positive costs: measure in turns"
        )
    logs = median_interval(np.log(first / second), level)
    low, high = (None if x is None else float(np.exp(x)) for x in (logs.low, logs.high))
    return Interval(float(np.exp(logs.median)), low, high, logs.n, level)
