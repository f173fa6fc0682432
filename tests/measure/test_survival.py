"""Times to a target with misses: a worked example, coverage, and what cannot be known."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.measure.survival import time_to_target


def test_freireichs_remission_times():
    """6-MP arm of Freireich et al. (1963), a standard example: median 23 weeks, 9 of 21 relapsed."""
    relapsed = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    still_well = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    estimate = time_to_target(relapsed, still_well)
    assert (estimate.median, estimate.low, estimate.high, estimate.reached, estimate.runs) == (23, 13, None, 9, 21)


def test_without_misses_it_is_the_median():
    times = [3.0, 1.0, 2.0, 5.0, 4.0, 6.0, 7.0]
    assert time_to_target(times).median == np.median(times)


def test_intervals_cover():
    rng, truth, covered, trials = np.random.default_rng(0), math.log(2), 0, 300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(trials):
            times, ends = rng.exponential(1, 20), rng.exponential(2, 20)
            estimate = time_to_target(times[times <= ends], ends[times > ends])
            covered += (estimate.low or 0) <= truth <= (math.inf if estimate.high is None else estimate.high)
    assert covered / trials >= 0.93


def test_what_was_never_reached_is_unknown():
    assert time_to_target([], [5.0, 6.0]).median is None
    assert time_to_target([1.0], [5.0, 6.0]).median is None
    assert "1 of 3 runs" in str(time_to_target([1.0], [5.0, 6.0]))
    assert "too few for an interval" in str(time_to_target([1.0, 2.0]))


@pytest.mark.parametrize("times", [[], [-1.0], [math.nan], [math.inf]])
def test_impossible_times_are_refused(times):
    with pytest.raises(InputError):
        time_to_target(times)


def test_a_run_that_ended_before_the_first_arrival_bounds_nothing():
    found = time_to_target([10, 12, 11, 14, 13, 12.5], missed=[1])
    assert found.low is not None and found.low >= 10 and str(found) == "12 s (6 of 7 runs reached it, 95% CI 10-?)"
