"""Things of the user's own are named ``path.py:Name`` or ``module:Name`` wherever a built-in is named: one of each."""

from __future__ import annotations

import hashlib
import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import deep500 as d5
from deep500 import cli
from deep500.errors import RecipeError
from deep500.loading import load_file
from deep500.recipe.loader import load_recipe
from deep500.recipe.names import own_object, resolve_name
from deep500.recipe.options import parse_options
from deep500.recipe.plan import RunPlan
from deep500.recipe.steps import make_plan
from deep500.results.verify import seal, verify

MINE = """\
import numpy as np
import deep500 as d5


class SignDescent(d5.UpdateRuleOptimizer):
    lr: float = 0.1

    def update_rule(self, grad, old_param, name):
        return old_param - self.lr * grad / (abs(grad) + 1e-12)


class Alone(d5.DistributedOptimizer):
    def step(self, inputs):
        return self.base_optimizer.step(inputs)


class Epochs(d5.Metric):
    name, unit, direction, kind = "epochs", "1", "higher", "count"

    def measure(self, statistics):
        return float(len(statistics.epochs))


class LastFirst(d5.OrderedSampler):
    def batches(self, epoch):
        return super().batches(epoch)[::-1]


class Stop(d5.Event):
    def after_epoch(self, run):
        raise d5.StopTraining("enough")


def data(count=64):
    x = np.random.default_rng(0).normal(size=(count, 1, 4, 4)).astype("float32")
    y = np.arange(count) % 3
    return d5.NumpyDataset(x, labels=y), d5.NumpyDataset(x, labels=y)


def model(classes, shape, seed):
    return d5.networks.create("mlp", classes=classes, shape=shape, seed=seed, hidden=(4,))


def with_tanh(network):
    return d5.networks.replace_operator(network, "Relu", "Tanh")


class Halve:
    def __call__(self, batch, rng=None):
        return {**batch, "input": batch["input"] / 2}


half_rate = d5.schedules.TableSchedule({0: 0.5})
"""
JOB = """\
'''A recipe that names nothing but built-ins.'''
import deep500 as d5
import deep500.frameworks.reference as d5fw
FIXED = {"epochs": 2}
MUTABLE = {"model": "mlp", "dataset": "digits", "batch_size": 16, "executor": d5fw.from_model,
           "optimizer": d5fw.GradientDescent, "optimizer_kwargs": {"lr": 0.01}, "events": [],
           "scheme": d5.schemes.ConsistentDecentralized,
           "network_transformations": [], "preprocessing": [], "schedule": None, "train_sampler": d5.ShuffleSampler}
METRICS = [%s]
"""
# fmt: off
KINDS = [  # key, what stands for it in the file, what is in the plan then
    ("optimizer", "SignDescent", lambda value: issubclass(value, d5.UpdateRuleOptimizer)),
    ("scheme", "Alone", lambda value: issubclass(value, d5.DistributedOptimizer)),
    ("dataset", "data", callable),
    ("model", "model", callable),
    ("train_sampler", "LastFirst", lambda value: issubclass(value, d5.Sampler)),
    ("network_transformations", "with_tanh", lambda value: callable(value[0])),
    ("events", "Stop", lambda value: issubclass(value[0], d5.Event)),
    ("preprocessing", "Halve", lambda value: type(value[0]).__name__ == "Halve"),
    ("schedule", "half_rate", lambda value: value.at(0, 0, 1.0) == 0.5),
]
# fmt: on


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe and the user's file in one folder, while another one is the current folder."""
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "mine.py").write_text(MINE)
    (tmp_path / "recipe" / "job.py").write_text(JOB % "")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "recipe"


def plan_of(path: Path, *words: str) -> RunPlan:
    recipe = load_recipe(path)
    return make_plan(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, parse_options(words), path.parent)


@pytest.mark.parametrize(("key", "name", "fits"), KINDS, ids=[key for key, _, _ in KINDS])
def test_each_kind_by_a_word_of_the_command_line(folder, key, name, fits):
    plan = plan_of(folder / "job.py", f"{key}=mine.py:{name}")
    assert fits(plan.values[key])
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    assert plan.sources == [{"key": key, "name": f"mine.py:{name}", "sha256": digest}] == plan.resolved["own"]
    assert json.loads(json.dumps(plan.resolved)) == plan.resolved
    assert "deep500_own" not in json.dumps(plan.resolved), "the record depends on where the file lies"


