"""Runs trained again: the same bits agree, whatever was invented is found and named, and drift is bounded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500 import cli
from deep500.compare.reproduction import _near_curve, _same_curve, replay, reproduced
from deep500.errors import ResultsError
from deep500.results.verify import seal

RECIPE = """
import deep500 as d5
import deep500.frameworks.reference as d5fw

FIXED = {"model": "mlp", "model_kwargs": {"hidden": (4,)}, "dataset": "digits", "epochs": 2}
MUTABLE = {
    "batch_size": 256, "executor": d5fw.from_model, "optimizer": d5fw.GradientDescent, "optimizer_kwargs": {"lr": 0.5},
    "seed": 3,
}
class Depth(d5.metrics.Metric):
    name, unit = "depth", ""

    def measure(self, statistics):
        return float(len(statistics.epochs))

METRICS = [(d5.TestAccuracy(), 1.0), (Depth(), None)]
"""


def finished(out: Path) -> Path:
    (path,) = (folder.parent for folder in out.rglob("summary.json"))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of two seeds, and the same again."""
    base = tmp_path_factory.mktemp("runs")
    (base / "tiny.py").write_text(RECIPE)
    for name in ("first", "again"):
        command = ["run", str(base / "tiny.py"), "--repeat", "2", "--quiet", "--out", str(base / name)]
        assert cli.main(command) == 0
    return finished(base / "first"), finished(base / "again")


def wrong(first, second, **chosen):
    return [answer.what for answer in reproduced(first, second, **chosen) if answer.agrees is False]


@pytest.fixture
def forged(runs, tmp_path):
    """A folder beside the first run, and a function that edits it and seals it anew."""
    place = tmp_path / "results" / "forged"
    shutil.copytree(runs[0], place)

    def edit(name, change):
        path = place / name
        path.write_text(change(path.read_text()))
        seal(place)
        return place

    return edit


def invented(text):
    lines = [json.loads(line) for line in text.splitlines()]
    line = next(line for line in lines if line["seed"] == 4 and line["epoch"] == 2)
    line["train_loss"] *= 0.5
    return "".join(json.dumps(line) + "\n" for line in lines)


def target(text):
    facts = json.loads(text)
    facts["resolved"]["metrics"][0]["target"] = 0.5
    return json.dumps(facts)


def elsewhere(text):
    facts = json.loads(text)
    facts["environment"]["cpu"] = "another"
    return json.dumps(facts)


def perfect(text):
    lines = [{**json.loads(line), "test_accuracy": 100.0} for line in text.splitlines()]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_a_run_agrees_with_itself_made_again(runs):
    answers = list(reproduced(*runs))
    assert len(answers) == 8 and all(answer.agrees for answer in answers), [str(answer) for answer in answers]
    assert sum("up to epoch 2, bit by bit" in answer.what for answer in answers) == 2


def test_an_invented_loss_is_named_with_its_epoch(runs, forged):
    (what,) = wrong(forged("metrics.jsonl", invented), runs[1])
    assert what.startswith("seed 4 parts in epoch 2: train_loss is ")


def test_a_target_that_was_moved_after_the_run_is_found(runs, forged):
    (what,) = wrong(forged("manifest.json", target), runs[1])
    assert "metrics.test_accuracy.target 0.5 -> 1" in what


def test_a_metric_of_the_author_s_own_is_computed_again(runs, forged, tmp_path):
    place = forged("seeds.json", lambda text: text.replace('"depth": 2.0', '"depth": 7.0', 1))
    (what,) = wrong(place, runs[1])
    assert what.endswith("2 metrics of quality, bit by bit: depth is 7.0 there, 2.0 here")
    place = forged("manifest.json", elsewhere)
    unbound = [str(answer) for answer in reproduced(place, runs[1]) if "depth" in answer.what]
    assert unbound == [
        "seen here: seed 3: depth 7.0 there, 2.0 here; no bound is known where rounding differs",
        "seen here: seed 4: depth 2.0 there, 2.0 here; no bound is known where rounding differs",
    ]


def test_parameters_are_compared_where_they_are_there(runs, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(runs[0], bare)
    shutil.rmtree(bare / "checkpoints" / "seed-3")
    shutil.copytree(runs[0] / "checkpoints" / "seed-4", bare / "checkpoints" / "seed-3")
    assert any("seed 3" in what and "differ" in what for what in wrong(bare, runs[1]))
    shutil.rmtree(bare / "checkpoints")
    gone = [str(answer) for answer in reproduced(bare, runs[1])]
    assert sum(text.startswith("seen here") and "no checkpoint" in text for text in gone) == 2


def test_elsewhere_losses_drift_and_accuracies_have_a_bound(runs, forged):
    place = forged("manifest.json", elsewhere)
    answers = [str(answer) for answer in reproduced(place, runs[1])]
    assert not wrong(place, runs[1]) and sum("drift" in text for text in answers) == 2
    forged("metrics.jsonl", invented)
    assert any("is 0.5 of train_loss in epoch 2" in str(answer) for answer in reproduced(place, runs[1]))
    forged("metrics.jsonl", perfect)
    assert sum("apart by chance" in what for what in wrong(place, runs[1])) == 2


def test_a_missing_epoch_is_found_on_both_paths(runs, forged):
    place = forged("metrics.jsonl", lambda text: "".join(text.splitlines(keepends=True)[:-1]))
    assert any("epoch 2 is not in the folder" in what for what in wrong(place, runs[1]))
    forged("manifest.json", elsewhere)
    assert any("up to epoch 1, here up to epoch 2" in what for what in wrong(place, runs[1]))


@pytest.mark.slow
def test_replaying_seeds_by_the_command(runs, forged, capsys):
    assert cli.main(["verify", str(runs[0]), "--replay", "1"]) == 0
    assert "4 of 4 agree, trained again" in capsys.readouterr().out
    place = forged("metrics.jsonl", lambda text: text.replace('"train_accuracy": ', '"train_accuracy": 1'))
    assert cli.main(["verify", str(place), "--replay", "2"]) == 1
    assert "DIFFERS: seed 3 parts in epoch 1: train_accuracy" in "".join(capsys.readouterr())


def test_what_cannot_be_replayed_says_why(runs, forged, tmp_path):
    with pytest.raises(ResultsError, match="expected 1 to 2"):
        list(replay(runs[0], 3, tmp_path))
    gone = forged("manifest.json", lambda text: text.replace("tiny.py", "gone.py"))
    with pytest.raises(ResultsError, match=r"no file.*review a package"):
        list(replay(gone, 1, tmp_path))


NUMBERS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf"), -float("inf"), 1e308]), st.floats())
CURVES = st.dictionaries(
    st.sampled_from(["epoch 1", "epoch 2"]),
    st.dictionaries(st.sampled_from(["a", "b"]), NUMBERS, min_size=1),
    min_size=1,
)


@given(mine=CURVES, theirs=CURVES)
def test_any_two_curves_are_judged_alike_from_both_sides(mine, theirs):
    """Numbers may be missing, 0, NaN or infinite: the judgement is the same from either side, and of itself good."""
    for judge, good in ((_same_curve, True), (_near_curve, None)):
        assert judge(1, mine, theirs).agrees == judge(1, theirs, mine).agrees
        assert judge(1, mine, mine).agrees is good
    names = [{(epoch, name) for epoch, numbers in side.items() for name in numbers} for side in (mine, theirs)]
    if names[0] != names[1]:
        assert _same_curve(1, mine, theirs).agrees is False and _near_curve(1, mine, theirs).agrees is False
