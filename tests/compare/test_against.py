"""``deep500 run A --against B``: two ordinary runs whose launches took turns, and a comparison pair by pair."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from deep500 import cli
from deep500.compare.against import base_of
from deep500.compare.launches import Side
from deep500.compare.revision import Revision, checked_out
from deep500.compare.runs import compare_runs
from deep500.compare.unfinished import ComparisonFile, wait_until_free
from deep500.errors import RecipeError, ResultsError
from deep500.recipe.options import Against, parse_options
from deep500.recipe.turns import ASK, DESCRIPTOR, GO, TakeTurns, turn_listeners
from deep500.results import Record
from deep500.results.verify import verify

RECIPE = """
import time

import deep500 as d5
import deep500.frameworks.reference as d5fw

class Fails(d5.Event):
    def before_epoch(self, run):
        raise d5.errors.DataError("got no luck; expected some: try again")

class Slow(d5.Event):
    def before_batch(self, run):
        time.sleep(0.1)  # far beyond what a busy machine adds to a step

class Slower(d5.Event):
    def before_epoch(self, run):
        time.sleep(1.0)

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


@pytest.fixture
def few(monkeypatch):
    """Seven pairs can decide, so that little time is spent."""
    few_pairs(monkeypatch)


def few_pairs(monkeypatch, fewest=7):
    for module in ("compare.against", "measure.sequential", "compare.runs"):
        monkeypatch.setattr(f"deep500.{module}.FEWEST", fewest)
    monkeypatch.setattr("deep500.measure.sequential.INDEPENDENT", 0.0)


@pytest.fixture(scope="module")
def compared(recipe, tmp_path_factory):
    """Nine pairs at most, where the base is much slower: the verdict, its folder, and the exit code."""
    out = tmp_path_factory.mktemp("results")
    command = ["run", str(recipe), "optimizer_kwargs.lr=0.2", "--against", f"batch_size=512 events={recipe}:Slow"]
    with pytest.MonkeyPatch.context() as monkeypatch:
        few_pairs(monkeypatch)
        code = cli.main([*command, "--pairs", "9", "--out", str(out), "--quiet"])
    (place,) = (out / "against-tiny").glob("*.json")
    return json.loads(place.read_text()), out, code


def sides(facts):
    return [Path(facts["sides"][name]["run"]) for name in ("base", "judged")]


def test_both_sides_are_ordinary_runs(compared):
    facts, out, _ = compared
    for path, words in zip(sides(facts), (["lr=0.2", "512", ":Slow"], ["lr=0.2"]), strict=True):
        manifest, summary = (json.loads((path / name).read_text()) for name in ("manifest.json", "summary.json"))
        assert verify(path) == [] and (path / "report.html").is_file() and summary["verdict"] == "PASSED"
        assert manifest["seeds"] == summary["seeds"] == [3, 4, 5, 6, 7, 8, 9]
        assert manifest["resolved"]["seeds"] == list(range(3, 12)) and len(manifest["resumed"]) == 7
        assert all(any(word.endswith(wanted) for word in manifest["argv"]) for wanted in words)
        assert manifest["turns"] == {**manifest["turns"], "id": facts["turns"], "apart": [], "ended": 7}
        launches = json.loads((path / "stats.json").read_text())["series"]["step"]["launches"]
        assert [launch["launch"] for launch in launches] == manifest["seeds"]
    assert len((out / "tiny" / "ledger.jsonl").read_text().splitlines()) == 2
    assert facts["sides"]["base"]["words"][:2] == ["optimizer_kwargs.lr=0.2", "batch_size=512"]
    assert facts["changed"]["resolved.recipe.batch_size"] == [512, 128] and facts["seconds"] > 0


def test_the_first_look_that_decides_ends_it(compared):
    facts, _, code = compared
    assert [look["pairs"] for look in facts["looks"]] == list(range(1, 8)) and facts["status"] == "finished"
    assert [look["verdict"] for look in facts["looks"]] == ["unresolved"] * 6 + ["faster"] and code == 0
    (step,) = (series for series in facts["series"] if series["series"] == "step")
    last = facts["looks"][-1]
    assert (last["ratio"], last["low"], last["p"]) == (step["ratio"], step["low"], step["p"])
    assert [pair["seed"] for pair in facts["pairs"]] == list(range(3, 10)) and facts["most"] == 9


@pytest.mark.slow
def test_the_comparison_is_that_of_the_pairs_and_can_be_made_again(compared, few):
    facts, _, code = compared
    again = compare_runs(*sides(facts))
    assert code == facts["exit_code"] == again.exit_code
    assert facts["series"] == json.loads(json.dumps(again.as_dict()))["series"]
    stats = [json.loads((path / "stats.json").read_text())["series"]["step"]["launches"] for path in sides(facts)]
    a, b = ([launch["median"] for launch in launches] for launches in stats)
    (step,) = (series for series in again.series if series.series == "step")
    by_sample = np.exp(np.median(np.log(np.array(b) / a))) * 512 / 128
    assert (
        step.ratio.median == pytest.approx(by_sample) and "over 7 pairs of launches in turns, per sample" in step.basis
    )
    assert not any(remark.startswith("taken apart") for remark in again.remarks)


