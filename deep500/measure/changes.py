"""Changes in the level of a series: steps up and down, and drift. What changes has no single number.

Steps are found on ranks, so that spikes weigh no more than other samples. Under one level the cumulated centred ranks
are a Brownian bridge (Wilcoxon's test at an unknown place: Pettitt 1979); its range, Kuiper's statistic, sees a change
that is undone later, too (the epidemic alternative of Levin and Kline 1985). Dependence is corrected for by the
autocorrelation time of what is left when the levels are taken out, for otherwise a change would hide itself behind the
dependence that it looks like (Dehling, Fried and Wendler 2020). Drift is Kendall's test on medians of groups long
enough to be independent.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from deep500.measure.dependence import autocorrelation_time, finite

FEWEST = 20
"""Shorter stretches are not split."""


def change_points(samples: Any, alpha: float = 0.001) -> tuple[int, ...]:
    """Return the numbers of the samples at which the level changes, found by repeated splitting.

    Example:
        >>> steps = np.repeat([1.0, 1.3, 1.0], 100) + np.random.default_rng(0).normal(0, 0.02, 300)
        >>> change_points(steps)
        (100, 200)
    """
    values = finite(samples)
    points: list[int] = []
    stretches = [(0, values.size)]
    while stretches:
        begin, end = stretches.pop()
        p, places = level_change(values[begin:end])
        if p >= alpha:
            continue
        edges = [begin, *(begin + place for place in places), end]
        points += edges[1:-1]
        stretches += [(low, high) for low, high in pairwise(edges) if FEWEST <= high - low < end - begin]
    return tuple(sorted(points))


def level_change(samples: Any) -> tuple[float, tuple[int, ...]]:
    """p value of "the level is the same throughout", and the one or two places where it would change.

    Example:
        >>> p, places = level_change([1.0, 1.1, 0.9, 1.05] * 10 + [2.0, 2.1, 1.9, 2.05] * 10)
        >>> p < 0.001, places
        (True, (40,))
    """
    from scipy.stats import rankdata

    values = finite(samples)
    ranks = rankdata(values) - (values.size + 1) / 2
    if values.size < FEWEST or not ranks.any():
        return 1.0, ()
    bridge = np.concatenate([[0.0], np.cumsum(ranks)])
    places = tuple(sorted({int(bridge.argmax()), int(bridge.argmin())} - {0, values.size}))
    tau = autocorrelation_time(without_levels(ranks, places))
    statistic = float(np.ptp(bridge)) / math.sqrt(float((ranks * ranks).mean()) * values.size * tau)
    return _kuiper(statistic), places


def without_levels(values: np.ndarray, places: tuple[int, ...]) -> np.ndarray:
    """Values minus the mean of their stretch between the places."""
    return np.concatenate([part - part.mean() for part in np.split(values, places) if part.size])


def _kuiper(x: float) -> float:
    """Probability that the range of a Brownian bridge is above x (Kuiper 1960)."""
    if x < 0.5:
        return 1.0
    square = (np.arange(1, 20) * x) ** 2
    return float(np.clip(2 * np.sum((4 * square - 1) * np.exp(-2 * square)), 0, 1))


def trend(samples: np.ndarray) -> tuple[float | None, float]:
    """Kendall's p on medians of groups long enough to be independent, and the relative change of the level.

    The change is from the first third to the last; p is None where there are fewer than eight groups.
    """
    from scipy.stats import kendalltau

    third = max(1, samples.size // 3)
    first, final = np.median(samples[:third]), np.median(samples[-third:])
    change = float((final - first) / first) if first else 0.0
    # between the middles of the thirds
    slope = (final - first) / (samples.size - third) if samples.size > third else 0.0
    detrended = samples - slope * np.arange(samples.size)
    tau = autocorrelation_time(detrended <= np.median(detrended))
    size = 1 if tau < 1.5 else math.ceil(2 * tau)
    groups = samples.size // size
    if groups < 8:
        return None, change
    medians = np.median(samples[: groups * size].reshape(groups, size), axis=1)
    if np.ptp(medians) == 0:
        return 1.0, change
    return float(kendalltau(np.arange(groups), medians).pvalue), change
