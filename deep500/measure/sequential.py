"""Pairs that are looked at after each of them: a p value and an interval that hold at every look, whenever one stops.

A test for a number of pairs that was fixed before finds differences where there are none if it is repeated until it
finds one. What holds at every look is a bet (Ramdas, Ruf, Larsson and Koolen 2020, "Admissible anytime-valid sequential
inference must rely on nonnegative martingales", arXiv:2009.03167, on symmetric distributions): without a difference the
sign of a pair is a fair coin, whatever its size, so that money staked on signs at even odds does not grow. Here the
stake on a pair of size ``x`` is the share ``tanh(c x / s)`` of the money, ``s`` being the median size of the pairs so
far: that is what a normal distribution shifted by ``c s`` would have one stake; more than :data:`MOST` is never staked,
so that a pair far from all others does not decide. The money is spread evenly over both signs and the values
:data:`SHIFTS` of ``c``. Without a difference it is ever 20 times what it was with a probability of at most 1 in 20
(Ville 1939), so that one over it is a p value. The interval holds the shifts at which the rest would still be such a
coin. Seven pairs with the same sign are the fewest that show anything at 5 %.

That a pair's sign is a coin follows from turns in random order, not from the pairs: what outlasts a pair and belongs to
one of the sides is no coin. So pairs must not show dependence, see :func:`depends`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deep500.measure.dependence import finite
from deep500.measure.launch_comparison import dependence, pairs_to_find
from deep500.measure.statistics import Interval, log_ratios

SHIFTS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Differences, in units of the pairs' size, for which stakes are laid."""

MOST = 0.9
"""The largest share of the money that is staked on one pair."""

FEWEST = 12
"""Pairs before which their dependence cannot be told from chance, so that there is no verdict."""

INDEPENDENT = 0.3
"""Pairs with a smaller p value of independence depend on each other. With this value, looked at after every pair, those
that do by an AR(1) of 0.9 are called unlike in 5 % of comparisons (``python -m tests.benchmarks.launches``)."""

LOOKS = 2.25
"""As many times more pairs are needed as if their number were fixed before; simulated for 80 % of effects of 0.5 and 1
standard deviations."""

POINTS, ROUNDS = 65, 6
"""Shifts that are tried for an interval, and how often again around its ends."""


def evidence(differences: Sequence[float] | np.ndarray, shift: float = 0.0) -> float:
    """How many times the money has become that was staked on the signs of differences, in their order.

    Args:
        differences: of pairs, such as log ratios of times.
        shift: the difference that there is by assumption; the evidence is against it.

    Raises:
        InputError: no differences, or some that are no finite numbers.

    Example:
        >>> evidence([1.0] * 6) < 20 < evidence([1.0] * 7)
        True
    """
    return float(np.exp(_log_evidence(finite(differences), np.array([shift]))[0]))


def anytime_p(differences: Sequence[float] | np.ndarray) -> float:
    """Two-sided p value that pairs do not differ, which holds at every look.

    Example:
        >>> anytime_p([0.1, -0.1, 0.1, -0.1])
        1.0
    """
    return min(1.0, 1 / evidence(differences))


def anytime_ratio(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> Interval:
    """Median of ``second[i] / first[i]`` of costs measured in turns, with an interval that holds at every look.

    Raises:
        InputError: not the same number of positive costs on both sides.

    Example:
        >>> anytime_ratio([1.0] * 8, [1.1, 1.2, 1.1, 1.0, 1.2, 1.1, 1.1, 1.1]).low > 1
        True
    """
    logs = log_ratios(first, second)
    middle = float(np.median(logs))
    ends = anytime_interval(logs, level)
    if ends is None:
        return Interval(math.exp(middle), None, None, logs.size, level)
    return Interval(math.exp(middle), math.exp(min(ends[0], middle)), math.exp(max(ends[1], middle)), logs.size, level)


def anytime_interval(differences: Sequence[float] | np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """The shifts that pairs do not speak against at this level, at every look; None with too few pairs for one.

    Example:
        >>> anytime_interval([1.0] * 6) is None
        True
        >>> low, high = anytime_interval([0.9, 1.0, 1.1] * 4)
        >>> 0.8 < low < 1.0 < high < 1.2
        True
    """
    values, bound = finite(differences), -math.log(1 - level)
    spread = float(np.ptp(values)) or abs(float(values[0])) * 1e-9 or 1e-12
    far = 1e6 * spread
    if _log_evidence(values, np.array([values.min() - far, values.max() + far])).min() < bound:
        return None
    low = _end(values, bound, values.min() - far, float(np.median(values)))
    high = _end(values, bound, values.max() + far, float(np.median(values)))
    return low, high


def _end(values: np.ndarray, bound: float, outside: float, inside: float) -> float:
    """The shift farthest from the inside that is not spoken against, by ever finer grids towards it."""
    for turn in range(ROUNDS):
        parts = np.geomspace(1e-9, 1.0, POINTS) if turn == 0 else np.linspace(0.0, 1.0, POINTS)
        points = inside + (outside - inside) * np.concatenate([[0.0], parts])
        open_ = np.flatnonzero(_log_evidence(values, points) < bound)
        last = int(open_[-1]) if open_.size else 0
        inside, outside = float(points[last]), float(points[min(last + 1, points.size - 1)])
    return outside


def _log_evidence(values: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Logarithm of the evidence against each shift."""
    rest = values - shifts[:, None]
    medians = np.stack([np.median(np.abs(rest[:, :n]), axis=1) for n in range(1, values.size + 1)], axis=1)
    sizes = np.where(medians > 0, medians, 1e-300)
    stakes = np.tanh(np.array(SHIFTS)[:, None, None] * np.clip(rest / sizes, -1e3, 1e3)).clip(-MOST, MOST)
    wealth = np.stack([np.log1p(stakes).sum(axis=2), np.log1p(-stakes).sum(axis=2)])
    return np.logaddexp.reduce(wealth.reshape(-1, shifts.size), axis=0) - math.log(2 * len(SHIFTS))


def anytime_pairs(effect: float, scatter: float) -> int:
    """About how many pairs find an effect four times in five; compare :func:`pairs_to_find`.

    Example:
        >>> anytime_pairs(0.03, 0.05), anytime_pairs(0.03, 0.005)
        (54, 14)
    """
    return max(FEWEST, math.ceil(LOOKS * pairs_to_find(effect, scatter)))


def depends(differences: Sequence[float] | np.ndarray) -> str:
    """Return why pairs have no verdict yet: too few to tell whether they depend on each other, or they do; else empty.

    Example:
        >>> depends([1.0, 2.0]), depends(np.random.default_rng(0).random(20))
        ('2 pairs: 12 tell whether they depend on each other', '')
    """
    values = finite(differences)
    if values.size < FEWEST:
        pairs = "1 pair" if values.size == 1 else f"{values.size} pairs"
        return f"{pairs}: {FEWEST} tell whether they depend on each other"
    p = dependence([values])
    return f"pairs depend on those before them, by von Neumann's ratio with p {p:.2g}" if p < INDEPENDENT else ""