def begin(recipe, out, words=()):
    """A comparison in a process of its own, as soon as its second pair has begun; its file."""
    command = [sys.executable, "-m", "deep500", "run", str(recipe), *words, "--against", "", "--out", str(out)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert running.poll() is None, running.communicate()
        for place in (out / "against-tiny").glob("*.json"):
            if json.loads(place.read_text())["begun"] == 2:
                time.sleep(0.5)  # its launches have begun, too
                return running, place
        time.sleep(0.05)
    raise AssertionError("no second pair within two minutes")


def launches_of(group):
    """Processes that a comparison has started and that still run ten seconds after it has ended."""
    end = time.monotonic() + 10
    while True:
        text = subprocess.run(["ps", "-eo", "pgid,pid,stat"], capture_output=True, text=True, check=True).stdout
        rows = (line.split() for line in text.splitlines()[1:])
        running = [pid for leader, pid, state in rows if int(leader) == group and not state.startswith("Z")]
        if not running or time.monotonic() > end:
            return running
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_stopped_leaves_what_there_is_and_says_how_to_go_on(recipe, tmp_path, number):
    running, place = begin(recipe, tmp_path)
    if number == signal.SIGINT:
        os.killpg(running.pid, number)  # as a terminal does
    else:
        running.send_signal(number)
    out, errors = (text.decode() for text in running.communicate(timeout=60))
    assert running.returncode == 130 and not launches_of(running.pid)
    assert "a verdict takes 12 pairs or more, about" in out and "; all 24 take about" in out
    assert "stopped after 1 pair; unresolved so far, time ratio" in errors and f"--resume {place}" in errors
    facts = json.loads(place.read_text())
    assert facts["status"] == "unfinished" and len(facts["pairs"]) == len(facts["looks"]) == 1


@pytest.mark.slow
def test_who_is_killed_is_gone_on_with_and_the_pair_that_was_cut_does_not_count(recipe, tmp_path, monkeypatch, capsys):
    running, place = begin(recipe, tmp_path, [f"events={recipe}:Slower"])
    running.kill()
    running.communicate()
    assert not launches_of(running.pid)
    facts = json.loads(place.read_text())
    assert [look["pairs"] for look in facts["looks"]] == [1] and facts["status"] == "unfinished"
    place.write_text(json.dumps({**facts, "most": 2}))  # enough of it
    few_pairs(monkeypatch, fewest=2)
    again = ["run", str(recipe), "--resume", str(place)]
    code, said = cli.main(again), capsys.readouterr()
    assert code == 2 and "pair 2 was stopped" in said.out, said.err
    facts = json.loads(place.read_text())
    assert said.err == ""
    assert facts["apart"] == [4] and facts["status"] == "finished" and len(facts["pairs"]) == 2
    for path in sides(facts):
        manifest = json.loads((path / "manifest.json").read_text())
        assert verify(path) == [] and manifest["seeds"] == [3, 4] and manifest["turns"]["apart"] == [4]
    (step,) = (series for series in facts["series"] if series["series"] == "step")
    assert "over 1 pair of launches in turns" in step["basis"] and facts["exit_code"] == 2
    assert "2 seeds: --repeat" in facts["qualities"][0]["test"]  # both seeds count for quality
    with pytest.raises(ResultsError, match="is finished"):
        ComparisonFile.open(place)
    assert cli.main(["run", "digits_lenet", "--resume", str(place)]) != 0
    place.write_text(json.dumps({**facts, "status": "unfinished", "most": "many"}))
    assert cli.main(again) == 2 and "got most: " in capsys.readouterr().err


def test_who_goes_on_waits_for_launches_that_end_with_their_epoch(tmp_path, monkeypatch):
    record = Record.create(tmp_path, "job", {"resolved": {}})
    monkeypatch.setattr("deep500.compare.unfinished.PATIENCE", 0.3)
    wait_until_free(record.path)
    with record.lock(), pytest.raises(ResultsError, match="another process"):
        wait_until_free(record.path)


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
    side = Side("base", checkout / "tiny.py", [], [], Path("results"), revision.moved(checkout), "1f:base", revision)
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
    first = parse_options(["batch_size=8", "--backend", "reference", "--out", "there"])
    path, second = base_of(Path("a.py"), first, "'model_kwargs.name=a b' --backend jax --open")
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
        (["--against", "", "--pairs", "11"], "expected 12 or more"),
        (["--against", "", "--repeat", "5"], "expected --pairs"),
        (["--against", "", "--resume"], "expected the file of a comparison"),
        (["--resume", "no/such.json"], "no such file"),
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
