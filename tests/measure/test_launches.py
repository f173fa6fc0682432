"""Intervals over launches cover where samples of all launches together do not, and say what they hold over."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.measure.launches import LAUNCHES, WITHIN, launches_differ, launches_needed, over_launches, own_quantile
from deep500.measure.quantiles import quantile
from tests.measure.test_quantiles import autoregressive

pytestmark = pytest.mark.slow

TRIALS = 500


def draw(rng, launches, n, between, within=0.05):
    """Launches whose levels differ by ``between`` around 1: what a user wants to know is the typical level."""
    levels = np.exp(between * rng.standard_normal(launches))
    return [level * np.exp(within * rng.standard_normal(n)) for level in levels]


@pytest.mark.parametrize(("launches", "n", "between"), [(6, 100, 0.02), (8, 100, 0.05), (12, 60, 0.02), (7, 1, 0.02)])
def test_coverage_over_launches_that_differ(launches, n, between):
    rng = np.random.default_rng(launches)
    estimates = [over_launches(draw(rng, launches, n, between)) for _ in range(TRIALS)]
    assert all(estimate.cluster == LAUNCHES and estimate.launches == launches for estimate in estimates)
    assert np.mean([estimate.estimate.low <= 1 <= estimate.estimate.high for estimate in estimates]) >= 0.93


POOLED = {
    "as if independent": (6, lambda groups: quantile(np.concatenate(groups), independent=True), 0.6),
    "by the autocorrelation of all": (6, lambda groups: quantile(np.concatenate(groups)), 0.88),
    "what holds within few launches": (5, lambda groups: over_launches(groups).estimate, 0.6),
}


@pytest.mark.parametrize("pool", POOLED)
def test_samples_of_all_launches_together_fail_the_same_test(pool):
    launches, estimate, at_most = POOLED[pool]
    rng = np.random.default_rng(6)
    estimates = [estimate(draw(rng, launches, 100, 0.02)) for _ in range(TRIALS)]
    covered = np.mean([estimate.low <= 1 <= estimate.high for estimate in estimates if estimate.low is not None])
    assert covered < at_most, "the test does not bite"


def test_coverage_of_a_tail_over_launches():
    """The truth is the median over launches of their 90th percentiles; twelve samples each tell it without bias."""
    rng = np.random.default_rng(0)
    truth = np.exp(0.05 * 1.2816)
    estimates = [over_launches(draw(rng, 16, 12, 0.02), 0.9).estimate for _ in range(TRIALS)]
    assert np.mean([estimate.low <= truth <= estimate.high for estimate in estimates]) >= 0.93


def test_with_few_launches_it_holds_within_them():
    rng = np.random.default_rng(1)
    for count, words in ((1, "within one launch"), (5, "within 5 launches")):
        estimate = over_launches(draw(rng, count, 200, 0.0))
        assert (estimate.cluster, estimate.basis, estimate.standing) == (WITHIN, words, f"result {words}")
        assert str(estimate).endswith(words)
    assert over_launches(draw(rng, 7, 200, 0.0), level=0.99).cluster == WITHIN
    enough = over_launches(draw(rng, 8, 200, 0.0), level=0.99)
    assert (enough.cluster, enough.standing, enough.basis) == (LAUNCHES, "result", "over 8 launches")


def test_few_launches_that_differ_are_an_observation():
    estimate = over_launches([np.random.default_rng(k).normal(1 + k, 0.01, 50) for k in range(3)])
    assert estimate.differ and estimate.standing == "observation" and estimate.cv == pytest.approx(0.5, rel=0.02)
    many = over_launches([np.random.default_rng(k).normal(1 + k, 0.01, 50) for k in range(6)])
    assert many.differ and many.standing == "result"  # the interval over launches knows


def test_the_interval_is_the_exact_one_of_the_launches_medians():
    groups = draw(np.random.default_rng(2), 9, 31, 0.1)
    expected = quantile([np.median(group) for group in groups], independent=True)
    estimate = over_launches(groups).estimate
    assert (estimate.value, estimate.low, estimate.high) == (expected.value, expected.low, expected.high)
    assert estimate.n == 9 * 31 and estimate.method == "ranks of launches"


def test_launches_too_short_for_a_tail_are_pooled_and_say_so():
    groups = draw(np.random.default_rng(3), 8, 60, 0.0)
    assert own_quantile(groups[0], 0.99) is None and over_launches(groups, 0.9).cluster == LAUNCHES
    assert over_launches(groups, 0.99).cluster == WITHIN


def test_dependent_samples_alone_are_no_difference_between_launches():
    rng = np.random.default_rng(4)
    values = [launches_differ([autoregressive(rng, 600, 0.9) for _ in range(4)]) for _ in range(150)]
    known = [p for p in values if p is not None]
    assert len(known) > 140 and np.mean(np.array(known) < 0.01) <= 0.04
    assert launches_differ([np.ones(100)]) is None and launches_differ([np.ones(4), np.ones(4)]) is None


def test_what_is_no_sample_is_refused():
    assert launches_needed() == 6
    for wrong in ([], [np.ones(5), np.array([])], [np.array([1.0, np.nan])]):
        with pytest.raises(InputError):
            over_launches(wrong)
