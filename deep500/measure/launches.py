"""Launches as clusters: an interval over launches (processes, seeds), where there are enough, else within them.

Samples of one launch share its memory layout, its clock frequency and its neighbours, so a thousand of them say little
about the next launch. Intervals from all samples of several launches together are too narrow (with launches 2 % apart
an interval of "95 %" covers 45 %). With enough launches each counts as one value, its own quantile; these values are
independent, and their exact rank interval assumes nothing else, except that most launches kept their level. With fewer,
samples are pooled, and the interval holds *within* the launches that were measured, if each of them is a time series
that may have a result (:mod:`deep500.measure.standing`) and they do not visibly differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deep500.errors import InputError
from deep500.measure.dependence import autocorrelation_time, finite
from deep500.measure.quantiles import OBSERVED, Estimate, quantile, quantile_of_worth, samples_needed, without_interval
from deep500.measure.standing import MIN_NEFF, OBSERVATION, RESULT
from deep500.measure.steady import SteadyState, examine

LAUNCHES, WITHIN, SHARED = "launches", "within launches", "within launches of one process"
"""Population of an interval: all launches that there might be, or those that were measured, perhaps in one process."""

DIFFER = 0.01
"""Launches with a smaller p value of Kruskal and Wallis's test differ."""

MOST_UNSTEADY = 0.5
"""The largest part of the launches that may lack a steady state: the median over launches is one of the others."""

FEWEST_TO_COMPARE = 5
DEPENDENT = 1.5
"""From this autocorrelation time on, samples are thinned before a test that assumes that they are independent."""


@dataclass(frozen=True)
class LaunchEstimate:
    """A quantile over several launches.

    Attributes:
        estimate: the quantile with its interval, None for an observation; over launches its value is the median of the
            launches' quantiles, and its method ``"ranks of launches"``. ``n``, ``n_eff`` and ``tau`` are of all.
        cluster: ``"launches"``, ``"within launches"`` or ``"within launches of one process"``, see :data:`LAUNCHES`.
        launches: how many there were.
        cv: standard deviation of the launches' quantiles over their mean; None where it is not known.
        differ_p: p value of Kruskal and Wallis's test that launches do not differ; None where it was not made.
    """

    estimate: Estimate
    cluster: str
    launches: int
    cv: float | None
    differ_p: float | None

    @property
    def differ(self) -> bool:
        """Return whether launches visibly differ."""
        return self.differ_p is not None and self.differ_p < DIFFER

    @property
    def standing(self) -> str:
        """``"result"`` over launches, ``"result within ..."``, or ``"observation"``: no interval to be trusted."""
        if self.estimate.low is None:
            return OBSERVATION
        return RESULT if self.cluster == LAUNCHES else f"{RESULT} {self.basis}"

    @property
    def reason(self) -> str:
        """The reason why it is an observation; empty for a result."""
        return self.estimate.reason

    @property
    def basis(self) -> str:
        """Basis of the interval, in words: ``"over 8 launches"``, ``"within one launch"``."""
        return basis(self.launches, self.cluster)

    def __str__(self) -> str:
        return f"{self.estimate}, {self.basis}"


def basis(launches: int, cluster: str) -> str:
    """Return what an interval holds over, in words.

    Example:
        >>> basis(8, LAUNCHES), basis(3, WITHIN), basis(1, WITHIN), basis(8, SHARED)
        ('over 8 launches', 'within 3 launches', 'within one launch', 'within 8 launches of one process')
    """
    if cluster == LAUNCHES:
        return f"over {launches} launches"
    if launches == 1:
        return "within one launch"
    return f"within {launches} launches" + (" of one process" if cluster == SHARED else "")


def launches_needed(level: float = 0.95) -> int:
    """Fewest launches that have an interval over launches.

    Example:
        >>> launches_needed(), launches_needed(0.99)
        (6, 8)
    """
    return samples_needed(0.5, level)


def own_quantile(samples: np.ndarray, q: float) -> float | None:
    """The median-unbiased quantile of one launch (Hyndman and Fan 1996, definition 8); None with too few samples.

    Unbiased, since the median over many launches keeps what bias each of them has: the largest of ten samples lies
    above the 90th percentile in two of three launches.

    Example:
        >>> round(own_quantile(np.arange(10.0), 0.9), 2), own_quantile(np.arange(10.0), 0.99)
        (8.63, None)
    """
    place = q * (samples.size + 1 / 3) + 1 / 3
    if not 1 - 1e-9 <= place <= samples.size + 1e-9:
        return None
    return float(np.quantile(samples, q, method="median_unbiased"))


