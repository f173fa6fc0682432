"""What becomes of a metric over several seeds: medians, misses that are censored, and reasons."""

from __future__ import annotations

import math

import pytest

from deep500.measure.survival import time_to_target
from deep500.metrics import TestAccuracy, TimeToAccuracy
from deep500.metrics.base import Combined
from deep500.results.verdict import Circumstances, SeedNotes, judge
from deep500.training.statistics import EpochRecord, TrainingStatistics


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, 1.0, 2.0], (2.0, 1.0, 3.0)),
        ([1.0, 4.0], (2.5, 1.0, 4.0)),
        ([7.0], (7.0, None, None)),
        ([1.0, None], (None, None, None)),
        ([], (None, None, None)),
    ],
)
def test_most_metrics_take_the_median_of_runs_that_were_all_measured(values, expected):
    combined = TestAccuracy().combine(values)
    assert (combined.value, combined.low, combined.high) == expected


def test_what_is_no_number_stays_none():
    assert math.isnan(TestAccuracy().combine([1.0, math.nan, 3.0]).value)


def test_runs_that_missed_the_target_are_censored():
    """The median of the six that got there would be 11.5 s; one in seven that takes longer than 30 s shifts it."""
    reached = [10.0, 12.0, 11.0, 14.0, 13.0, 9.0]
    combined = TimeToAccuracy(90).combine([*reached, None], [40.0] * 6 + [30.0])
    truth = time_to_target(reached, [30.0])
    assert (combined.value, combined.low, combined.high) == (truth.median, truth.low, truth.high) == (12.0, 9.0, 14.0)
    assert (combined.remark, combined.interval) == ("6 of 7 runs reached it", "95 % interval (Kaplan-Meier)")


def test_most_runs_missing_it_leave_the_median_unknown():
    combined = TimeToAccuracy(90).combine([10.0, None, None], [10.0, 20.0, 20.0])
    assert combined.value is None and combined.remark == "1 of 3 runs reached it; too few for an interval"
    unknown = TimeToAccuracy(90).combine([10.0, None, 11.0], [10.0, None, 20.0])
    assert unknown.value is None and "not known" in unknown.remark


def test_a_single_miss_is_not_measured_and_says_how_far_it_got():
    metric = TimeToAccuracy(90)
    assert metric.measure(TrainingStatistics([EpochRecord(0, test_accuracy=61.0, train_seconds=1.0)])) is None
    assert metric.reason == "best of 1 epochs: 61 %"
    assert metric.measure(TrainingStatistics([EpochRecord(0, train_seconds=1.0)])) is None
    assert metric.reason == "no epoch has a test accuracy"
    assert metric.combine([None], [12.0]).value is None
    assert metric.combine([5.0]) == Combined(5.0)


def test_the_verdict_says_what_is_behind_the_value():
    notes = [SeedNotes(lasted=20.0), SeedNotes("best of 2 epochs: 60 %", lasted=30.0), SeedNotes(lasted=20.0)]
    late = judge(TimeToAccuracy(90), 15.0, [10.0, None, 16.0], Circumstances(), notes)
    assert late.verdict == "FAILED" and late.value == 16.0 and late.remark.startswith("2 of 3 runs reached it")
    blank = judge(TestAccuracy(), 90.0, [None], Circumstances(), [SeedNotes("no labels", {"n": 3})])
    assert (blank.label, blank.remark, blank.details) == ("FAILED (not measured)", "no labels", [{"n": 3}])
    assert blank.as_dict()["details"] == [{"n": 3}]
