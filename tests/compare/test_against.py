"""``deep500 run A --against B``: two ordinary runs whose launches took turns, and a comparison pair by pair."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest

from deep500 import cli
from deep500.compare.against import base_of
from deep500.compare.launches import Side
from deep500.compare.revision import Revision, checked_out
from deep500.compare.runs import compare_runs
from deep500.errors import RecipeError
from deep500.recipe.options import Against, parse_options
from deep500.recipe.turns import ASK, DESCRIPTOR, GO, TakeTurns, turn_listeners
from deep500.results.verify import verify

RECIPE = """
import deep500 as d5
import deep500.frameworks.reference as d5fw

class Fails(d5.Event):
    def before_epoch(self, run):
        raise d5.errors.DataError("got no luck; expected some: try again")

FIXED = {"model": "mlp", "model_kwargs": {"hidden": (4,)}, "dataset": "digits", "epochs": 2}
MUTABLE = {
    "batch_size": 128, "executor": d5fw.from_model, "optimizer": d5fw.GradientDescent, "optimizer_kwargs": {"lr": 0.1},
    "seed": 3, "events": [],
}
METRICS = [(d5.TestAccuracy(), 1.0)]
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "tiny.py"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def compared(recipe, tmp_path_factory):
    """What six pairs say, where they are, and the exit code."""
    out = tmp_path_factory.mktemp("results")
    command = ["run", str(recipe), "optimizer_kwargs.lr=0.2", "--against", "batch_size=512", "--pairs", "6"]
    code = cli.main([*command, "--out", str(out), "--quiet"])
    (place,) = (out / "against-tiny").glob("*.json")
    return json.loads(place.read_text()), out, code


def sides(facts):
    return [Path(facts["sides"][name]["run"]) for name in ("base", "judged")]


def test_both_sides_are_ordinary_runs(compared):
    facts, out, _ = compared
    for path, words in zip(sides(facts), (["lr=0.2", "batch_size=512"], ["lr=0.2"]), strict=True):
        manifest, summary = (json.loads((path / name).read_text()) for name in ("manifest.json", "summary.json"))
        assert verify(path) == [] and (path / "report.html").is_file() and summary["verdict"] == "PASSED"
        assert manifest["seeds"] == summary["seeds"] == [3, 4, 5, 6, 7, 8] and len(manifest["resumed"]) == 5
        assert all(any(word.endswith(wanted) for word in manifest["argv"]) for wanted in words)
        assert manifest["turns"]["id"] == facts["turns"]
        launches = json.loads((path / "stats.json").read_text())["series"]["step"]["launches"]
        assert [launch["launch"] for launch in launches] == manifest["seeds"]
    assert len((out / "tiny" / "ledger.jsonl").read_text().splitlines()) == 2
    assert facts["sides"]["base"]["words"] == ["optimizer_kwargs.lr=0.2", "batch_size=512"]
    assert facts["changed"] == {"resolved.recipe.batch_size": [512, 128]} and facts["seconds"] > 0


def test_the_comparison_is_that_of_the_pairs_and_can_be_made_again(compared):
    facts, _, code = compared
    again = compare_runs(*sides(facts))
    assert code == facts["exit_code"] == again.exit_code
    assert facts["series"] == json.loads(json.dumps(again.as_dict()))["series"]
    stats = [json.loads((path / "stats.json").read_text())["series"]["step"]["launches"] for path in sides(facts)]
    a, b = ([launch["median"] for launch in launches] for launches in stats)
    (step,) = (series for series in again.series if series.series == "step")
    by_sample = np.exp(np.median(np.log(np.array(b) / a))) * 512 / 128
    assert (
        step.ratio.median == pytest.approx(by_sample) and "over 6 pairs of launches in turns, per sample" in step.basis
    )
    assert not any(remark.startswith("taken apart") for remark in again.remarks)


def test_pairs_auto_makes_as_many_as_a_pilot_tells(recipe, tmp_path, monkeypatch):
    # enough that little time is spent: steps of this recipe scatter by far more than what 3 pairs can show
    monkeypatch.setattr("deep500.compare.against.PAIRS", 2)
    monkeypatch.setattr("deep500.compare.against.MOST_PAIRS", 3)
    monkeypatch.setattr("deep500.compare.against.rounds_needed", lambda groups: 2)
    monkeypatch.setattr("deep500.compare.against.EFFECT", 1e-4)
    cli.main(["run", str(recipe), "--against", "", "--pairs", "auto", "--out", str(tmp_path), "--quiet"])
    (place,) = (tmp_path / "against-tiny").glob("*.json")
    facts = json.loads(place.read_text())
    assert facts["pilot"]["pairs"] == 2 and facts["pilot"]["scatter"] > 0 and facts["pilot"]["wanted"] > 3
    seeds = [len(json.loads((path / "manifest.json").read_text())["seeds"]) for path in sides(facts)]
    assert seeds == [3, 3] and not {*facts["pilot"]["runs"]} & {str(path) for path in sides(facts)}


