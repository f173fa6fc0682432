"""Quantiles of dependent samples with rank intervals, and how many samples a series is really worth.

Times measured one after another are not independent: a slow moment lasts. The textbook rank interval then covers far
less than it claims (with AR(1) noise of 0.7, 69 % instead of 95 %). So the number of samples is divided by the
integrated autocorrelation time ``tau`` of the series "is this sample at most the quantile?" (Sokal 1997; initial
positive sequence, Geyer 1992), and the ranks are those of ``n_eff = n / tau`` samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.errors import InputError

INDEPENDENT = 1.1
"""Below this ``tau`` samples count as independent, and the exact binomial ranks are used."""

FEWEST = 6
"""Fewer effective samples than this have no interval."""


@dataclass(frozen=True)
class Estimate:
    """A quantile with its interval; ``low`` and ``high`` are None where there are too few samples for one.

    Attributes:
        q: which quantile, 0.5 for the median.
        value: the estimate, in the unit of the samples.
        low, high: ends of the interval.
        level: its confidence level.
        n: number of samples.
        n_eff: number of independent samples that they are worth.
        tau: integrated autocorrelation time, in samples.
        method: ``"binomial ranks"``, ``"effective ranks"`` or ``"n too small"``.
    """

    q: float
    value: float
    low: float | None
    high: float | None
    level: float
    n: int
    n_eff: float
    tau: float
    method: str

    @property
    def precision(self) -> float:
        """The larger half-width of the interval relative to the value; infinite without an interval."""
        if self.low is None or self.high is None:
            return math.inf
        if self.low == self.high:
            return 0.0
        if not self.value:
            return math.inf
        return max(self.high - self.value, self.value - self.low) / abs(self.value)

    def __str__(self) -> str:
        name = "median" if self.q == 0.5 else f"p{100 * self.q:g}"
        if self.low is None or self.high is None:
            return f"{self.value:.4g} ({name} of {self.n}; n too small for an interval)"
        worth = "" if self.n_eff > 0.99 * self.n else f" worth {self.n_eff:.0f}"
        return f"{self.value:.4g} ({name} of {self.n}{worth}, {self.level:.0%} CI {self.low:.4g}-{self.high:.4g})"


def quantile(
    samples: Any, q: float = 0.5, level: float = 0.95, tau: float = 1.0, independent: bool = False
) -> Estimate:
    """A quantile and its rank interval.

    With independent samples (tau < 1.1) the interval consists of the exact binomial ranks (Hahn and Meeker 1991,
    section 5.2); otherwise of the ranks ``n (q -+ t sqrt(q (1 - q) / n_eff))`` with Student's t of ``n_eff - 1``
    degrees of freedom.

    Args:
        samples: in the order in which they were taken.
        q: between 0 and 1.
        level: confidence level.
        tau: a lower bound of the autocorrelation time, from earlier looks at the same series.
        independent: the samples are independent by design (seeds, processes of their own): tau is not estimated.

    Raises:
        InputError: no samples, or some that are no finite numbers.

    Example:
        >>> print(quantile([5.0, 9.0, 1.0, 7.0, 4.0, 8.0, 2.0, 6.0, 3.0]))
        5 (median of 9, 95% CI 2-8)
    """
    values = finite(samples)
    if not 0 < q < 1 or not 0 < level < 1:
        raise InputError(f"got quantile {q} at level {level}; expected both between 0 and 1: the median is 0.5")
    ordered = np.sort(values)
    value = float(np.median(ordered)) if q == 0.5 else float(ordered[min(values.size - 1, int(q * values.size))])
    worth = 1.0 if independent else max(1.0, tau, autocorrelation_time(values <= value))
    return _estimate(ordered, value, q, level, worth)


def quantile_of_worth(samples: Any, tau: float, q: float = 0.5, level: float = 0.95) -> Estimate:
    """Like :func:`quantile`, with the autocorrelation time given instead of estimated.

    For samples in no order of their own, such as those of several launches, whose autocorrelation is that within them.

    Example:
        >>> quantile_of_worth(range(100), tau=4.0).n_eff
        25.0
    """
    estimate = quantile(samples, q, level, independent=True)
    return _estimate(np.sort(finite(samples)), estimate.value, q, level, max(1.0, tau))


def _estimate(ordered: np.ndarray, value: float, q: float, level: float, worth: float) -> Estimate:
    """The estimate from ordered samples of which every ``worth``-th counts."""
    n, n_eff = ordered.size, ordered.size / worth
    ends = _binomial_ranks(ordered, q, level) if worth < INDEPENDENT else _effective_ranks(n, n_eff, q, level)
    if ends is None:
        return Estimate(q, value, None, None, level, n, n_eff, worth, "n too small")
    method = "binomial ranks" if worth < INDEPENDENT else "effective ranks"
    return Estimate(q, value, float(ordered[ends[0]]), float(ordered[ends[1]]), level, n, n_eff, worth, method)


def autocorrelation_time(series: Any) -> float:
    """Integrated autocorrelation time of a series, at least 1: ``1 + 2 sum r_k`` over the initial positive pairs.

    The sum is over the pairs of lags until the first pair that is not positive (Geyer 1992, section 3.3).

    Example:
        >>> autocorrelation_time([0, 1, 0, 1, 0, 1, 0, 1])
        1.0
    """
    values = np.asarray(series, np.float64)
    centred = values - values.mean()
    n = centred.size
    if n < 4 or not centred.any():
        return 1.0
    spectrum = np.fft.rfft(centred, 2 * n)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), 2 * n)[:n]
    r = covariance[1 : n // 2] / covariance[0]
    pairs = r[: r.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = np.flatnonzero(pairs <= 0)
    window = int(stop[0]) if stop.size else pairs.size
    if not window:
        return 1.0
    tau = 1.0 + 2.0 * float(pairs[:window].sum())
    return max(1.0, tau * (1 + (4 * window + 1) / n))  # the mean was estimated from the same samples (Wolff 2004)


def samples_needed(q: float, level: float = 0.95) -> int:
    """Fewest independent samples for which quantile ``q`` has a two-sided interval.

    Example:
        >>> [samples_needed(q) for q in (0.5, 0.9, 0.95, 0.99)]
        [6, 36, 72, 368]
    """
    tail = (1 - level) / 2
    return max(math.ceil(math.log(tail) / math.log(p)) for p in (q, 1 - q))


def finite(samples: Any) -> np.ndarray:
    """Samples as a vector of float64; raises InputError for none, for other shapes, NaN and infinities."""
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        odd = "" if values.ndim != 1 else f" with {int((~np.isfinite(values)).sum())} of them not finite"
        raise InputError(f"got samples of shape {values.shape}{odd}; expected a list of finite numbers: find out why")
    return values


def _binomial_ranks(ordered: np.ndarray, q: float, level: float) -> tuple[int, int] | None:
    """Ranks l, u that leave at most (1 - level)/2 of Binomial(n, q) on each side (0-based)."""
    from scipy.stats import binom

    n, tail = ordered.size, (1 - level) / 2
    low = int(binom.ppf(tail, n, q))  # smallest k with P(B <= k) >= tail
    high = int(binom.ppf(1 - tail, n, q)) + 1
    low = low if binom.cdf(low - 1, n, q) <= tail else low - 1
    return None if low < 1 or high > n else (low - 1, high - 1)


def _effective_ranks(n: int, n_eff: float, q: float, level: float) -> tuple[int, int] | None:
    from scipy.stats import t

    if n_eff < FEWEST:
        return None
    half = t.ppf(1 - (1 - level) / 2, max(2.0, n_eff - 1)) * math.sqrt(q * (1 - q) / n_eff)
    low, high = math.floor(n * (q - half)) - 1, math.ceil(n * (q + half))
    return None if low < 0 or high >= n else (low, high)


def worst(estimates: Sequence[Estimate]) -> float:
    """The least precise of several, see :attr:`Estimate.precision`."""
    return max((estimate.precision for estimate in estimates), default=math.inf)
