"""The page of a race: verdicts only where they are judged, everything that went wrong, on one page."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from deep500.race.standing import PAGE, RESULT, standing_of, text_of, write_standing
from tests.race.common import WORKLOADS, Curves, race


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    one = race(tmp_path_factory.mktemp("race"), studies=4)
    one.run(lambda line: None, Curves(2, {"c": 0.5, "b": 1.2}, missing=0.02))
    return one


def test_numbers_follow_from_the_trials(finished) -> None:
    standing = standing_of(finished)
    rows = standing["scores"]
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert rows[-1]["submission"] == "c" and sum(row["first_with_other_seeds"] for row in rows) == pytest.approx(1)
    spent = sum(record["outcome"]["spent"] for record in finished.records.values())
    assert standing["spent_seconds"] == pytest.approx(spent) == pytest.approx(sum(r["spent_seconds"] for r in rows))
    assert sum(row["trials"] for row in rows) == len(finished.entries) and standing["finished"]
    assert len(standing["pairs"]) == 3 and set(standing["leave_one_out"]) == {"v", "w", "x"}
    assert standing == standing_of(finished), "draws are the race's own"


def test_the_page_and_the_text(finished) -> None:
    standing = write_standing(finished)
    assert json.loads((finished.path / RESULT).read_text()) == json.loads(json.dumps(standing))
    page = (finished.path / PAGE).read_text()
    for pair in standing["pairs"]:
        assert all(pair[question]["sentence"] in page for question in ("here", "elsewhere"))
        assert all(pair[question]["sentence"] in text_of(standing) for question in ("here", "elsewhere"))
    assert "for workloads like these" in page and '<svg class="plot"' in page and "is no confidence" not in page
    assert not re.search(r"\b(nan|inf|None)\b", re.sub("<[^>]*>", " ", page))
    assert page.count("no GPU here") == 1, "once, however many trials warn"
    assert "time scatters by" in page and "four of five cases" in page
    without = {key: value for key, value in standing.items() if key != "pairs"}
    assert "faster" not in json.dumps(without), "words come with their test only"


def test_a_target_that_no_trial_reaches_is_said(tmp_path) -> None:
    one = race(tmp_path, workloads=WORKLOADS[:2])
    one.run(
        lambda line: None, lambda request, *rest: Curves(missing=float(request.workload["name"] == "w"))(request, *rest)
    )
    standing = write_standing(one)
    assert any("No trial reached the target of w" in remark for remark in standing["remarks"])
    assert max(row["score"] for row in standing["scores"]) <= 0.5
    nothing = race(tmp_path / "2", workloads=WORKLOADS[:1])
    nothing.run(lambda line: None, Curves(missing=1.0))
    standing = write_standing(nothing)
    assert {row["score"] for row in standing["scores"]} == {0} and standing["noise"] is None
    assert all(pair["here"]["verdict"] == "unresolved" for pair in standing["pairs"])
    assert "no study of either reached a target" in text_of(standing)


def test_an_unfinished_race_and_what_went_wrong(tmp_path) -> None:
    one = race(tmp_path, jobs=2)

    class Broken(Curves):
        def __call__(self, request, limits, stopped):
            result = super().__call__(request, limits, stopped)
            if request.submission == "c":
                result.outcome.update(seconds=None, steps=None, reason="crashed: SIGSEGV")
            return result

    with pytest.raises(ZeroDivisionError):
        one.run(lambda line: 1 / (len(one.done) < 20), Broken())
    standing = write_standing(one)
    assert not standing["finished"] and "of 108 trials; go on with --resume" in standing["remarks"][0]
    assert "CPU seconds" in standing["remarks"][1]
    assert {(miss["submission"], miss["reason"]) for miss in standing["misses"]} == {("c", "crashed: SIGSEGV")}
    assert "crashed: SIGSEGV" in (one.path / PAGE).read_text() and "crashed: SIGSEGV" in text_of(standing)
    assert np.isfinite(standing["spent_seconds"])


def test_a_ratio_that_a_miss_decides_is_no_number(tmp_path) -> None:
    one = race(tmp_path, workloads=WORKLOADS[:2])
    one.run(lambda line: None, lambda request, *rest: Curves(missing=float(request.submission == "b"))(request, *rest))
    for pair in standing_of(one)["pairs"]:
        sentence = pair["here"]["sentence"]
        assert ("b missed in half of the pairs or more" in sentence) == ("b" in (pair["first"], pair["second"]))
        assert "time ratio 0," not in sentence and "time ratio infinite" not in sentence