def test_a_dry_run_starts_each_side_once(recipe, tmp_path, capsys):
    command = ["run", str(recipe), "--against", str(recipe), "--control", "--dry-run", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert "control: tiny.py --dry-run" in out and "nothing was compared" in out
    assert len(list((tmp_path / "tiny").glob("2*"))) == 3 and not (tmp_path / "against-tiny").exists()


def test_a_side_that_fails_is_named(recipe, tmp_path, capsys):
    words = ["run", str(recipe), "--against", f"events={recipe}:Fails", "--out", str(tmp_path), "--quiet"]
    assert cli.main(words) == 3
    error = capsys.readouterr().err
    assert error.startswith("deep500: error: base (tiny.py events=") and "): got no luck; expected" in error


def git(folder, *words):
    names = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run(["git", *names, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def checkout(recipe, tmp_path):
    """A checkout whose recipe has changed since its only commit."""
    top = tmp_path / "checkout"
    top.mkdir()
    (top / "tiny.py").write_text(recipe.read_text())
    (top / ".gitignore").write_text("__pycache__/\n")
    git(top, "init", "--quiet")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "first")
    (top / "tiny.py").write_text(recipe.read_text().replace('"batch_size": 128', '"batch_size": 64'))
    return top


def test_another_revision_is_run_from_a_folder_of_its_own(checkout, tmp_path):
    assert cli.main(["run", str(checkout / "tiny.py"), "--at", "HEAD", "--dry-run", "--out", str(tmp_path / "r")]) == 0
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "r" / "tiny").glob("*/manifest.json")]
    batches = {m["turns"]["side"]: m["resolved"]["recipe"]["batch_size"] for m in manifests}
    assert batches == {"judged": 64, "base": 128}
    dirty = {m["turns"]["side"]: m["environment"]["git"]["dirty"] for m in manifests}
    assert dirty == {"judged": True, "base": False}
    assert len(git(checkout, "worktree", "list").splitlines()) == 1


def test_a_revisions_code_comes_first(checkout, monkeypatch):
    """Before what PYTHONPATH and the current folder hold of the checkout at hand."""
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("PYTHONPATH", f"{checkout}/src:/elsewhere")
    revision = Revision("HEAD~1", "0" * 40, checkout.resolve(), Path("/at"))
    side = Side("base", checkout / "tiny.py", [], [], Path("results"), revision.moved(checkout), revision)
    assert side.environment()["PYTHONPATH"] == "/at:/at/src:/elsewhere:/at"
    assert str(side) == "tiny.py at HEAD~1 (000000000000)"
    with pytest.raises(RecipeError, match="which has no other"):
        revision.recipe(checkout / "other.py")


def test_no_revision_outside_a_checkout(checkout, recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(RecipeError, match="outside a git checkout"), checked_out("HEAD", recipe):
        pass
    with (
        pytest.raises(RecipeError, match="expected a revision that git knows"),
        checked_out("v9", checkout / "tiny.py"),
    ):
        pass
    with checked_out(None, recipe) as nothing:
        assert nothing is None


def test_words_of_the_base_of_are_added():
    first = parse_options(["batch_size=8", "--framework", "reference", "--out", "there"])
    path, second = base_of(Path("a.py"), first, "'model_kwargs.name=a b' --framework jax --open")
    assert (path, second.overrides) == (Path("a.py"), ["batch_size=8", "model_kwargs.name=a b"])
    assert (second.framework, second.open, second.out) == ("jax", True, Path("there"))
    assert base_of(Path("a.py"), first, "")[1].defining() == first.defining()


@pytest.mark.parametrize("words", ["--out x", "--repeat 3", "--seed 1", "--dry-run", "--json", "--resume", "'open"])
def test_words_that_both_sides_share_are_refused(words):
    with pytest.raises(RecipeError, match="--against"):
        base_of(Path("a.py"), parse_options([]), words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pairs", "8"], "without another run"),
        (["--control"], "without another run"),
        (["--against", "", "--pairs", "5"], "expected 6 or more"),
        (["--against", "", "--repeat", "5"], "expected --pairs"),
        (["--against", "", "--resume"], "expected a new comparison"),
        (["--against", "no_such_recipe"], "no_such_recipe"),
        (["--against", "epochs=3"], "FIXED"),
    ],
)
def test_options_that_do_not_go_together(recipe, words, message, capsys):
    assert cli.main(["run", str(recipe), *words]) == 2
    assert message in capsys.readouterr().err


def test_an_ordinary_run_asks_for_nothing():
    assert Against(None, None, None, False).nothing and not Against("", None, None, False).nothing


def test_an_epoch_waits_for_its_turn(monkeypatch):
    ours, theirs = socket.socketpair()
    monkeypatch.setenv(DESCRIPTOR, str(theirs.detach()))
    assert turn_listeners(ranks=2) == []  # ranks that wait would take processors
    (listener,) = turn_listeners(ranks=1)
    assert isinstance(listener, TakeTurns)
    ours.send(GO)
    listener.before_epoch(None)
    assert ours.recv(9) == ASK
    ours.close()
    with pytest.raises(KeyboardInterrupt, match="has ended"):
        listener.before_epoch(None)
    listener.referee.close()
    monkeypatch.delenv(DESCRIPTOR)
    assert turn_listeners(ranks=1) == []
