"""E2 by deployment: rows say what was measured, planted faults are seen, a run that ended goes on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import Network
from deep500.networks.execution.program import Program
from deep500.networks.execution.recognition import recognised
from deep500.registry import load_backend
from recipes.studies.graph_substitutions import __main__ as recipe
from recipes.studies.graph_substitutions import deployments
from recipes.studies.graph_substitutions.exported import build

WORDS = ["e2", "--networks", "nasrnn", "--deployments", "onnxruntime", "--seconds", "0.05", "--clock", "cpu"]
TINY = {
    "convnext": dict(shape=(3, 16, 16), blocks=(1, 1), widths=(8, 16)),
    "vit": dict(shape=(3, 16, 16), patch=8, width=16, heads=2, layers=1),
    "gpt2": dict(shape=(6, 16), heads=2, layers=1),
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rows in a folder of their own, of a network that takes no time, without what others install."""
    load_backend("onnxruntime")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(deployments.NETWORKS, "nasrnn", ("nasrnn", dict(shape=(2, 8)), {}))  # type: ignore[index]
    monkeypatch.setattr(deployments, "find_spec", lambda name: None)


def plant(monkeypatch: pytest.MonkeyPatch, factor: float) -> list[str]:
    """An optimizer that multiplies every weight; returns for what it was asked."""
    asked = list[str]()

    def optimize(network: Network, where: str, *_: Any, **__: Any) -> SimpleNamespace:
        asked.append(where)
        other = network.copy()
        for parameter in other.parameters.values():
            parameter.value = (parameter.value * factor).astype(parameter.value.dtype)
        history = SimpleNamespace(steps=())
        return SimpleNamespace(network=other, seconds=0.5, history=history, chosen=None, reason="")

    monkeypatch.setattr(d5, "optimize_network", optimize, raising=False)
    return asked


# -- networks ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "found"), [("convnext", "Gelu"), ("vit", "Gelu Attention"), ("gpt2", "Gelu Attention")]
)
def test_pieces_are_those_that_exporters_leave(name: str, found: str) -> None:
    """What runs them knows the pieces again, and a backend that does computes the same as one that does not."""
    network = build(name, 4, **TINY[name])  # type: ignore[arg-type]
    nodes, known = list(network.nodes), network.parameters
    program = Program(list(network.inputs), list(network.outputs), nodes, descriptors=dict(network.descriptors()))
    program.attributes = {parameter: parameter for parameter in known}
    operators = [("", "Gelu"), ("", "Attention")]
    value = lambda n: known[n].value if n in known else None  # noqa: E731
    _, names = recognised(program, operators, value, lambda n: False)
    assert set(names.values()) == set(found.split())
    x = {"input": np.random.default_rng(0).normal(size=(1, *TINY[name]["shape"])).astype("float32")}  # type: ignore[misc]
    ours, theirs = (load_backend(b).from_model(network).inference(x) for b in ("reference", "pytorch"))
    np.testing.assert_allclose(
        ours[network.outputs[0]], np.asarray(theirs[network.outputs[0]].detach()), rtol=1e-4, atol=1e-5
    )


def test_every_network_is_small_and_whole() -> None:
    assert len(deployments.NETWORKS) == 11
    for name in deployments.NETWORKS:
        network = deployments.network(name)
        assert len(network.nodes) < 200 and all(d.shape[0] == 1 for d in network.inputs.values() if d.shape)


# -- rows -------------------------------------------------------------------------------------------------------------
def test_rows_are_kept_and_pages_are_written(tiny: None, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked = plant(monkeypatch, 1.0)
    page = Path("page.md")
    page.write_text(f"before\n{deployments.BEGIN}\nold\n{deployments.END}\nafter\n")
    assert recipe.main([*WORDS, "--docs", "page.md"]) == 0
    assert recipe.main([*WORDS, "--networks", "nasrnn,vit", "--no-measure"]) == 0, "what is absent stays so"
    assert recipe.main(WORDS) == 0 and asked == ["onnxruntime"], "what is in the file is not measured again"
    (row,) = map(json.loads, Path("e2.jsonl").read_text().splitlines())
    assert row["same"] == {"ours": "original"} and row["absent"] == dict.fromkeys(deployments.PEERS, "not installed")
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "nasrnn" in text and "the same" in text and text.count("not installed") == len(deployments.PEERS)
    assert "geometric mean of original / ours over 1 networks: 1" in capsys.readouterr().out


def test_wrong_answers_and_failures_are_said(tiny: None, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    plant(monkeypatch, 1.1)
    assert recipe.main(WORDS) == 1
    assert "WRONG: nasrnn in onnxruntime: answers differ by" in capsys.readouterr().out

    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("planted\nand more")

    monkeypatch.setattr(d5, "optimize_network", fail, raising=False)
    assert recipe.main([*WORDS, "--rows", "other.jsonl"]) == 1
    assert "WRONG: nasrnn in onnxruntime: ValueError: planted\n" in capsys.readouterr().out


def test_other_optimizers_that_fail_are_named(tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: Any) -> Any:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(deployments, "find_spec", lambda name: name)
    chosen = {"onnxsim": refuse, "onnxoptimizer": lambda model: model, "onnxscript": lambda model: model}
    monkeypatch.setattr(deployments, "PEERS", chosen)
    made, absent = deployments.peers(deployments.network("nasrnn"))
    assert set(made) == {"onnxoptimizer", "onnxscript"} and absent == {
        "onnxsim": "failed: RuntimeError: no such operator"
    }


def test_the_best_of_the_others_is_faster_beyond_noise() -> None:
    rounds = np.tile([1.0, 1.1, 0.9, 1.05], 8)
    samples = {"original": rounds, "onnxsim": rounds[::-1] * 0.99, "onnxoptimizer": 0.5 * rounds, "ours": 0.25 * rounds}
    row: dict[str, Any] = {"same": {"onnxscript": "original"}, "samples": {n: list(v) for n, v in samples.items()}}
    assert deployments.best(row) == "onnxoptimizer"
    beside = deployments.ratio(row, "onnxoptimizer", "ours")
    assert beside is not None and beside.median == pytest.approx(2)
    del row["samples"]["onnxoptimizer"]
    assert deployments.best(row) == "original", "a median below 1 alone says nothing"
    stayed = {"same": {"ours": "original"}, "samples": {"original": list(rounds)}}
    gain = deployments.mean([row, stayed])
    assert gain is not None and gain.median == pytest.approx(2), "geometric mean of 4 and 1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--networks", "bort"], "did you mean 'bert'"),
        (["--deployments", "torch"], "got --deployments torch"),
        (["--docs", "no.md"], "expected a page with the line"),
    ],
)
def test_options_are_checked(words: list[str], message: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as stopped:
        recipe.main(["e2", *words])
    assert stopped.value.code == 2 and message in capsys.readouterr().err
