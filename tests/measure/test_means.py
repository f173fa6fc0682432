"""Means by kind: the worked example of the twelve rules, closed forms, what has no mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.measure.means import mean, total_rate

RATES = [10.0, 1.0, 2.5]


def test_the_example_of_the_rules():
    """Rates of 10, 1 and 2.5 Gflop/s: not 4.5 (arithmetic) and not 2.9 (geometric)."""
    assert mean(RATES, "rate") == pytest.approx(2.0, rel=1e-15)
    assert mean(RATES, "cost") == 4.5 and mean(RATES, "ratio") == pytest.approx(2.924, abs=1e-3)
    assert mean([3.0, 1.0, 2.0, 50.0], "quality") == 2.5


def test_a_mean_of_rates_is_all_work_over_all_time():
    rng = np.random.default_rng(0)
    work, seconds = rng.uniform(1, 9, 12), rng.uniform(1, 9, 12)
    assert mean(work / seconds, "rate", work) == pytest.approx(total_rate(work, seconds), rel=1e-14)
    assert total_rate([100, 150], [1.0, 3.0]) == 62.5
    assert total_rate([0, 10], [0.0, 2.0]) == 5.0  # a rank without work


def test_a_mean_of_ratios_does_not_care_which_is_the_base():
    ratios = np.array([2.0, 0.5, 3.0])
    assert mean(1 / ratios, "ratio") == pytest.approx(1 / mean(ratios, "ratio"), rel=1e-14)


def test_weights_are_repetitions():
    for kind in ("cost", "rate", "ratio"):
        assert mean([1.0, 4.0, 4.0], kind) == pytest.approx(mean([1.0, 4.0], kind, [1, 2]), rel=1e-14)


WRONG = [
    ([1.0], "count", None, "a count has no mean"),
    ([1.0], "speed", None, "got values of kind 'speed'"),
    ([1.0, 0.0], "rate", None, "got a rate of 0"),
    ([1.0, -1.0], "ratio", None, "got a ratio of -1"),
    ([1.0, math.nan], "cost", None, "finite"),
    ([], "cost", None, "finite"),
    ([1.0, 2.0], "cost", [1.0], "for 2 values"),
    ([1.0, 2.0], "cost", [1.0, -1.0], "not negative"),
    ([1.0, 2.0], "cost", [0.0, 0.0], "not negative"),
    ([1.0, 2.0], "quality", [1.0, 1.0], "none for qualities"),
]


@pytest.mark.parametrize(("values", "kind", "weights", "words"), WRONG)
def test_what_has_no_mean(values, kind, weights, words):
    with pytest.raises(InputError, match=words):
        mean(values, kind, weights)


@pytest.mark.parametrize(("work", "seconds"), [([1.0], [1.0, 2.0]), ([1.0], [0.0]), ([-1.0], [1.0]), ([1.0], [-1.0])])
def test_rates_of_nothing(work, seconds):
    with pytest.raises(InputError, match="expected a time for each"):
        total_rate(work, seconds)