@pytest.mark.parametrize(("key", "name", "fits"), KINDS, ids=[key for key, _, _ in KINDS])
def test_each_kind_in_a_recipe(folder, key, name, fits):
    recipe = load_recipe(folder / "job.py")
    named = [f"mine.py:{name}"] if isinstance(recipe.MUTABLE[key], list) else f"mine.py:{name}"
    plan = make_plan(recipe.FIXED, {**recipe.MUTABLE, key: named}, [], parse_options([]), folder)
    assert fits(plan.values[key]) and [own["key"] for own in plan.sources] == [key]


def test_a_whole_run_records_what_was_named(folder):
    (folder / "job.py").write_text(JOB % "('mine.py:Epochs', 1), d5.TestAccuracy()")
    words = [f"{key}=mine.py:{name}" for key, name, _ in KINDS]
    assert cli.main(["run", str(folder / "job.py"), *words, "--quiet"]) == 0
    (run,) = Path("results/job").glob("20*")
    resolved = json.loads((run / "manifest.json").read_text())["resolved"]
    assert {(own["key"], own["name"]) for own in resolved["own"]} == {
        ("METRICS", "mine.py:Epochs"),
        *((key, f"mine.py:{name}") for key, name, _ in KINDS),
    }
    assert resolved["recipe"]["optimizer"] == "mine.py:SignDescent"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["metrics"][0]["name"] == "epochs" and summary["metrics"][0]["values"] == [1.0]


def test_a_metric_that_a_recipe_imports_is_noted_and_said_to_be_unjudged(folder, capsys):
    (folder / "gauges_of_mine.py").write_text(MINE)
    (folder / "job.py").write_text("from gauges_of_mine import Epochs\n" + JOB % "(Epochs(), 1)")
    assert cli.main(["run", str(folder / "job.py"), "--quiet"]) == 0
    (run,) = Path("results/job").glob("20*")
    digest, noted = hashlib.sha256(MINE.encode()).hexdigest(), "gauges_of_mine:Epochs"
    own = json.loads((run / "manifest.json").read_text())["resolved"]["own"]
    assert own == [{"key": "METRICS", "name": noted, "sha256": digest}]
    capsys.readouterr()
    assert cli.main(["verify", str(run)]) == 0
    said = f"NOT judged, since the author's own code computes them: epochs ({noted}, SHA-256 {digest[:12]} of its file)"
    assert said in capsys.readouterr().out
    summary = json.loads((run / "summary.json").read_text())
    summary["metrics"][0]["value"] = 0.5  # what its seeds make of it is known: the median
    (run / "summary.json").write_text(json.dumps(summary))
    seal(run)
    assert any("value of epochs is 0.5; 2.0 follows" in problem for problem in verify(run))


def test_files_that_a_recipe_imports_are_noted_with_what_they_import(folder):
    (folder / "signs_of_mine.py").write_text("import numbers_of_mine\n" + MINE)
    (folder / "numbers_of_mine.py").write_text("HALF = 0.5\n")
    (folder / "job.py").write_text("from signs_of_mine import LastFirst, SignDescent, Stop\n" + JOB % "")
    recipe = load_recipe(folder / "job.py")
    mine = {"optimizer": recipe.SignDescent, "train_sampler": recipe.LastFirst, "events": [recipe.Stop()]}
    plan = make_plan(recipe.FIXED, {**recipe.MUTABLE, **mine}, [], parse_options([]), folder)
    names = {"train_sampler": "LastFirst", "optimizer": "SignDescent", "events": "Stop"}
    assert {(own["key"], own["name"]) for own in plan.sources} == {
        *((key, f"signs_of_mine:{name}") for key, name in names.items()),
        *((key, "numbers_of_mine.py") for key in names),
    }
    digest = hashlib.sha256(b"HALF = 0.5\n").hexdigest()
    assert {own["sha256"] for own in plan.sources if own["name"] == "numbers_of_mine.py"} == {digest}


