"""Quantile regression: how a quantile of a time depends on several factors at once (``value ~ factors``).

A comparison of two runs answers one question. Where several things differ (framework, batch size, threads), the
quantile is regressed on all of them (Koenker and Bassett 1978): each coefficient is what changing that factor alone
does to the quantile. The fit is statsmodels' ``QuantReg``, made on values of spread 1 (its iteration has an absolute
tolerance of 1e-6, as large as many times) and then moved to the exact solution nearby, which passes through as many
samples as there are coefficients. Textbook standard errors assume independent samples; those of one launch are not, so
errors come from drawing whole launches again (cluster bootstrap; Cameron, Gelbach and Miller 2008).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.errors import InputError, MissingBackend
from deep500.measure.dependence import finite

BASE = "(base)"
"""Name of the intercept: the quantile where every number is 0 and every factor has its first level."""


@dataclass(frozen=True)
class QuantileFit:
    """Coefficients of a quantile.

    Attributes:
        q: which quantile, 0.5 for the median.
        names: of the coefficients: ``"(base)"``, the name of a numeric factor, or ``"factor[level]"``.
        coefficients: in the unit of the values (per unit of a numeric factor).
        errors: standard errors; None where too few launches allow none.
        low, high: ends of the intervals; None likewise.
        level: their confidence level.
        n: number of samples.
        launches: number of launches, 0 if they were not given.
    """

    q: float
    names: tuple[str, ...]
    coefficients: np.ndarray
    errors: np.ndarray | None
    low: np.ndarray | None
    high: np.ndarray | None
    level: float
    n: int
    launches: int

    def __getitem__(self, name: str) -> tuple[float, float | None, float | None]:
        """One coefficient and its interval; raises InputError for a name that has none."""
        if name not in self.names:
            raise InputError(f"got coefficient {name!r}; expected one of {list(self.names)}: was the factor given?")
        at = self.names.index(name)
        if self.low is None or self.high is None:
            return float(self.coefficients[at]), None, None
        return float(self.coefficients[at]), float(self.low[at]), float(self.high[at])

    def __str__(self) -> str:
        lines = []
        for name in self.names:
            value, low, high = self[name]
            ends = "no interval" if low is None else f"{self.level:.0%} CI {low:.4g} to {high:.4g}"
            lines.append(f"{name}: {value:.4g} ({ends})")
        return "\n".join(lines)


def quantile_regression(
    values: Any,
    factors: Mapping[str, Any],
    q: float = 0.5,
    launches: Any = None,
    level: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
) -> QuantileFit:
    """Regress quantile ``q`` of the values on factors.

    Launches in which no factor of words changes are drawn within their own combination of levels, so that no level is
    lost. Intervals are Student's with as many degrees of freedom as there are launches more than such combinations.

    Args:
        values: n samples, for instance seconds.
        factors: per name n numbers, or n words, of which the first that appears is the base of the others.
        q: between 0 and 1.
        launches: n labels; samples of one launch (process, seed) depend on each other. None: no errors are given.
        level: of the intervals.
        resamples: how often the launches are drawn again.
        seed: of that.

    Raises:
        InputError: lengths differ, a number is not finite, or a factor follows from the others.
        MissingBackend: statsmodels is not installed.

    Example:
        >>> fit = quantile_regression([1.0, 2.0, 3.0, 11.0, 12.0, 13.0], {"host": ["a"] * 3 + ["b"] * 3})
        >>> fit["host[b]"]
        (10.0, None, None)
    """
    samples = finite(values)
    if not 0 < q < 1 or not 0 < level < 1 or resamples < 2:
        raise InputError(
            f"got q={q}, level={level}, resamples={resamples}; expected 0 < q < 1, 0 < level < 1, 2 or more"
        )
    names, design = _design(factors, samples.size)
    coefficients = _exact(samples, design, _fit(samples, design, q), q)
    errors = low = high = None
    count = 0
    if launches is not None:
        groups, strata = _groups(launches, factors, samples.size)
        count, free = len(groups), len(groups) - len(set(strata))
        if all(strata.count(stratum) > 1 for stratum in strata):
            errors = _bootstrap(samples, design, q, groups, strata, resamples, seed)
            errors = errors * np.sqrt(count / free)  # drawing g of g launches has (g - 1) / g of the variance
            low, high = _interval(coefficients, errors, level, free)
    return QuantileFit(q, names, coefficients, errors, low, high, level, samples.size, count)


def _interval(middle: np.ndarray, errors: np.ndarray, level: float, free: int) -> tuple[np.ndarray, np.ndarray]:
    from scipy.stats import t

    half = t.ppf(1 - (1 - level) / 2, free) * errors
    return middle - half, middle + half


def _design(factors: Mapping[str, Any], n: int) -> tuple[tuple[str, ...], np.ndarray]:
    """Names and columns: one for the base, one for a numeric factor, one for each level of words but the first."""
    names, columns = [BASE], [np.ones(n)]
    for name, factor in factors.items():
        column = np.asarray(factor)
        if column.shape != (n,):
            raise InputError(f"factor {name!r}: got shape {column.shape}; expected ({n},): one entry per sample")
        if column.dtype.kind in "biuf":
            names.append(name)
            columns.append(finite(column))
        else:
            for level in list(dict.fromkeys(column.tolist()))[1:]:
                names.append(f"{name}[{level}]")
                columns.append((column == level).astype(np.float64))
    design = np.column_stack(columns)
    if n < design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
        raise InputError(
            f"got {n} samples and factors {list(factors)} that follow from each other or never change; expected more "
            "samples than coefficients, and factors that vary on their own: leave one out"
        )
    return tuple(names), design


def _fit(samples: np.ndarray, design: np.ndarray, q: float) -> np.ndarray:
    """statsmodels' solution, on values and columns brought to a spread of about 1."""
    try:
        from statsmodels.regression.quantile_regression import QuantReg
    except ImportError as error:
        raise MissingBackend(
            "got no package 'statsmodels'; expected it installed for quantile regression: pip install 'deep500[stats]'"
        ) from error
    import warnings

    middle, scale = float(np.median(samples)), float(np.std(samples)) or 1.0
    widths = np.abs(design).max(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of its covariance, which is not used, and of slow convergence
        fit = QuantReg((samples - middle) / scale, design / widths).fit(q=q, p_tol=1e-10, max_iter=1000)
    coefficients = np.asarray(fit.params) / widths * scale
    coefficients[0] += middle
    return coefficients


def _exact(samples: np.ndarray, design: np.ndarray, near: np.ndarray, q: float) -> np.ndarray:
    """The best solution through as many samples as there are coefficients, close to an approximate one."""
    chosen: list[int] = []
    for row in np.argsort(np.abs(samples - design @ near), kind="stable"):
        if np.linalg.matrix_rank(design[[*chosen, row]]) > len(chosen):
            chosen.append(int(row))
        if len(chosen) == design.shape[1]:
            break
    through = np.linalg.solve(design[chosen], samples[chosen])
    return through if _loss(samples, design, through, q) <= _loss(samples, design, near, q) else near


def _loss(samples: np.ndarray, design: np.ndarray, coefficients: np.ndarray, q: float) -> float:
    """Compute the loss that quantile regression minimizes (Koenker and Bassett 1978, equation 3.1)."""
    rest = samples - design @ coefficients
    return float(np.maximum(q * rest, (q - 1) * rest).sum())


def _groups(launches: Any, factors: Mapping[str, Any], n: int) -> tuple[list[np.ndarray], list[tuple[Any, ...]]]:
    """The rows of each launch, and the levels of all factors of words that it has."""
    labels = np.asarray(launches)
    if labels.shape != (n,):
        raise InputError(f"launches: got shape {labels.shape}; expected ({n},): one label per sample")
    words = [column for column in map(np.asarray, factors.values()) if column.dtype.kind not in "biuf"]
    groups = [np.flatnonzero(labels == label) for label in dict.fromkeys(labels.tolist())]
    return groups, [tuple(frozenset(column[rows].tolist()) for column in words) for rows in groups]


def _bootstrap(
    samples: np.ndarray,
    design: np.ndarray,
    q: float,
    groups: list[np.ndarray],
    strata: list[tuple[Any, ...]],
    resamples: int,
    seed: int,
) -> np.ndarray:
    """Standard deviation of the coefficients when launches are drawn again, each stratum on its own."""
    rng = np.random.default_rng(seed)
    parts = [[g for g, s in zip(groups, strata, strict=True) if s == stratum] for stratum in dict.fromkeys(strata)]
    fits = []
    for _ in range(resamples):
        drawn = [part[k] for part in parts for k in rng.integers(0, len(part), len(part))]
        rows = np.concatenate(drawn)
        if np.linalg.matrix_rank(design[rows]) == design.shape[1]:  # numeric factors can coincide by chance
            fits.append(_fit(samples[rows], design[rows], q))
    if len(fits) < resamples / 2:
        raise InputError(
            f"got factors that most draws of {len(groups)} launches cannot tell apart; expected several launches for "
            "every setting: measure more"
        )
    return np.std(fits, axis=0, ddof=1)
