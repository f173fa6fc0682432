"""``--repeat auto``: as many seeds as the intervals need, within the budget, and the same after a resumption."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import RecipeError
from deep500.measure.quantiles import quantile
from deep500.metrics import Metric, TestAccuracy, TestLoss, TimeToAccuracy, TrainingTime, VarianceOverSeeds
from deep500.recipe import run_recipe
from deep500.recipe.options import parse_options
from deep500.recipe.repetition import Repetition, _is_look
from deep500.results import Record
from deep500.results.ledger import NAME
from deep500.results.stats import declared_series
from deep500.results.verdict import repetition_sentence
from deep500.results.verify import verify
from tests.recipes.common import quick

WANTED = [(TestAccuracy(), 20.0), (TestLoss(), None), (TrainingTime(), None)]


@pytest.fixture(autouse=True)
def steady_clock(monkeypatch):
    """Every step takes the same time, so that how many seeds are trained depends on no machine; all clocks agree."""
    ticks = itertools.count(10**9, 1_000_000)
    monkeypatch.setattr("deep500.recipe.recording.perf_counter_ns", lambda: next(ticks))
    monkeypatch.setattr("deep500.training.trainer.perf_counter", lambda: next(ticks) / 1e9)
    today = time.time()
    monkeypatch.setattr("deep500.recipe.recording.time", lambda: today + next(ticks) / 1e9 - 1)


def run(out: Path, *words: str, **changes):
    return run_recipe(*quick("reference", metrics=WANTED, **changes), argv=["--out", str(out), *words])


def summary(result) -> dict:
    return json.loads((Path(result.path) / "summary.json").read_text())


def manifest(result) -> dict:
    return json.loads((Path(result.path) / "manifest.json").read_text())


def test_seeds_are_trained_until_the_intervals_are_tight(tmp_path, capsys):
    result = run(tmp_path, "--repeat", "auto", "--budget", "300", "--precision", "0.5", "--seed", "3")
    repetition = summary(result)["repetition"]
    assert repetition["reached"] and repetition["seeds"] == 7
    assert repetition["precision"] == 0.5 and repetition["budget"] == 300
    assert summary(result)["seeds"] == manifest(result)["seeds"] == [3, 4, 5, 6, 7, 8, 9]
    values = result["test_accuracy"].values
    exact = quantile(values, independent=True)
    achieved = repetition["achieved"]
    assert achieved["test_accuracy"] == pytest.approx(exact.precision) and "step" in achieved
    assert "test_loss" not in achieved  # it has no target
    assert 0 < repetition["seconds"] < 300
    out = capsys.readouterr().out
    assert "precision reached: 7 seeds until every 95 % interval over seeds was within 50 % (test_accuracy " in out
    page = Path(result.report).read_text(encoding="utf-8")
    assert (
        "<p>Seeds by <code>--repeat auto</code>: precision reached: 7 seeds" in page and "over 7 launches" not in page
    )
    assert verify(Path(result.path)) == [] and len((tmp_path / "test_repetition" / NAME).read_text().splitlines()) == 1
    assert manifest(result)["argv"] == ["--repeat", "auto", "--budget", "300.0", "--precision", "0.5", "--seed", "3"]


def test_every_seed_counts_for_a_metric_over_seeds(tmp_path):
    metrics = [(TestAccuracy(), 20.0), (TimeToAccuracy(99.9), None)]
    words = ["--out", str(tmp_path), "--repeat", "auto", "--budget", "300", "--precision", "0.5"]
    result = run_recipe(*quick("reference", metrics=metrics), argv=words)
    assert "0 of 7 runs reached it" in result["time_to_accuracy_99.9"].remark


def test_a_budget_that_ends_first_is_told(tmp_path, capsys):
    result = run(tmp_path, "--repeat", "auto", "--budget", "1e-6")
    repetition = summary(result)["repetition"]
    assert not repetition["reached"] and repetition["seeds"] == 1
    assert repetition["achieved"] == {"test_accuracy": None, "step": None}
    assert "precision NOT reached: the budget ended after 1 seed, before every 95 %" in capsys.readouterr().out
    assert '<p class="todo">Seeds by <code>--repeat auto</code>: precision NOT reached' in Path(
        result.report
    ).read_text(encoding="utf-8")
    assert result.verdict == "PASSED"  # that its median is not known well is another question


@pytest.mark.parametrize("finished", [2, 5])
def test_a_run_that_was_stopped_goes_on_to_the_same_end(tmp_path, finished):
    words = ["--repeat", "auto", "--budget", "300", "--precision", "0.5", "--quiet"]
    whole = run(tmp_path / "a", *words)
    broken = run(tmp_path / "b", *words)
    path = Path(broken.path)
    for name in ("summary.json", "SHA256SUMS", "report.html", "stats.json", "rules.json"):
        (path / name).unlink()
    seeds = json.loads((path / "seeds.json").read_text())
    (path / "seeds.json").write_text(json.dumps({k: v for k, v in seeds.items() if int(k) < finished}))
    kept = manifest(broken)
    (path / "manifest.json").write_text(json.dumps({**kept, "seeds": kept["seeds"][: finished + 1]}))
    again = run(tmp_path / "b", "--resume", "--quiet")
    assert again.path == broken.path and again["test_accuracy"].values == whole["test_accuracy"].values
    assert manifest(again)["seeds"] == manifest(whole)["seeds"] and summary(again)["repetition"]["reached"]
    assert run(tmp_path / "b", "--resume", str(path)).verdict == "PASSED"  # finished: it says the same again


class Score(Metric):
    """A metric whose values are made up."""

    name = "score"

    def measure(self, statistics):
        raise AssertionError("nothing is measured here")


def made_up(folder, values, seconds=1.0, step=1e-3, name="score"):
    """A record of seeds that are finished, each with one value, one epoch and ten steps."""
    record = Record.create(folder, "job", {"resolved": {}, "series": declared_series(8)})
    for seed, value in enumerate(values):
        times = np.full(10, int(step * 1e9 * (1 + 1e-3 * seed)))
        record.samples.append("step", seed, np.cumsum(times), times)
        record.add_epoch(seed, 1, {"train_seconds": seconds, "test_seconds": 0.5}, {"arrays": {}, "values": {}})
        record.finish_seed(seed, {name: value}, None)
    return record


def test_it_looks_at_seven_and_then_at_ever_more(tmp_path):
    assert [n for n in range(1, 40) if _is_look(n, 7)] == [7, 10, 13, 17, 23, 30, 39]
    record, wanted = made_up(tmp_path, [10.0] * 10), Repetition(1e9)
    looks = [wanted.look(record, range(n), [Score()]) for n in range(1, 11)]
    assert [look.over for look in looks] == [False] * 6 + [True, False, False, True]
    assert looks[4].achieved == {"score": None, "step": None} and looks[6].reached
    assert looks[6].achieved["step"] == pytest.approx(0.0030, rel=0.01)


@pytest.mark.parametrize(
    ("values", "reached"),
    [
        ([10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0], True),
        ([10.0, 20.0, 5.0, 10.0, 9.0, 11.0, 10.0], False),
        ([10.0] * 6 + [None], False),
        ([10.0] * 9 + [None], False),
        ([10.0] * 6 + [float("nan")], False),
        ([0.0] * 7, True),
    ],
)
def test_every_metric_must_be_tight_and_measured(tmp_path, values, reached):
    record = made_up(tmp_path, values)
    assert Repetition(1e9).look(record, range(len(values)), [Score()]).reached is reached


def test_metrics_that_combine_seeds_in_their_own_way_are_judged_by_that(tmp_path):
    times = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5, 10.6, 10.7, 10.8, 10.9, 11.0, None]
    metric = TimeToAccuracy(90)
    record = made_up(tmp_path / "a", times, seconds=20.0, name=metric.name)
    combined = metric.combine(times, [20.5] * 12)
    width = Repetition(1e9).look(record, range(12), [metric]).achieved[metric.name]
    assert width == pytest.approx(max(combined.high - combined.value, combined.value - combined.low) / combined.value)
    assert 0 < width < 0.1  # one miss of twelve does not hide the median
    variance = VarianceOverSeeds(TestAccuracy())
    record = made_up(tmp_path / "b", [90.0, 91.0, 92.0] * 3, name=variance.name)
    assert Repetition(1e9).look(record, range(9), [variance]).achieved[variance.name] is None


def test_a_seed_that_would_not_fit_is_not_begun(tmp_path):
    record = made_up(tmp_path, [10.0] * 4)
    assert [Repetition(6.0).look(record, range(n), [Score()]).over for n in (1, 2, 3, 4)] == [False, False, False, True]
    assert not Repetition(6.0).look(record, range(4), [Score()]).reached
    assert Repetition(6.0).look(record, range(3), []).seconds == 4.5


def test_stopping_when_tight_keeps_the_coverage(tmp_path):
    """The intervals that a run ends with, over made-up seeds with 5 % between them: nominal 95 %, at least 93 %."""
    rng, covered, trials = np.random.default_rng(0), 0, 1500
    for _ in range(trials):
        values, size = np.exp(0.05 * rng.standard_normal(80)), 7
        while True:
            interval = quantile(values[:size], independent=True)
            if size == 80 or (_is_look(size, 7) and interval.precision <= 0.05):
                break
            size += 1
        covered += interval.low <= 1 <= interval.high
    assert covered / trials >= 0.93


def test_a_dry_run_trains_one_seed(tmp_path):
    result = run(tmp_path, "--repeat", "auto", "--budget", "60", "--dry-run")
    assert summary(result)["seeds"] == [0] and summary(result)["repetition"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--repeat", "auto"], "add --budget SECONDS"),
        (["--budget", "5"], "got --budget with --repeat 1"),
        (["--repeat", "3", "--precision", "0.1"], "got --precision with --repeat 3"),
        (["--repeat", "auto", "--budget", "0"], "expected a positive number of seconds"),
        (["--repeat", "auto", "--budget", "nan"], "got --budget nan"),
        (["--repeat", "many"], "--repeat"),
        (["--repeat", "auto", "--budget", "inf"], "got --budget inf"),
        (["--repeat", "0"], "expected at least 1"),
        (["--repeat", "auto", "--budget", "9", "--precision", "5"], "between 0 and 1"),
        (["--repeat", "auto", "--budget", "soon"], "--budget"),
    ],
)
def test_words_that_do_not_fit_are_one_line(words, message):
    with pytest.raises(RecipeError) as caught:
        parse_options(words)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("achieved", "words"),
    [({"a": 0.0123, "b": 0.5}, "(a 1.2 %, b 50 %)"), ({"a": 12.346}, "(a 1235 %)"), ({"a": None}, "(a no interval)")],
)
def test_the_sentence_says_how_tight_it_is(achieved, words):
    content = {"seeds": 7, "seconds": 61.234, "budget": 60.0, "level": 0.95, "precision": 0.05, "reached": False}
    sentence = repetition_sentence({**content, "achieved": achieved})
    assert words in sentence and sentence.startswith("precision NOT reached") and sentence.endswith("; 61.2 of 60 s")
