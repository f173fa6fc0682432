"""Intervals of quantiles: SciPy's exact ranks, coverage on heavy tails, coverage on dependent samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import quantile_test

from deep500.errors import InputError
from deep500.measure.dependence import autocorrelation_time
from deep500.measure.quantiles import quantile, samples_needed

HEAVY = {
    "lognormal": (lambda rng, n: rng.lognormal(0, 1, n), lambda p: math.exp(_normal(p))),
    "pareto": (lambda rng, n: rng.pareto(1.5, n) + 1, lambda p: (1 - p) ** (-1 / 1.5)),
}


def _normal(p: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf(p))


def autoregressive(rng: np.random.Generator, n: int, phi: float, sigma: float = 0.3) -> np.ndarray:
    """Log-normal times with AR(1) noise and 5 % Pareto spikes."""
    noise = lfilter([math.sqrt(1 - phi * phi)], [1, -phi], rng.standard_normal(n + 100))[100:]
    return np.exp(sigma * noise) * (1 + (rng.random(n) < 0.05) * rng.pareto(1.5, n))


@pytest.mark.parametrize("n", [5, 6, 7, 36, 37, 100, 999])
@pytest.mark.parametrize("q", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_independent_samples_get_scipys_exact_ranks(n, q, level):
    samples = np.random.default_rng(n).random(n)
    expected = quantile_test(samples, p=q).confidence_interval(level)
    estimate = quantile(samples, q, level, independent=True)
    if np.isnan(expected.low) or np.isnan(expected.high):
        assert estimate.low is None and estimate.method == "n too small"
    else:
        assert (estimate.low, estimate.high) == (expected.low, expected.high)


@pytest.mark.parametrize("kind", HEAVY)
@pytest.mark.parametrize(("q", "n"), [(0.5, 10), (0.5, 100), (0.9, 50), (0.99, 400)])
def test_coverage_on_heavy_tails(kind, q, n):
    draw, truth = HEAVY[kind]
    rng, trials = np.random.default_rng(1), 800
    estimates = [quantile(draw(rng, n), q, 0.95, independent=True) for _ in range(trials)]
    covered = np.mean([e.low <= truth(q) <= e.high for e in estimates])
    assert covered >= 0.93


@pytest.mark.parametrize(("phi", "n", "share"), [(0.5, 300, 0.9), (0.7, 600, 0.95), (0.9, 2000, 0.9)])
def test_coverage_on_dependent_samples_where_the_textbook_interval_fails(phi, n, share):
    rng, trials = np.random.default_rng(2), 300
    truth = np.median(autoregressive(rng, 2_000_000, 0.0))
    series = [autoregressive(rng, n, phi) for _ in range(trials)]
    estimates = [quantile(x) for x in series]
    naive = [quantile(x, independent=True) for x in series]
    given_one = [e for e in estimates if e.low is not None]
    assert len(given_one) >= share * trials
    assert np.mean([e.low <= truth <= e.high for e in given_one]) >= 0.92
    assert np.mean([e.low <= truth <= e.high for e in naive]) < 0.91, "the test does not bite"


def test_interval_is_hardly_wider_than_the_asymptotic_one():
    rng = np.random.default_rng(3)
    estimates = [quantile(rng.standard_normal(1000), independent=True) for _ in range(200)]
    oracle = 2 * 1.96 * math.sqrt(math.pi / 2 / 1000)
    assert np.mean([e.high - e.low for e in estimates]) <= 1.25 * oracle


@pytest.mark.parametrize(("q", "n"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_quantiles_say_when_n_is_too_small(q, n):
    samples = np.random.default_rng(4).random(n)
    assert samples_needed(q) == n
    assert quantile(samples, q, independent=True).low is not None
    short = quantile(samples[1:], q, independent=True)
    assert short.low is None and short.precision == math.inf and "n too small" in str(short)


@given(st.lists(st.floats(0.001, 1e6), min_size=30, max_size=80), st.floats(0.01, 100), st.floats(0.55, 0.9))
def test_intervals_scale_with_the_unit_and_grow_with_the_level(samples, factor, level):
    base, scaled = (quantile(values, level=level, independent=True) for values in (samples, np.array(samples) * factor))
    wider = quantile(samples, level=0.95, independent=True)
    assert scaled.value == pytest.approx(base.value * factor)
    if wider.low is not None:
        assert wider.low <= base.low <= base.value <= base.high <= wider.high


def test_a_constant_series_is_known_exactly():
    estimate = quantile([2.0] * 50)
    assert (estimate.low, estimate.value, estimate.high, estimate.tau) == (2.0, 2.0, 2.0, 1.0)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf], [[1.0]]])
def test_impossible_samples_are_refused(samples):
    with pytest.raises(InputError, match="expected a list of finite numbers"):
        quantile(samples)


def test_autocorrelation_time_of_an_ar1_process():
    rng = np.random.default_rng(5)
    noise = lfilter([1.0], [1, -0.8], rng.standard_normal(200_000))
    assert autocorrelation_time(noise) == pytest.approx((1 + 0.8) / (1 - 0.8), rel=0.1)
