"""The DeepBench recipe: the list is whole, networks are what it says, tables and errors are honest."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from deep500.measure.statistics import Interval
from deep500.registry import load_backend
from recipes.studies.deepbench_operators import __main__ as deepbench
from recipes.studies.deepbench_operators.__main__ import BackendRow, ListedProblem

CONV = ListedProblem(
    "conv",
    {
        "width": 6,
        "height": 5,
        "channels": 2,
        "batch": 3,
        "filters": 4,
        "filter_width": 3,
        "filter_height": 2,
        "pad_width": 1,
        "pad_height": 0,
        "stride_width": 2,
        "stride_height": 1,
    },
)
GEMM = ListedProblem("gemm", {"m": 3, "n": 4, "k": 5, "transpose_a": 1, "transpose_b": 0})
LSTM = ListedProblem("rnn", {"cell": "lstm", "hidden": 4, "batch": 2, "steps": 3})


def test_the_list_is_whole():
    """94, 160 and 52 are the counts of the published lists; a few rows by value."""
    problems = deepbench.problems()
    assert {kind: sum(problem.kind == kind for problem in problems) for kind in deepbench.KINDS} == {
        "conv": 94,
        "gemm": 160,
        "rnn": 52,
    }
    text = [str(problem) for problem in problems]
    assert text[0] == "4x1x161x700, 32 of 5x20, pad 0, step 2"
    assert text[93] == "16x2048x7x7, 512 of 1x1, pad 0, step 1"
    assert "1760 x 7133 x 1760 NT" in text and "512 x 8 x 500000 TN" in text
    assert "vanilla 2560, batch 128, 50 steps" in text and text[-1] == "gru 1024, batch 64, 1500 steps"
    assert "github.com/baidu-research/DeepBench" in json.loads(deepbench.SIZES.read_text())["source"]


def test_a_limit_takes_the_smallest_of_each_kind():
    every = deepbench.problems()
    for problem in deepbench.problems(limit=1):
        assert deepbench.work(problem) == min(deepbench.work(other) for other in every if other.kind == problem.kind)


@pytest.mark.parametrize(
    ("problem", "shape", "flop"),
    [
        (CONV, (3, 4, 4, 3), 2 * (3 * 4 * 4 * 3) * (2 * 2 * 3)),
        (GEMM, (3, 4), 2 * 3 * 4 * 5),
        (LSTM, (3, 1, 2, 4), 2 * 3 * 2 * (2 * 16 * 4)),
        (ListedProblem("rnn", {**LSTM.sizes, "cell": "vanilla"}), (3, 1, 2, 4), 2 * 3 * 2 * (2 * 4 * 4)),
    ],
    ids=["conv", "gemm", "lstm", "vanilla"],
)
def test_networks_are_what_the_list_says(problem: ListedProblem, shape: tuple[int, ...], flop: int):
    """Shape and operations counted by hand; all inputs get gradients, which nothing in the graph makes constant."""
    network, fed = problem.network(training=True)
    assert network.descriptors()["y"].shape == shape and problem.flop(network) == flop
    executor = load_backend("reference").from_model(network)
    executor.inference_and_backprop(fed, "loss")
    gradients = {name: executor.network.fetch_tensors([g])[0] for name, g in executor.network.gradient("loss")}
    assert len(gradients) == (3 if problem.kind == "rnn" else 2)
    assert all(np.any(g) for g in gradients.values())
    forward, inputs = problem.network(training=False)
    assert list(inputs) == list(forward.inputs) and len(forward.parameters) == len(gradients) - 1


def test_times_and_speeds(backend_name: str):
    row = deepbench.measure(GEMM, backend_name, samples=6, memory=1.0)
    assert not row.failure and row.flop == 120
    cells = dict(zip([*deepbench.HEAD[:3], "ms", "ci", "speed"], row.cells()[:6], strict=True))
    assert cells["backend"] == backend_name and cells["sizes"] == "3 x 4 x 5 TN"
    assert float(cells["speed"]) == pytest.approx(120 / row.forward.median / 1e9, rel=0.01)
    assert row.training.low <= row.training.median <= row.training.high
    assert float(row.cells()[8]) == pytest.approx(360 / row.training.median / 1e9, rel=0.01)


def test_what_has_no_times_says_why(monkeypatch):
    large = replace(GEMM, sizes={**GEMM.sizes, "m": 2000, "n": 2000})
    assert "needs about" in deepbench.measure(large, "reference", 6, memory=0.01).failure
    monkeypatch.setattr(deepbench, "_seconds", _raise)
    row = deepbench.measure(GEMM, "reference", 6, memory=1.0)
    assert row.failure == "failed: RuntimeError: no room" and row.wrong
    fine = BackendRow(GEMM, "pytorch", 120, *[Interval(1e-3, 9e-4, 2e-3, 6)] * 2)
    lines = deepbench.table([row, fine]).splitlines()
    assert lines[0].split()[:3] == ["kind", "sizes", "backend"]
    assert lines[1].endswith("failed: RuntimeError: no room")
    assert lines[2].split("  ")[-1].strip() == "0.00036"


def _raise(*_):
    raise RuntimeError("no room\nand more")


def test_command_line(capsys, monkeypatch):
    monkeypatch.setattr(deepbench, "problems", lambda kinds, limit: [GEMM, LSTM] if limit == 1 else [])
    assert deepbench.main(["--quick", "--backend", "reference"]) == 0
    out = capsys.readouterr().out
    assert "medians of 6" in out and "lstm 4, batch 2, 3 steps" in out
    assert deepbench.main(["--backend", "caffe"]) == 2
    assert "got backend 'caffe'" in capsys.readouterr().err
    for words in (["--samples", "2"], ["--limit", "0"], ["--kind", "pool"]):
        with pytest.raises(SystemExit, match="2"):
            deepbench.main(words)