def over_launches(
    launches: Sequence[np.ndarray],
    q: float = 0.5,
    level: float = 0.95,
    differ_p: float | None = None,
    steady: Sequence[SteadyState] | None = None,
    min_neff: float = MIN_NEFF,
    shared: bool = False,
) -> LaunchEstimate:
    """A quantile with an interval over launches, or within them where launches are too few or too short.

    Args:
        launches: samples of each launch after its warm-up, in the order in which they were taken.
        q: which quantile.
        level: confidence level.
        differ_p: :func:`launches_differ` of the same launches, if it is known already.
        steady: what is known of each launch; they are examined if None.
        min_neff: how many independent samples a result within launches must rest on, if more than 50.
        shared: whether launches share a process: what differs between processes shows in none of them, and what lasts
            in one makes them alike, so that there is no interval over launches, however many there are.

    Raises:
        InputError: no launches, an empty one, or samples that are no finite numbers.

    Example:
        >>> print(over_launches([np.full(9, 1.0 + 0.01 * k) for k in range(8)]))
        1.035 (median of 72, 95% CI 1-1.07), over 8 launches
    """
    if not launches:
        raise InputError("got no launches; expected the samples of one at least: measure first")
    groups = [finite(launch) for launch in launches]
    states = [examine(group) for group in groups] if steady is None else steady
    values = [own_quantile(group, q) for group in groups]
    known = [value for value in values if value is not None]
    spread = float(np.std(known, ddof=1) / np.mean(known)) if len(known) > 1 and np.mean(known) else None
    p = launches_differ(groups) if differ_p is None else differ_p
    estimates = [
        quantile(group, q, level, steady=state, min_neff=min_neff, parts=len(groups))
        for group, state in zip(groups, states, strict=True)
    ]
    whole = np.concatenate(groups)
    # samples depend on each other within a launch, not between launches
    pooled = quantile_of_worth(whole, whole.size / sum(estimate.n_eff for estimate in estimates), q, level)
    if shared or len(known) < len(groups) or len(groups) < launches_needed(level):
        why = _against_pooling(estimates, p, level)
        cluster = SHARED if shared and len(groups) > 1 else WITHIN
        return LaunchEstimate(without_interval(pooled, why) if why else pooled, cluster, len(groups), spread, p)
    own_median = quantile(known, 0.5, level, independent=True)
    middle, low, high = own_median
    estimate = replace(pooled, median=middle, low=low, high=high, method="ranks of launches", reason="")
    unsteady = [str(number) for number, state in enumerate(states, 1) if not state.is_steady]
    if len(unsteady) > MOST_UNSTEADY * len(groups):
        why = f"no steady state in launches {', '.join(unsteady)}, more than half of them"
        estimate = without_interval(estimate, why)
    return LaunchEstimate(estimate, LAUNCHES, len(groups), spread, p)


def _against_pooling(estimates: Sequence[Estimate], p: float | None, level: float) -> str:
    """Return why the samples of few launches are no result together; empty if they are."""
    for number, estimate in enumerate(estimates, 1):
        if estimate.method == OBSERVED:
            return estimate.reason if len(estimates) == 1 else f"launch {number}: {estimate.reason}"
    if p is not None and p < DIFFER:
        needed = f"{launches_needed(level)} have an interval over launches"
        return f"launches differ (Kruskal-Wallis p {p:.2g}), {needed}" + " if each is a process" * (len(estimates) > 5)
    return ""


def launches_differ(launches: Sequence[np.ndarray]) -> float | None:
    """p value of Kruskal and Wallis's test on nearly independent samples of each launch; None if too few.

    The test assumes independent samples; of dependent ones it would find differences where there are none.
    """
    if len(launches) < 2:
        return None
    thinned = {str(number): nearly_independent(launch) for number, launch in enumerate(launches)}
    if min(map(len, thinned.values())) < FEWEST_TO_COMPARE:
        return None
    return groups_differ(thinned)


def groups_differ(groups: Mapping[str, np.ndarray]) -> float:
    """p value of Kruskal and Wallis's test that unpaired groups (launches, ranks, systems) have one distribution.

    Raises:
        InputError: fewer than two groups, or one with fewer than five values.

    Example:
        >>> groups_differ({"a": np.arange(10.0), "b": np.arange(10.0) + 100}) < 0.001
        True
    """
    if len(groups) < 2 or min(len(values) for values in groups.values()) < 5:
        raise InputError(
            f"got groups of {[len(values) for values in groups.values()]} values; expected at least two groups of five"
        )
    values = [np.asarray(group, np.float64) for group in groups.values()]
    if np.ptp(np.concatenate(values)) == 0:
        return 1.0  # the test is undefined where nothing differs
    from scipy.stats import kruskal

    return float(kruskal(*values).pvalue)


def nearly_independent(samples: np.ndarray) -> np.ndarray:
    """Samples of a launch so far apart that they hardly depend on each other.

    All of them if the autocorrelation time tau of "is it at most the median?" is below 1.5, else every 2 tau-th.
    """
    tau = autocorrelation_time(samples <= np.median(samples))
    return samples if tau < DEPENDENT else samples[:: math.ceil(2 * tau)]
