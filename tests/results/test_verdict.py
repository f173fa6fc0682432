"""Verdicts: in the metric's direction, never on stand-in data, never for what was not measured."""

from __future__ import annotations

import pytest

from deep500.metrics import TestAccuracy, TestLoss, Throughput, TrainingTime
from deep500.results.verdict import Circumstances, RecipeResult, SeedNotes, judge, overall

NAN = float("nan")
HIGHER, LOWER, TIME, RATE = TestAccuracy(), TestLoss(), TrainingTime(), Throughput()

CASES = [
    (HIGHER, 90.0, [90.0], {}, "PASSED"),
    (HIGHER, 90.0, [89.999], {}, "FAILED"),
    (LOWER, 0.5, [0.5], {}, "PASSED"),
    (LOWER, 0.5, [0.6], {}, "FAILED"),
    (HIGHER, 90.0, [80.0, 91.0, 95.0], {}, "PASSED"),  # the median of the seeds is judged
    (HIGHER, 90.0, [80.0, 89.0, 95.0], {}, "FAILED"),
    (HIGHER, 90.0, [NAN], {}, "FAILED"),
    (LOWER, 90.0, [1.0, NAN, 2.0], {}, "FAILED"),
    (HIGHER, None, [1.0], {}, "UNJUDGED (no target)"),
    (HIGHER, 90.0, [None], {}, "FAILED (not measured)"),
    (HIGHER, 90.0, [95.0, None], {}, "FAILED (not measured)"),
    (HIGHER, 90.0, [99.0], {"stand_in": True}, "UNJUDGED (stand-in data)"),
    (TIME, 1.0, [0.5], {"stand_in": True}, "UNJUDGED (stand-in data)"),  # fewer samples take less time
    (RATE, 100.0, [50.0], {"stand_in": True}, "FAILED"),
    (TIME, 1.0, [0.5], {"dry_run": True}, "UNJUDGED (dry run)"),
]


@pytest.mark.parametrize(("metric", "target", "values", "about", "expected"), CASES)
def test_judge(metric, target, values, about, expected):
    assert judge(metric, target, values, Circumstances(**about)).label == expected


def test_spread_over_seeds():
    result = judge(HIGHER, 90.0, [80.0, 91.0, 95.0], Circumstances())
    assert (result.value, result.low, result.high) == (91.0, 80.0, 95.0)
    single = judge(HIGHER, 90.0, [91.0], Circumstances())
    assert single.low is None and single.high is None


def test_overall_and_truth():
    passed, failed = (judge(HIGHER, 90.0, [v], Circumstances()) for v in (95.0, 5.0))
    unjudged = judge(HIGHER, 90.0, [95.0], Circumstances(stand_in=True))
    table = [
        ([passed, failed], "FAILED", 1),
        ([passed, unjudged], "PASSED", 0),
        ([unjudged, failed], "FAILED", 1),
        ([unjudged], "UNJUDGED (stand-in data)", 0),
        ([], "UNJUDGED (no metrics)", 0),
    ]
    for metrics, word, code in table:
        result = RecipeResult(overall(metrics), metrics)
        assert (result.verdict, result.exit_code, bool(result)) == (word, code, code == 0)
    assert RecipeResult("PASSED", [passed])["test_accuracy"] is passed
    with pytest.raises(KeyError):
        RecipeResult("PASSED", [passed])["test_loss"]


def test_many_reasons_are_cut_short():
    notes = [SeedNotes(f"best was {n} %") for n in (1, 2, 3, 4, 5, 5)]
    remark = judge(HIGHER, 90.0, [None] * 6, Circumstances(), notes).remark
    assert remark == "best was 1 %; best was 2 %; best was 3 %; and 2 reasons more"