def test_a_run_is_not_resumed_with_another_file(folder, capsys):
    assert cli.main(["run", str(folder / "job.py"), "optimizer=mine.py:SignDescent", "--dry-run", "--quiet"]) == 0
    (run,) = Path("results/job").glob("20*")
    (run / "summary.json").unlink()
    (folder / "mine.py").write_text(MINE + "\n")
    assert cli.main(["run", str(folder / "job.py"), "--resume", str(run)]) == 2
    assert "got a recipe that changed since the run began (own)" in capsys.readouterr().err


def test_a_module_is_named_like_a_file(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    plan = plan_of(folder / "job.py", "optimizer=mine:SignDescent")
    assert plan.values["optimizer"].__module__ == "mine" and plan.sources[0]["sha256"] is not None
    assert own_object("optimizer", "mine.py:SignDescent", folder) is plan.values["optimizer"], "the class exists twice"


def test_a_file_is_one_module_that_pickle_and_inspect_know(folder):
    kind = own_object("optimizer", "mine.py:SignDescent", folder)
    assert kind is own_object("optimizer", str(folder / "mine.py") + ":SignDescent")
    assert pickle.loads(pickle.dumps(kind)) is kind and "def update_rule" in inspect.getsource(kind)


def test_the_recipe_s_own_file_is_not_loaded_twice(folder):
    (folder / "job.py").write_text(MINE + JOB % "")
    plan = plan_of(folder / "job.py", "optimizer=job.py:SignDescent")
    assert plan.values["optimizer"].__module__ == "deep500_recipe_job"


def test_the_recipe_s_folder_comes_before_the_current_one(folder):
    Path("mine.py").write_text(MINE.replace("SignDescent", "Elsewhere"))
    assert own_object("optimizer", "mine.py:SignDescent", folder)
    assert resolve_name("optimizer", "mine.py:Elsewhere", None)  # "deep500 simulate --schemes" knows no recipe's folder


WRONG = [
    ("optimizer=mine.py:SignDecent", "expected a name in mine.py: did you mean 'SignDescent'"),
    ("optimizer=mime.py:SignDescent", "expected the file mime.py in the recipe's folder.*did you mean 'mine.py'"),
    ("optimizer=no_such_module:X", "expected a module that Python finds, 'no_such_module' is none"),
    ("optimizer=deep500.nothing:X", "'deep500.nothing' is none"),
    ("optimizer=mine.py:half_rate", "optimizer: got TableSchedule.*expected a callable"),
    ("batch_size=mine.py:data", "of type str; expected int"),
]


@pytest.mark.parametrize(("word", "message"), WRONG, ids=[word for word, _ in WRONG])
def test_wrong_names(folder, word, message):
    with pytest.raises(RecipeError, match=message):
        plan_of(folder / "job.py", word)


def test_what_is_wrong_in_the_file_keeps_its_traceback(folder):
    (folder / "mine.py").write_text("import no_such_package\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        plan_of(folder / "job.py", "optimizer=mine.py:SignDescent")
    assert not [name for name in sys.modules if name.startswith("deep500_own_mine") and not vars(sys.modules[name])]


def test_help_executes_nothing(folder):
    (folder / "mine.py").write_text("raise SystemExit(9)\n")
    words = [sys.executable, "-m", "deep500", "run", str(folder / "job.py"), "optimizer=mine.py:X", "--help"]
    environment = {"PYTHONPATH": str(Path(cli.__file__).parents[1]), "PATH": ""}
    assert subprocess.run(words, env=environment, capture_output=True, check=False, timeout=120).returncode == 0


def test_image_folders_are_still_built_in(folder):
    assert plan_of(folder / "job.py", "dataset=imagefolder:photos").values["dataset"] == "imagefolder:photos"


def test_a_file_imports_those_beside_it_as_under_python_itself(tmp_path: Path) -> None:
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "beside_the_recipe.py").write_text(f"VALUE = {value}\n")
        (tmp_path / folder / "mine.py").write_text(
            "from beside_the_recipe import VALUE\n\n\ndef later():\n    import beside_the_recipe\n\n"
            "    return beside_the_recipe.VALUE\n"
        )
    first = load_file(tmp_path / "a" / "mine.py", "loaded_a")
    assert (first.VALUE, first.later()) == (1, 1)
    second = load_file(tmp_path / "b" / "mine.py", "loaded_b")
    assert (second.VALUE, second.later()) == (2, 2), "not the file of the same name in the other folder"
