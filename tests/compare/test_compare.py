"""Comparison runs from end to end: worker processes, results, command line; times are produced, never judged."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

import deep500 as d5
from deep500 import cli, registry
from deep500.compare.processes import THREAD_VARIABLES, Process
from deep500.errors import ComparisonError, InputError, MissingBackend, RecipeError
from deep500.networks import create
from deep500.networks.execution.inputs import batch_symbol, make_inputs
from deep500.networks.network import Network

RECIPE = """\
'''A quick one.'''
from deep500.registry import load_backend
import deep500 as d5
import deep500.frameworks.{backend} as d5fw
FIXED = {{"model": "mlp", "model_kwargs": {{"hidden": (16,)}}, "dataset": "digits", "epochs": 1}}
MUTABLE = {{"batch_size": 64, "executor": d5fw.from_model, "optimizer": d5fw.MomentumOptimizer,
            "optimizer_kwargs": {{"lr": 0.1, "momentum": 0.9}}, "schedule": d5.schedules.CosineSchedule(total=10)}}
METRICS = [(d5.TestAccuracy(), {target})]
"""
pytestmark = pytest.mark.backend("reference", "pytorch")


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(backend="pytorch", target=20.0):
        path = tmp_path / "job.py"
        path.write_text(RECIPE.format(backend=backend, target=target))
        return path

    return write


@pytest.mark.slow
def test_everything(recipe, tmp_path):
    said = []
    result = d5.compare_frameworks(
        recipe(),
        ["pytorch", "reference"],
        rounds=6,
        steps=2,
        threads=1,
        repeat=2,
        out=tmp_path / "out",
        say=said.append,
    )
    assert result and result.exit_code == 0 and len(said) == 3
    timing = result.timings["training step"]
    assert {len(samples) for samples in timing.samples.values()} == {6}
    assert list(timing.samples) == ["pytorch", "reference", "pytorch (A/A)"]
    assert min(map(min, timing.samples.values())) > 0 and timing.control.low is not None
    assert [(comparison.first, comparison.second) for comparison in timing.comparisons] == [("pytorch", "reference")]
    assert result.memory["pytorch"]["peak"] > result.memory["reference"]["before"] > 2**20
    for runs in result.runs.values():
        assert [run["seed"] for run in runs] == [0, 1] and all(run["accuracy"] > 20 for run in runs)
        assert all(run["time_to_target"] > 0 for run in runs)
    same = [[round(run["accuracy"], 1) for run in runs] for runs in result.runs.values()]
    np.testing.assert_allclose(same[0], same[1], atol=2.0, err_msg="same seeds, same weights: about the same accuracy")
    facts = result.facts["reference"]
    assert facts["threads"]["torch"] is None, "the worker for NumPy must not load the recipe's own framework"
    assert set(facts["threads"]["variables"].values()) == {"1"} and facts["threads"]["cores"] == 1
    names = [check.name for check in result.gate.checks if check.framework == "pytorch (A/A)"]
    assert names == ["batches", "weights of the worker"]
    _written(result, tmp_path)


def _written(result, tmp_path):
    (folder,) = (tmp_path / "out" / "compare-job").iterdir()
    assert str(folder) == result.path
    stored = json.loads((folder / "comparison.json").read_text())
    assert stored["gate"]["equivalent"] is True and stored["timings"]["training step"]["counts"]["reference"] == 2
    text = (folder / "comparison.txt").read_text()
    for words in ("all compute the same", "noise floor", "samples/s", " MB", "time to 20 %", "2 seeds", "time ratio"):
        assert words in text, words


def test_frameworks_that_differ_are_not_timed(recipe, monkeypatch, capsys, tmp_path):
    from deep500.frameworks.pytorch import MomentumOptimizer

    right = MomentumOptimizer.get_parameters
    monkeypatch.setattr(MomentumOptimizer, "get_parameters", lambda self: {**right(self), "lr": 0.2})
    words = ["compare", str(recipe()), "--backend", "reference,pytorch", "--quiet"]
    assert cli.main(words) == 1
    out = capsys.readouterr().out
    assert "NOT the same" in out and "pytorch: optimizer DIFFERS" in out and "after step 1" in out
    assert "samples/s" not in out and "faster" not in out


def test_a_recipe_that_needs_its_own_framework_gets_it(recipe):
    path = recipe()
    path.write_text(path.read_text() + "\nONLY_THERE = d5fw.NativeExecutor\n")
    with Process("reference", threads=1) as worker:
        facts = worker.ask("prepare", kind="training", framework="reference", recipe=str(path))
    assert facts["alone"] is False and facts["threads"]["torch"] == 1


def test_json(recipe, capsys):
    words = ["compare", str(recipe()), "--backend", "reference,pytorch", "--rounds", "0", "--repeat", "0", "--json"]
    assert cli.main([*words, "batch_size=32", "--seed", "3"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored["gate"]["equivalent"] and stored["timings"] == {} and stored["runs"] == {}
    assert len(stored["gate"]["curves"]["pytorch"]["loss"]) == 20


def test_missing_framework(recipe, monkeypatch, capsys):
    path = recipe()
    monkeypatch.setitem(registry.BACKENDS, "tensorflow", ("tensorflow_that_is_missing", "tensorflow"))
    monkeypatch.setitem(sys.modules, "deep500.frameworks.tensorflow", None)

    def import_module(name):
        raise ModuleNotFoundError("no", name="tensorflow_that_is_missing")

    monkeypatch.setattr(registry.importlib, "import_module", import_module)
    assert cli.main(["compare", str(path), "--backend", "tensorflow,reference"]) == 3
    assert "pip install 'deep500[tensorflow]'" in capsys.readouterr().err


BAD = [
    (["--backend", "reference"], 2, "at least two"),
    (["--backend", "reference,reference"], 2, "at least two"),
    (["--backend", "reference,pytorhc"], 2, "'pytorch'"),
    (["--backend", "reference,pytorch", "epochs=3"], 2, "--open"),
    (["--backend", "reference,pytorch", "--rounds", "-1"], 2, "--rounds"),
    (["--backend", "reference,pytorch", "--threads", "0"], 2, "--threads"),
    (["--backend", "reference,pytorch", "--open", "--nonsense"], 2, "--nonsense"),
    ([], 2, "--backend"),
]


@pytest.mark.parametrize(("words", "code", "message"), BAD, ids=[" ".join(words) or "none" for words, _, _ in BAD])
def test_bad_input(recipe, capsys, words, code, message):
    assert cli.main(["compare", str(recipe()), *words]) == code
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err


def test_unknown_recipe():
    with pytest.raises(RecipeError, match="digits_lenet"):
        d5.compare_frameworks("digits_lenett", ["reference", "pytorch"])


# -- ONNX files -------------------------------------------------------------------------------------------------------
@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.onnx"
    create("simple_cnn", shape=(1, 8, 8), classes=4, seed=1).to_onnx(path)
    return path


def test_model(model, capsys):
    words = ["compare", str(model), "--backend", "pytorch,reference", "--batch-sizes", "1,3", "--rounds", "6"]
    assert cli.main([*words, "--steps", "1", "--threads", "1", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert len(re.findall("inference of [13], [mµ]?s ", out)) == 2 and out.count("time ratio") == 2
    assert "outputs of 1" in out and "outputs of 3" in out


def test_model_that_differs(model, monkeypatch):
    from tests.test_mutants import leaky

    leaky(monkeypatch)
    result = d5.compare_models(model, ["reference", "pytorch"], rounds=3)
    assert not result and not result.timings
    failed = result.gate.first("pytorch")
    assert failed.name == "outputs of 1" and "'relu1'" in failed.where


def test_inputs():
    net = Network("n")
    net.add_input("tokens", ("N", "length"), "int64")
    net.add_input("mask", ("N", "length"), "bool")
    net.add_input("x", ("N", 3), "float64")
    assert batch_symbol(net) == "N"
    made = make_inputs(net, 2, seed=1, sizes={"length": 5})
    assert {name: (str(a.dtype), a.shape) for name, a in made.items()} == {
        "tokens": ("int64", (2, 5)),
        "mask": ("bool", (2, 5)),
        "x": ("float64", (2, 3)),
    }
    again = make_inputs(net, 2, seed=1, sizes={"length": 5})
    assert all(np.array_equal(made[name], again[name]) for name in made) and made["x"].std() > 0
    with pytest.raises(InputError, match="--size length=8"):
        make_inputs(net, 2)
    net.add_input("text", ("N",), "string")
    with pytest.raises(InputError, match="'text'"):
        make_inputs(net, 2, sizes={"length": 5})


# -- processes --------------------------------------------------------------------------------------------------------
def test_worker_hands_errors_on_and_says_its_last_words():
    with Process("alone", threads=1) as worker:
        assert set(worker.ask("environment")["variables"]) >= {"OMP_NUM_THREADS"} <= set(THREAD_VARIABLES)
        with pytest.raises(MissingBackend, match="alone: got backend 'nonsense'"):
            worker.ask("prepare", kind="training", framework="nonsense")
        assert worker.ask("memory")["peak"] > 2**20, "an error is an answer: the worker goes on"
        with pytest.raises(ComparisonError, match=r"end of worker 'alone'.*AttributeError"):
            worker.ask("nonsense")
        worker.close()


def test_api_refuses_one_framework():
    with pytest.raises(InputError, match="name another"):
        d5.compare_models("x.onnx", ["reference"])
