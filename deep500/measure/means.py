"""The right mean of numbers, by what kind of number they are (Hoefler and Belli 2015, rules 3 and 4).

Costs (seconds, joules) are averaged as they are. Rates (samples/s) are not: three equal pieces of work at 10, 1 and 2.5
per second take as long as three at 2, not at 4.5. Ratios (speedups) should not be averaged at all, but their costs; if
there is nothing else, the geometric mean at least does not depend on which of the two is the base.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.measure.dependence import finite

KINDS = {"cost": "arithmetic", "rate": "harmonic", "ratio": "geometric", "quality": "median"}
"""Kind of a metric (see :class:`deep500.metrics.Metric`) -> the mean that fits it."""


def mean(values: Any, kind: str, weights: Any = None) -> float:
    """The mean that fits the kind of the values, in their unit.

    Args:
        values: one per run, workload or rank.
        kind: ``"cost"`` (arithmetic mean), ``"rate"`` (harmonic mean), ``"ratio"`` (geometric mean) or ``"quality"``
            (median, which takes no weights). A ``"count"`` is no quantity with a mean: it is exact, or it is wrong.
        weights: what each value stands for, all equal if None: repetitions of a cost or ratio, the work behind a rate.

    Raises:
        InputError: another kind, a value that is not finite, a rate or ratio that is not positive, weights that do not
            fit.

    Example:
        >>> mean([10.0, 1.0, 2.5], "rate"), mean([10.0, 1.0, 2.5], "cost")
        (2.0, 4.5)
    """
    numbers = finite(values)
    if kind not in KINDS:
        raise InputError(f"got values of kind {kind!r}; expected one of {', '.join(KINDS)}: a count has no mean")
    shares = np.ones(numbers.size) if weights is None else finite(weights)
    if (
        shares.shape != numbers.shape
        or (shares < 0).any()
        or not shares.any()
        or (kind == "quality" and weights is not None)
    ):
        raise InputError(
            f"got weights {weights!r} for {numbers.size} values of kind {kind!r}; expected as many that are not "
            "negative, and none for qualities"
        )
    if kind in ("rate", "ratio") and (numbers <= 0).any():
        raise InputError(f"got a {kind} of {numbers.min():g}; expected positive ones: what did no work has no rate")
    if kind == "quality":
        return float(np.median(numbers))
    if kind == "cost":
        return float(np.average(numbers, weights=shares))
    from scipy.stats import gmean, hmean

    # equal work at different rates takes 1/rate each: the mean that keeps the total time is the harmonic one
    return float((hmean if kind == "rate" else gmean)(numbers, weights=shares))


def total_rate(work: Any, seconds: Any) -> float:
    """Work per second over several runs or ranks: all work over all time, never a mean of rates.

    Args:
        work: items (samples, operations) of each.
        seconds: that each took.

    Raises:
        InputError: not as many of both, or a negative one, or no time at all.

    Example:
        >>> total_rate([100, 150], [1.0, 3.0])  # at 100/s and 50/s
        62.5
    """
    items, times = finite(work), finite(seconds)
    if items.shape != times.shape or (items < 0).any() or (times < 0).any() or not times.any():
        raise InputError(
            f"got {items.size} amounts of work and {times.size} times, from {times.min():g} s; expected a time for "
            "each, none negative, not all 0"
        )
    return float(items.sum() / times.sum())
