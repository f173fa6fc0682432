"""``deep500 optimize``: files in and out, bytes, exit codes, one-line errors."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from deep500 import cli
from deep500.networks import Network
from deep500.progress import progress
from deep500.transformations.substitutions import command, loading
from deep500.transformations.substitutions.rules.rule_file import write
from tests.conftest import HANG, load_backend
from tests.test_cli import error_line
from tests.transformations.substitutions.samples import assert_same, branches, images, saved
from tests.transformations.substitutions.test_optimize_inputs import WRONG

FORMULA = ["--no-measure", "--backend", "reference"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    branches("N").to_onnx("model.onnx")
    return "model.onnx"


def optimize(*words: str) -> int:
    return cli.main(["optimize", *words])


def test_a_file_in_and_a_file_out(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(model, "-o", "out.onnx", *FORMULA) == 0
    captured = capsys.readouterr()
    assert "7 -> 5 operators for reference" in captured.out and "measured: not measured" in captured.out
    assert "checked: outputs within" in captured.out and captured.out.endswith("out.onnx\n")
    assert captured.err == "", "no progress bar where there is no terminal"
    onnx.checker.check_model(onnx.load("out.onnx"), full_check=True)
    assert len(Network.from_onnx("out.onnx").nodes) == 4, "the sum of three is no chain of two as in the network"
    for size in (1, 5):
        assert_same(branches("N"), Network.from_onnx("out.onnx"), 1e-6, N=size)


def test_two_runs_and_a_replay_write_the_same_bytes(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(model, "-o", "one.onnx", "--history", "one.json", *FORMULA) == 0
    assert optimize(model, "-o", "two.onnx", "--history", "two.json", *FORMULA) == 0
    assert optimize(model, "-o", "three.onnx", "--replay", "one.json") == 0
    assert "7 -> 5 operators, as one.json says" in capsys.readouterr().out
    first, second, replayed = (Path(f"{name}.onnx").read_bytes() for name in ("one", "two", "three"))
    assert first == second == replayed != Path(model).read_bytes()
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_a_measured_result_replays_to_its_bytes(model: str) -> None:
    load_backend("pytorch")
    words = [
        model,
        "-o",
        "out.onnx",
        "--history",
        "out.json",
        "--budget",
        "2",
        "--size",
        "N=4",
        "--database",
        "costs.sqlite",
        "--backend",
        "pytorch",
    ]
    assert optimize(*words) == 0 and Path("costs.sqlite").is_file()
    assert optimize(model, "-o", "again.onnx", "--replay", "out.json") == 0
    assert Path("again.onnx").read_bytes() == Path("out.onnx").read_bytes()


def test_options_reach_the_search(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(model, "-o", "out.onnx", "--budget", "0", *FORMULA) == 0
    assert "the budget is 0: nothing was searched" in capsys.readouterr().out
    assert saved(Network.from_onnx("out.onnx")) == Path(model).read_bytes()
    assert optimize(model, "-o", "out.onnx", "--training", *FORMULA) == 0
    assert Network.from_onnx("out.onnx").trainable() == ["w0", "w1", "w2"]
    assert optimize(model, "-o", "out.onnx", "--history", "h.json", "--size", "N=10", *FORMULA) == 0
    assert json.loads(Path("h.json").read_text())["sizes"] == {"N": 11}, "the next number that divides no size"


@pytest.mark.parametrize("keep", [True, False])
def test_an_interrupted_search_offers_what_it_has(
    keep: bool, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The signal comes while states are priced, each time at the same one."""
    priced = itertools.count()

    def show(budget: float, seconds: float, best: float, first: float, what: str) -> None:
        if first and next(priced) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(command, "_show", show)
    before = signal.getsignal(signal.SIGINT)
    words = (model, "-o", "out.onnx", *FORMULA, *["--keep"] * keep)
    if not keep:
        assert optimize(*words) == 130 and "with --keep" in capsys.readouterr().err and not Path("out.onnx").exists()
        return
    assert optimize(*words) == 0 and signal.getsignal(signal.SIGINT) == before
    out = capsys.readouterr().out
    assert "ended by the budget" in out and "checked" in out
    assert_same(Network.from_onnx(model), Network.from_onnx("out.onnx"), 1e-6, N=3)


def test_the_input_may_be_the_output(model: str) -> None:
    assert optimize(model, "-o", model, *FORMULA) == 0
    assert len(Network.from_onnx(model).nodes) == 4


