"""``deep500 profile``: the table, the files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500 import cli, registry
from deep500.networks import add_loss, create
from deep500.profiling import profile_table, read_profile


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    add_loss(create("mlp", shape=(4,))).to_onnx("model.onnx")


def run(*words: str) -> int:
    return cli.main(["profile", *words, "--rounds", "1", "--quiet", "--out", "out"])


def written() -> dict[str, Any]:
    assert run("model.onnx", "--backend", "reference", "--batch", "3") == 0
    content: dict[str, Any] = json.loads(Path("out/profile.json").read_text())
    return content


def test_a_model_is_profiled_and_its_file_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    content = written()
    shown = capsys.readouterr().out
    assert content["loss"] == "loss" and content["shapes"] == {"input": [3, 4], "label": [3]}
    rows = [row["name"] for row in content["rows"]]
    assert "fc1" in rows and all(f"\n{name} " in shown for name in rows)
    assert "(Deep500)" in shown and "(between kernels)" in shown and "times that with it" in shown
    assert cli.main(["profile", "out/profile.json"]) == 0
    again = capsys.readouterr().out
    assert again.strip("\n") == shown.partition("\n\nresults")[0] == profile_table(read_profile("out/profile.json"))
    cells = {line.split()[0]: line.split()[2] for line in again.splitlines() if line.partition(" ")[0] in rows}
    assert sum(map(float, cells.values())) == pytest.approx(read_profile("out/profile.json").flops() / 1e6, rel=0.05)
    assert len(cells) > 5 and min(map(float, cells.values())) > 0  # also of nodes with few operations
    assert cli.main(["profile", "out/profile.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == content


def test_a_recipe_trains_and_a_model_without_a_loss_runs_forward(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("digits_lenet", "--backend", "reference", "batch_size=16", "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert content["loss"] == "loss" and content["shapes"]["label"] == [16]
    phases = {kernel[4] for kernel in content["frameworks"][0]["kernels"]}
    assert phases == {"forward", "backward"}
    create("mlp", shape=(4,)).to_onnx("bare.onnx")
    for words in (["bare.onnx"], ["model.onnx", "--forward"]):
        assert run(*words, "--backend", "reference", "--json") == 0
        content = json.loads(capsys.readouterr().out)
        assert content["loss"] is None
        assert {kernel[4] for kernel in content["frameworks"][0]["kernels"]} == {"forward"}


def free_axes() -> None:
    net = create("mlp", shape=(4,))
    net.add_input("mask", ("N", "T"))
    net.add_node("ReduceMean", ["mask"], ["mean"], keepdims=0)
    net.add_output("mean")
    net.to_onnx("free.onnx")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["free.onnx", "--backend", "reference"], "--size T=8"),
        (["free.onnx", "--backend", "reference", "--size", "T"], "a name and a whole number"),
        (["model.onnx", "--backend", "reference,pytorhc"], "pytorch"),
        (["model.onnx", "--backend", ","], "at least one"),
        (["model.onnx", "lr=1", "--backend", "reference"], "expected no key=value"),
        (["digits_lenett", "--backend", "reference"], "digits_lenet"),
        (["out/profile.json", "--backend", "reference"], "measured before"),
        (["absent.json"], "no such file"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    free_axes()
    assert run(*words) in (2, 3)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "expected" in line]
    assert message in line


def test_a_framework_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(registry.BACKENDS, "absent", ("no_such_framework", "absent"))
    assert run("model.onnx", "--backend", "reference,absent") == 3
    assert "pip install 'deep500[absent]'" in capsys.readouterr().err


DAMAGE = {
    "no JSON": lambda content: None,
    "another program's": lambda content: content.update(format="trace"),
    "another version": lambda content: content.update(version=2),
    "negative time": lambda content: content["frameworks"][0]["kernels"][0].__setitem__(2, -1.0),
    "no such phase": lambda content: content["frameworks"][0]["kernels"][0].__setitem__(4, "sideways"),
    "no such node": lambda content: content["frameworks"][0]["kernels"][0].__setitem__(3, "nobody"),
    "fused by nobody": lambda content: content["frameworks"][0]["fused"].update(fc1="nobody"),
    "no framework": lambda content: content.update(frameworks=[]),
    "no rows": lambda content: content.pop("rows"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused(damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = written()
    DAMAGE[damage](content)
    Path("bad.json").write_text(json.dumps(content)[: 100 if damage == "no JSON" else None])
    assert cli.main(["profile", "bad.json"]) == 2
    error = capsys.readouterr().err
    assert "bad.json" in error and "expected" in error


def test_a_profile_of_another_machine_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    content = written()
    content["machine"]["cpu"] = "Z80"
    Path("there.json").write_text(json.dumps(content))
    capsys.readouterr()
    assert cli.main(["profile", "there.json"]) == 0
    assert capsys.readouterr().out.startswith("measured on another machine: cpu Z80 (here ")


SPECIFICATION: dict[str, dict[str, Any]] = {  # "Trace Event Format", sections Complete Events and Metadata Events
    "X": {"name": str, "cat": str, "ts": (int, float), "dur": (int, float), "pid": int, "tid": int},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
}


def test_the_trace_is_as_its_format_says() -> None:
    written()
    trace = json.loads(Path("out/trace.json").read_text())
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"} and trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        kinds = SPECIFICATION[event["ph"]]
        assert all(isinstance(event[key], kind) for key, kind in kinds.items())
        assert set(event) <= {*kinds, "ph", "args"}
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {(event["pid"], event["tid"]) for event in spans} == named
    for thread in named:  # events of a thread lie one after the other or one inside the other
        ends: list[float] = []
        for event in sorted((e for e in spans if (e["pid"], e["tid"]) == thread), key=lambda e: (e["ts"], -e["dur"])):
            assert event["ts"] >= 0 and event["dur"] >= 0
            while ends and ends[-1] <= event["ts"] + 1e-3:
                ends.pop()
            assert not ends or event["ts"] + event["dur"] <= ends[-1] + 1e-3
            ends.append(event["ts"] + event["dur"])
    (step,) = [event for event in spans if event["name"] == "step"]
    content = json.loads(Path("out/profile.json").read_text())["frameworks"][0]
    assert step["dur"] == pytest.approx(1e6 * content["seconds"], abs=1e-3)
    assert len(spans) - 1 == len(content["kernels"]) and np.isfinite(step["dur"])
