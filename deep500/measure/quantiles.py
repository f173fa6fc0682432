"""Quantiles with rank intervals: exact ones of independent samples, and of time series for what these are worth.

The textbook rank interval of dependent samples covers far less than it claims (with AR(1) noise of 0.7, 69 % instead of
95 %). So the number of samples is divided by the autocorrelation time ``tau`` of the series "is this sample at most the
quantile?", and the ranks are those of ``n_eff = n / tau`` samples; and a time series has an interval only where
:mod:`deep500.measure.standing` lets it be a result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.measure.dependence import autocorrelation_time, finite, longest_time
from deep500.measure.standing import MIN_NEFF, objection
from deep500.measure.statistics import MINIMUM_SAMPLES, Interval, binomial_ranks
from deep500.measure.steady import SteadyState, examine

INDEPENDENT = 1.1
"""Below this ``tau`` samples count as independent, and the exact binomial ranks are used."""

TOO_SMALL = "n too small for an interval"

OBSERVED = "none"
"""The method of an estimate that the rule of time series leaves without an interval."""


@dataclass(frozen=True)
class Estimate(Interval):
    """A quantile with its interval; ``low`` and ``high`` are None where it is an observation, and ``reason`` says why.

    Attributes:
        median, low, high, n, level: see :class:`~deep500.measure.statistics.Interval`; of another quantile, ``median``
            is that one, which is what :attr:`value` is called for.
        q: which quantile, 0.5 for the median.
        n_eff: number of independent samples that they are worth.
        tau: integrated autocorrelation time, in samples.
        method: ``"binomial ranks"``, ``"effective ranks"``, ``"n too small"`` or ``"none"`` (an observation).
        reason: why there is no interval; empty if there is one.
    """

    q: float = field(kw_only=True)
    n_eff: float = field(kw_only=True)
    tau: float = field(kw_only=True)
    method: str = field(kw_only=True)
    reason: str = field(default="", kw_only=True)

    @property
    def value(self) -> float:
        """The quantile, in the unit of the samples."""
        return self.median

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
            return f"{self.value:.4g} ({name} of {self.n}, an observation: {self.reason})"
        worth = "" if self.n_eff > 0.99 * self.n else f" worth {self.n_eff:.0f}"
        return f"{self.value:.4g} ({name} of {self.n}{worth}, {self.level:.0%} CI {self.low:.4g}-{self.high:.4g})"


def quantile(
    samples: Any,
    q: float = 0.5,
    level: float = 0.95,
    tau: float = 1.0,
    independent: bool = False,
    steady: SteadyState | None = None,
    min_neff: float = MIN_NEFF,
    parts: int = 1,
) -> Estimate:
    """A quantile and its rank interval; of a time series only if it is a result (:mod:`deep500.measure.standing`).

    With independent samples (tau < 1.1) the interval consists of the exact binomial ranks (Hahn and Meeker 1991,
    section 5.2); otherwise of the ranks ``n (q -+ t sqrt(q (1 - q) / n_eff))`` with Student's t of ``n_eff - 1``
    degrees of freedom.

    Args:
        samples: in the order in which they were taken, without their warm-up.
        q: between 0 and 1.
        level: confidence level.
        tau: a lower bound of the autocorrelation time, from earlier looks at the same series.
        independent: the samples are independent by design (seeds, processes of their own): no time series.
        steady: what is known of the series already; it is examined if None.
        min_neff: how many independent samples a result must rest on, if more than 50.
        parts: of how many launches, which will be pooled, this is one.

    Raises:
        InputError: no samples, or some that are no finite numbers.

    Example:
        >>> print(quantile([5.0, 9.0, 1.0, 7.0, 4.0, 8.0, 2.0, 6.0, 3.0], independent=True))
        5 (median of 9, 95% CI 2-8)
        >>> print(quantile([5.0, 9.0, 1.0, 7.0, 4.0, 8.0, 2.0, 6.0, 3.0]))
        5 (median of 9, an observation: 9 samples of a time series, 50 are needed)
    """
    values = finite(samples)
    if not 0 < q < 1 or not 0 < level < 1:
        raise InputError(f"got quantile {q} at level {level}; expected both between 0 and 1: the median is 0.5")
    ordered = np.sort(values)
    value = float(np.median(ordered)) if q == 0.5 else float(ordered[min(values.size - 1, int(q * values.size))])
    if independent:
        return _estimate(ordered, value, q, level, 1.0)
    longest, bound = longest_time(values, q)
    estimate = _estimate(ordered, value, q, level, max(tau, longest, autocorrelation_time(values <= value)))
    state = examine(values) if steady is None else steady
    why = objection(values.size, q, state, max(tau, bound), min_neff, parts)
    return without_interval(estimate, why) if why else estimate


def without_interval(estimate: Estimate, reason: str) -> Estimate:
    """The same as an observation, for a reason.

    Example:
        >>> print(without_interval(quantile(range(9), independent=True), "drifting"))
        4 (median of 9, an observation: drifting)
    """
    return replace(estimate, low=None, high=None, method=OBSERVED, reason=reason)


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
    ends = binomial_ranks(n, q, level) if worth < INDEPENDENT else _effective_ranks(n, n_eff, q, level)
    low, high = (None, None) if ends is None else (float(ordered[end]) for end in ends)
    method = "binomial ranks" if worth < INDEPENDENT else "effective ranks"
    how = ("n too small", TOO_SMALL) if ends is None else (method, "")
    return Estimate(value, low, high, n, level, q=q, n_eff=n_eff, tau=worth, method=how[0], reason=how[1])


def samples_needed(q: float, level: float = 0.95) -> int:
    """Fewest independent samples for which quantile ``q`` has a two-sided interval.

    Example:
        >>> [samples_needed(q) for q in (0.5, 0.9, 0.95, 0.99)]
        [6, 36, 72, 368]
    """
    tail = (1 - level) / 2
    return max(math.ceil(math.log(tail) / math.log(p)) for p in (q, 1 - q))


def _effective_ranks(n: int, n_eff: float, q: float, level: float) -> tuple[int, int] | None:
    from scipy.stats import t

    if n_eff < MINIMUM_SAMPLES:
        return None
    half = t.ppf(1 - (1 - level) / 2, max(2.0, n_eff - 1)) * math.sqrt(q * (1 - q) / n_eff)
    low, high = math.floor(n * (q - half)) - 1, math.ceil(n * (q + half))
    return None if low < 0 or high >= n else (low, high)


def worst(estimates: Sequence[Estimate]) -> float:
    """The least precise of several, see :attr:`Estimate.precision`."""
    return max((estimate.precision for estimate in estimates), default=math.inf)
