"""The one rule that says when a figure of a time series is a *result* and when it is an *observation*.

A result has an interval. An observation has none, and says why: an interval that holds only where the series happened
to look harmless is worse than none. A figure of a time series is a result if

1. the series keeps its level: steady, no drift, no steps (:mod:`deep500.measure.steady`);
2. its warm-up took at most a quarter of it: a longer one may be another regime that will come back;
3. ``n >= 50 tau``, with tau the longest autocorrelation time over several thresholds and its error
   (:func:`deep500.measure.dependence.longest_time`);
4. for tails correspondingly more, ``n >= 50 tau / (4 q (1 - q))``: as many samples beyond the quantile as a median of
   50 would have to vary (a p90 139, a p99 1263 independent samples).

Values that are independent by design (launches, seeds) need none of this: their ranks are exact. What the rule achieves
is simulated by ``python -m tests.benchmarks.standing``. What it cannot do nobody can: a process that stays in one
regime for longer than the whole series shows one regime, and its interval holds for that one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from deep500.measure.steady import SteadyState

RESULT, OBSERVATION = "result", "observation"
MIN_NEFF = 50.0
"""Fewest independent samples that the median of a time series may rest on."""

MOST_WARM_UP = 0.25
"""The largest part of a series that its warm-up may take."""

COARSE_STEP, MANY_TIES = 0.005, 0.5
"""A clock is coarse if more than half of the samples have an equal and its step is more than 0.5 % of the median."""


def worth_needed(q: float, min_neff: float = MIN_NEFF) -> float:
    """Return how many independent samples a time series must be worth for its quantile ``q`` to be a result.

    Example:
        >>> [round(worth_needed(q)) for q in (0.5, 0.9, 0.99)]
        [50, 139, 1263]
    """
    return max(MIN_NEFF, min_neff) / (4 * q * (1 - q))


def objection(n: int, q: float, steady: SteadyState, tau: float, min_neff: float = MIN_NEFF, parts: int = 1) -> str:
    """Return why a quantile of a time series is an observation; empty if it is a result.

    Args:
        n: number of samples after the warm-up.
        q: which quantile.
        steady: what was found of the series.
        tau: its longest autocorrelation time, with its error.
        min_neff: what a plan demands of the median; less than 50 counts as 50.
        parts: of how many launches, which are pooled, this is one: together they must be worth enough for a tail, each
            of them enough to tell how much its samples depend on each other.

    Example:
        >>> flat = SteadyState(0, "steady")
        >>> objection(30, 0.5, flat, 1.0), objection(300, 0.5, flat, 1.0)
        ('30 samples of a time series, 50 are needed', '')
        >>> objection(300, 0.5, flat, 10.0)
        '300 samples depend on each other (tau up to 10), 500 are needed'
    """
    needed = max(MIN_NEFF, worth_needed(q, min_neff) / parts)
    if not steady.is_steady:
        return f"no steady state: {steady}"
    if n < needed:
        return f"{n} samples of a time series, {math.ceil(needed)} are needed"
    if steady.cut > MOST_WARM_UP * (steady.cut + n):
        return f"warm-up took {steady.cut} of {steady.cut + n} samples, more than a quarter"
    if n < needed * tau:
        return f"{n} samples depend on each other (tau up to {tau:.3g}), {math.ceil(needed * tau)} are needed"
    return ""


def headline(standing: str, achieved: float | None, target: float | None, cause: str = "") -> str:
    """Name a figure in the words of every headline: result, missed result or observation.

    Args:
        standing: ``"result"``, ``"result within one launch"`` or ``"observation"``.
        achieved, target: relative half-width of the interval; None where it is not known or nothing was wanted.
        cause: why the precision was missed, or why it is an observation.

    Example:
        >>> headline("result within one launch", 0.012, 0.05), headline("observation", None, 0.05, "drifting")
        ('result', 'observation (drifting)')
        >>> headline("result", 1.63, 0.05, "autocorrelation (tau 40)")
        'result, precision missed (163 %, wanted 5 %; likely cause: autocorrelation (tau 40))'
    """
    if standing == OBSERVATION:
        return f"{OBSERVATION} ({cause})" if cause else OBSERVATION
    if achieved is None or target is None or achieved <= target:
        return RESULT
    why = f"; likely cause: {cause}" if cause else ""
    return f"{RESULT}, precision missed ({100 * achieved:.3g} %, wanted {100 * target:g} %{why})"


def likely_cause(samples: np.ndarray, n: int, tau: float, between: float | None = None) -> str:
    """The likeliest reason for a wide interval: dependence, several speeds, launches that differ, or spread.

    Args:
        samples: the samples.
        n: how many there are.
        tau: their autocorrelation time.
        between: coefficient of variation between launches, if there were several.

    Example:
        >>> likely_cause(np.repeat([1.0, 2.0], 50) + np.random.default_rng(0).normal(0, 0.01, 100), 100, 1.0)
        '2 speeds, the widest gap between 1.02 and 1.978'
    """
    if between is not None and between * math.sqrt(n / tau) > 3 * (np.std(samples) / abs(np.mean(samples)) or math.inf):
        return f"launches differ (standard deviation of their own figures {between:.1%})"
    if tau >= 3:
        return f"autocorrelation (tau {tau:.3g}: {n} samples are worth {n / tau:.0f})"
    speeds, gap = _speeds(samples)
    if speeds > 1:
        return f"{speeds} speeds, the widest gap between {gap[0]:.4g} and {gap[1]:.4g}"
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
    return f"spread (half of the samples lie between {low:.4g} and {high:.4g}, median {middle:.4g})"


def _speeds(samples: np.ndarray) -> tuple[int, tuple[float, float]]:
    """Number of modes: gaps between neighbouring samples, within the middle 90 %, that hold a tenth of its range."""
    ordered = np.sort(samples)
    middle = ordered[int(0.05 * ordered.size) : math.ceil(0.95 * ordered.size)]
    gaps = np.diff(middle)
    if middle.size < 20 or not gaps.any():
        return 1, (0.0, 0.0)
    wide = np.flatnonzero(gaps > max(0.1 * np.ptp(middle), 20 * float(np.median(gaps))))
    if not wide.size:
        return 1, (0.0, 0.0)
    place = int(gaps.argmax())
    return int(wide.size) + 1, (float(middle[place]), float(middle[place + 1]))


def ties(samples: np.ndarray) -> Mapping[str, Any]:
    """Tell how coarse the clock was: share of samples that equal another, distinct values, its step over the median.

    Example:
        >>> ties(np.array([1.0, 1.0, 1.5, 2.0]))
        {'tied': 0.5, 'distinct': 3, 'step': 0.4}
    """
    distinct, counts = np.unique(samples, return_counts=True)
    middle = float(np.median(samples))
    step = float(np.diff(distinct).min()) / abs(middle) if distinct.size > 1 and middle else None
    return {"tied": float(counts[counts > 1].sum() / samples.size), "distinct": int(distinct.size), "step": step}


def coarse(known: Mapping[str, Any]) -> str:
    """A warning if the clock was so coarse that ties take power from every rank test (see :func:`ties`), else empty.

    Example:
        >>> print(coarse(ties(np.array([1.0, 1.1] * 50))))
        coarse clock: 100% of the samples equal another, steps of 9.5% of the median; time several calls as one
    """
    step = known["step"]
    if known["tied"] <= MANY_TIES or step is None or step <= COARSE_STEP:
        return ""
    return (
        f"coarse clock: {known['tied']:.0%} of the samples equal another, steps of {step:.1%} of the median; "
        "time several calls as one"
    )
