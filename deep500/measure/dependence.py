"""Autocorrelation times: how many independent samples a time series is worth.

Times measured one after another are not independent: a slow moment lasts. A series of n samples is worth about
``n / tau`` independent ones, tau being the integrated autocorrelation time (Sokal 1997), summed over the initial
positive pairs of lags (Geyer 1992, section 3.3). What counts is the longest of several (:func:`longest_time`): a series
that happens to look independent at one threshold seldom does so at all.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deep500.errors import InputError

THRESHOLDS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
"""Quantiles at which dependence is looked for: two speeds, rare bursts and slow waves show at different ones."""

NOISE = 1.5
"""Pairs of correlations below this many of their standard deviations, of independent samples, count as noise there."""


def finite(samples: Any) -> np.ndarray:
    """Samples as a vector of float64; raises InputError for none, for other shapes, NaN and infinities."""
    values = np.asarray(samples, np.float64)
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        odd = "" if values.ndim != 1 else f" with {int((~np.isfinite(values)).sum())} of them not finite"
        raise InputError(f"got samples of shape {values.shape}{odd}; expected a list of finite numbers: find out why")
    return values


def autocorrelation_time(series: Any) -> float:
    """Integrated autocorrelation time of a series, at least 1: ``1 + 2 sum r_k`` over the initial positive pairs.

    The sum is over the pairs of lags until the first pair that is not positive (Geyer 1992, section 3.3).

    Example:
        >>> autocorrelation_time([0, 1, 0, 1, 0, 1, 0, 1])
        1.0
    """
    return _times(np.asarray(series, np.float64)[None], 0.0)[0][0]


def longest_time(samples: Any, q: float = 0.5) -> tuple[float, float]:
    """The longest autocorrelation time of a series, and the same with its error.

    The largest of those of "is this sample at most the threshold?", for the quantiles :data:`THRESHOLDS` and ``q``, and
    of that of the ranks. Its error, where the correlation reaches beyond two lags: a standard deviation of the estimate
    is a share ``sqrt(2 (2 M + 1) / n)`` of it with a window of M lags (Madras and Sokal 1988).

    Example:
        >>> longest_time(np.random.default_rng(1).random(1000))
        (1.0, 1.0)
    """
    from scipy.stats import rankdata

    values = finite(samples)
    ordered, n = np.sort(values), values.size
    thresholds = {float(ordered[min(n - 1, int(p * n))]) for p in (*THRESHOLDS, q)}
    series = np.array([*(values <= threshold for threshold in sorted(thresholds)), rankdata(values)], np.float64)
    times = _times(series, NOISE)
    error = [math.sqrt(2 * (2 * lags + 1) / n) if lags > 2 else 0.0 for _, lags in times]
    return max(tau for tau, _ in times), max(tau * (1 + e) for (tau, _), e in zip(times, error, strict=True))


def _times(series: np.ndarray, noise: float) -> list[tuple[float, int]]:
    """Per row its autocorrelation time and the lags that it is summed over."""
    from scipy.fft import irfft, next_fast_len, rfft

    n = series.shape[1]
    centred = series - series.mean(axis=1, keepdims=True)
    if n < 4:
        return [(1.0, 0)] * len(series)
    length = next_fast_len(2 * n, real=True)
    spectrum = rfft(centred, length)
    covariance = irfft(spectrum * spectrum.conj(), length)[:, :n]
    return [
        _window(row[1 : n // 2] / row[0], n, noise) if values.any() else (1.0, 0)
        for row, values in zip(covariance, centred, strict=True)
    ]


def _window(r: np.ndarray, n: int, noise: float) -> tuple[float, int]:
    pairs = r[: r.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = np.flatnonzero(pairs <= noise * math.sqrt(2 / n))
    window = int(stop[0]) if stop.size else pairs.size
    if not window:
        return 1.0, 0
    tau = 1.0 + 2.0 * float(pairs[:window].sum())
    return max(1.0, tau * (1 + (4 * window + 1) / n)), 2 * window  # the mean was estimated as well (Wolff 2004)
