"""The sequential rule: what it remembers of earlier looks, and what it costs beside a plan that knows everything."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.measure import Budget, Plan, Target
from deep500.measure.dependence import autocorrelation_time, longest_time
from deep500.measure.sampling import MEMORY, Judge, next_size
from tests.measure.test_quantiles import autoregressive

PLAN = Plan(targets=(Target(0.5, 0.99, 0.05),), budget=Budget(max_n=6000))
TRUTH = 1.0083  # median of the noise below, of 2e7 samples
FIXED = {0.0: 147, 0.7: 495}  # the n at which half of all intervals with the true autocorrelation time are tight enough


def test_a_dependent_look_counts_for_two_more_and_is_then_forgotten():
    rng, judge = np.random.default_rng(0), Judge(PLAN)
    slow, quick = autoregressive(rng, 200, 0.95, 0.15), rng.lognormal(0, 0.15, 200)
    taus = [judge(series)[1][0].tau for series in (slow, *[quick] * (MEMORY + 1))]
    own = [max(longest_time(series)[0], autocorrelation_time(series <= np.median(series))) for series in (slow, quick)]
    assert own[0] > 3 * own[1]
    assert taus == pytest.approx([own[0]] * (MEMORY + 1) + [own[1]])


@pytest.mark.parametrize("phi", FIXED)
def test_it_covers_at_not_much_more_than_the_cost_of_knowing(phi):
    rng, sizes, covered, trials = np.random.default_rng(1), [], 0, 150
    for _ in range(trials):
        judge, size, series = Judge(PLAN), 30, autoregressive(rng, 6000, phi, 0.15)
        while True:
            _, (estimate,), enough = judge(series[:size])
            if enough or size == series.size:
                break
            size = min(series.size, next_size(size))
        sizes.append(size)
        covered += estimate.low <= TRUTH <= estimate.high
    assert covered / trials >= 0.97
    assert np.median(sizes) <= 1.5 * FIXED[phi]