ERRORS = [  # words after the model, exit code, what the error says
    (["-o", "out.onnx", "--budget", "-1"], 2, "got budget -1.0"),
    (["-o", "out.onnx", "--budget", "nan"], 2, "got budget nan"),
    (["-o", "out.onnx", "--budget", "soon"], 2, "soon"),
    (["-o", "out.onnx", "--alpha", "0"], 2, "got alpha 0.0"),
    (["-o", "out.onnx", "--search", "magic"], 2, "magic"),
    (["-o", "out.onnx", "--size", "N"], 2, "got --size 'N'; expected NAME=N"),
    (["-o", "out.onnx", "--size", "N=0"], 2, "got --size 'N=0'"),
    (["-o", "out.onnx", "--size", "M=3"], 2, "symbolic sizes, which are N"),
    (["-o", "out.onnx", "--backend", "pytroch"], 2, "did you mean 'pytorch'"),
    (["-o", "out.onnx", "--rules", "nowhere.jsonl"], 3, "nowhere.jsonl: got no such file"),
    (["-o", "out.onnx", "--replay", "nowhere.json"], 3, "nowhere.json"),
    (["-o", "out.onnx", "--replay", "a.json", "--history", "b.json"], 2, "got --replay and --history"),
    (["-o", "nowhere/out.onnx"], 2, "a folder that exists"),
    (["-o", "."], 2, "the name of a file"),
    (["-o", "out.onnx", "--history", "nowhere/h.json"], 2, "nowhere/h.json"),
    (["-o", "out.onnx", "--custom-op", "nowhere.py"], 2, "nowhere.py"),
    ([], 2, "-o"),
]


@pytest.mark.parametrize(("words", "code", "message"), ERRORS, ids=[" ".join(first[0]) for first in ERRORS])
def test_exit_codes(words: list[str], code: int, message: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(model, *words, "--no-measure") == code
    assert message in error_line(capsys)
    assert not Path("out.onnx").exists()


def test_files_that_are_no_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.onnx").write_text("no model")
    (tmp_path / "empty.onnx").write_bytes(b"")
    for name in ("text.onnx", "empty.onnx", "absent.onnx"):
        assert optimize(str(tmp_path / name), "-o", str(tmp_path / "out.onnx"), *FORMULA) == 2
        assert name in error_line(capsys) or name == "empty.onnx"
    assert not (tmp_path / "out.onnx").exists()


def test_the_same_bytes_are_written_when_the_check_fails(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that is wrong, claims a proof, and was not refused when it was loaded."""
    write([WRONG], "rules.jsonl")
    monkeypatch.setattr(loading, "refuse", lambda *_: None)
    assert optimize(model, "-o", "out.onnx", "--history", "h.json", "--rules", "rules.jsonl", *FORMULA) == 0
    assert "keep the original and report this" in capsys.readouterr().out
    assert Path("out.onnx").read_bytes() == Path(model).read_bytes()


def test_a_history_of_another_model_is_refused(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert optimize(model, "-o", "out.onnx", "--history", "h.json", *FORMULA) == 0
    images().to_onnx("images.onnx")
    capsys.readouterr()
    assert optimize("images.onnx", "-o", "other.onnx", "--replay", "h.json") == 2
    assert "optimize the network anew" in error_line(capsys) and not Path("other.onnx").exists()


def test_a_model_with_the_users_own_operator(model: str, tmp_path: Path) -> None:
    (tmp_path / "halve.py").write_text(
        "import deep500 as d5\n\n\n"
        "@d5.register_op('TestHalve')\n"
        "class Halve(d5.CustomPythonOp):\n"
        "    def forward(self, inputs):\n"
        "        return inputs[0] / 2\n"
    )
    network = branches()
    network.add_node("TestHalve", ["y"], ["z"], domain="deep500")
    network.add_output("z")
    network.to_onnx("custom.onnx")
    words = ["optimize", "custom.onnx", "-o", "out.onnx", "--custom-op", "halve.py", *FORMULA]
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "deep500", *words],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    kinds = [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node]
    assert kinds.count("MatMul") == 1 and kinds.count("TestHalve") == 1


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "quiet", "shown"), [(_Terminal, False, True), (_Terminal, True, False), (io.StringIO, False, False)]
)
def test_the_line_is_for_terminals(stream: Any, quiet: bool, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setattr("deep500.progress._APART", -1.0)
    with progress("search", quiet, at_once=True):
        command._show(10.0, 1.0, 0.0, 0.0, "the original's answers")
        command._show(10.0, 4.0, 1e-3, 2e-3, "from form 1")
    text = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert ("4 of 10 s, predicted 2 -> 1 ms, from form 1" in text) == shown and (text == "") != shown
    assert ("1 of 10 s, the original's answers" in text) == shown
    with progress("search", quiet, at_once=True):
        command._show(float("inf"), 1.0, 1.0, 1.0, "timing")
    assert (" 1 s, predicted 1e+03" in sys.stderr.getvalue()) == shown  # type: ignore[attr-defined]
