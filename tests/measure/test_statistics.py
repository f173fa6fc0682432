"""Intervals against a closed form and against their promise: coverage on known distributions."""

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.measure import median_interval, paired_ratio


def test_ranks_equal_the_binomial_table():
    # Hahn and Meeker 1991, table A.15a: n = 10 at 95 % has ranks 2 and 9, n = 20 ranks 6 and 15
    for n, low, high in [(10, 2, 9), (20, 6, 15)]:
        interval = median_interval(np.arange(1.0, n + 1))
        assert (interval.low, interval.high) == (low, high)


@pytest.mark.parametrize("draw", ["lognormal", "pareto", "normal"])
def test_coverage_is_at_least_nominal(draw):
    rng = np.random.default_rng(7)
    truth = {"lognormal": 1.0, "pareto": 2 ** (1 / 1.5) - 1, "normal": 0.0}[draw]
    sample = {
        "lognormal": lambda: rng.lognormal(0, 1, 15),
        "pareto": lambda: rng.pareto(1.5, 15),
        "normal": lambda: rng.normal(0, 1, 15),
    }[draw]
    intervals = [median_interval(sample()) for _ in range(600)]
    covered = np.mean([i.low <= truth <= i.high for i in intervals])
    assert 0.94 <= covered <= 0.999  # exact ranks for n = 15 cover 96.5 %


def test_too_few_samples_have_no_interval():
    interval = median_interval([1.0, 2.0, 3.0])
    assert interval.low is None
    assert interval.high is None
    assert "too small" in str(interval)


def test_ratio_is_symmetric():
    rng = np.random.default_rng(0)
    a, b = rng.lognormal(0.1, 0.2, 30), rng.lognormal(0, 0.2, 30)
    forward, backward = paired_ratio(a, b), paired_ratio(b, a)
    np.testing.assert_allclose([forward.median, forward.low], [1 / backward.median, 1 / backward.high])


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [[1.0]]])
def test_bad_samples_are_refused(bad):
    with pytest.raises(InputError, match="expected"):
        median_interval(bad)


@pytest.mark.parametrize("a, b", [([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_bad_pairs_are_refused(a, b):
    with pytest.raises(InputError, match="in turns"):
        paired_ratio(a, b)
