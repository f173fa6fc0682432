"""Recipes as TOML, YAML and JSON: what runs is what the same recipe in Python runs, and errors name file and key."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from deep500 import cli
from deep500.errors import InputError, RecipeError
from deep500.recipe.loader import list_recipes, load_recipe
from deep500.recipe.written import PARTS, READERS
from deep500.training.schedules import TableSchedule, WarmUp

TOML = """
about = "LeNet on scanned digits"
backend = "reference"

[fixed]
model = "lenet"
dataset = "digits"
train_sampler = "ShuffleSampler"
epochs = 1

[mutable]
batch_size = 32
executor_kwargs = { device = "cpu" }
optimizer = "MomentumOptimizer"
optimizer_kwargs = { lr = 0.05, momentum = 0.9 }
schedule = { CosineSchedule = { total = 20 } }
seed = 0

[[metrics]]
metric = "TestAccuracy"
target = 97
"""
PYTHON = """
import deep500 as d5
import deep500.frameworks.reference as d5fw
FIXED = {"model": "lenet", "dataset": "digits", "train_sampler": d5.ShuffleSampler, "epochs": 1}
MUTABLE = {"batch_size": 32, "executor": d5fw.from_model, "executor_kwargs": dict(device="cpu"),
           "optimizer": d5fw.MomentumOptimizer, "optimizer_kwargs": dict(lr=0.05, momentum=0.9),
           "schedule": d5.schedules.CosineSchedule(total=20), "seed": 0}
METRICS = [(d5.TestAccuracy(), 97)]
"""
YAML = """
about: LeNet on scanned digits
backend: reference
fixed: {model: lenet, dataset: digits, train_sampler: ShuffleSampler, epochs: 1}
mutable:
  batch_size: 32
  executor_kwargs: {device: cpu}
  optimizer: MomentumOptimizer
  optimizer_kwargs: {lr: 0.05, momentum: 0.9}
  schedule: {CosineSchedule: {total: 20}}
  seed: 0
metrics:
  - {metric: TestAccuracy, target: 97}
"""


def _json():
    return json.dumps(
        {
            "backend": "reference",
            "fixed": {"model": "lenet", "dataset": "digits", "train_sampler": "ShuffleSampler", "epochs": 1},
            "mutable": {
                "batch_size": 32,
                "executor_kwargs": {"device": "cpu"},
                "optimizer": "MomentumOptimizer",
                "optimizer_kwargs": {"lr": 0.05, "momentum": 0.9},
                "schedule": {"CosineSchedule": {"total": 20}},
                "seed": 0,
            },
            "metrics": [{"metric": "TestAccuracy", "target": 97}],
        }
    )


def write(folder, name, text):
    if name.endswith(("yaml", "yml")):
        pytest.importorskip("yaml")
    if name.endswith("toml"):
        pytest.importorskip("tomllib")
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def resolved(path, out, capsys):
    words = ["run", str(path), "--dry-run", "--out", str(out), "--json"]
    assert cli.main(words) == 0
    folder = Path(json.loads(capsys.readouterr().out)["path"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return json.loads((folder / "manifest.json").read_text())["resolved"], [line["train_loss"] for line in lines]


@pytest.mark.parametrize(("name", "text"), [("job.toml", TOML), ("job.yaml", YAML), ("job.json", _json())])
def test_it_runs_as_the_same_recipe_in_python(name, text, tmp_path, capsys):
    want = resolved(write(tmp_path, "job.py", PYTHON), tmp_path / "results", capsys)
    assert resolved(write(tmp_path, name, text), tmp_path / "results", capsys) == want


def test_own_files_and_words_of_the_command_line_hold_as_ever(tmp_path, capsys):
    mine = "from deep500.frameworks.reference import GradientDescent\nclass Mine(GradientDescent): pass"
    write(tmp_path, "mine.py", mine)
    changed = TOML.replace('"MomentumOptimizer"', '"mine.py:Mine"').replace(", momentum = 0.9", "")
    path = write(tmp_path, "job.toml", changed)
    words = ["run", str(path), "batch_size=16", "--dry-run", "--quiet", "--out", str(tmp_path / "results")]
    assert cli.main(words) == 0
    (manifest,) = (tmp_path / "results" / "job").glob("*/manifest.json")
    made = json.loads(manifest.read_text())
    assert made["resolved"]["recipe"]["batch_size"] == 16 and "Mine" in str(made["resolved"]["recipe"]["optimizer"])


def test_an_object_may_be_made_of_another(tmp_path):
    """A schedule within a warm-up, a metric within a metric."""
    path = tmp_path / "nested.toml"
    warm = "{ WarmUp = { steps = 3, schedule = { TableSchedule = { table = [[0, 0.1], [2, 0.01]] } } } }"
    text = TOML.replace("{ CosineSchedule = { total = 20 } }", warm)
    path.write_text(
        text.replace('"TestAccuracy"\ntarget = 97', "{ VarianceOverSeeds = { metric = { TestLoss = {} } } }")
    )
    recipe = load_recipe(path)
    table = TableSchedule({0: 0.1, 2: 0.01})
    assert recipe.MUTABLE["schedule"] == WarmUp(3, table)
    assert [metric.name for metric, _ in recipe.METRICS] == ["variance_of_test_loss"]
    path.write_text(text.replace("[[0, 0.1], [2, 0.01]]", "{ 0 = 0.1 }"))
    with pytest.raises(InputError, match="got position '0' in a table; expected whole numbers"):
        load_recipe(path)


def test_it_is_listed_with_its_first_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    write(tmp_path / "recipes", "job.toml", TOML)
    (tmp_path / "recipes" / "other.json").write_text("[]")
    assert ("job", "LeNet on scanned digits") in [(listed.name, listed.summary) for listed in list_recipes()]
    assert "other" not in [listed.name for listed in list_recipes()]


WRONG = {
    "no such part": (TOML.replace("[mutable]", "[mutabel]"), "did you mean 'mutable'"),
    "no metrics": (TOML.partition("[[metrics]]")[0], "no 'metrics'"),
    "no such optimizer": (TOML.replace("MomentumOptimizer", "MomentumOptimiser"), "did you mean 'MomentumOptimizer'"),
    "no such schedule": (TOML.replace("CosineSchedule", "CosinSchedule"), "did you mean 'CosineSchedule'"),
    "no such keyword": (TOML.replace("total = 20", "totel = 20"), "totel"),
    "no such metric": (TOML.replace("TestAccuracy", "TestAcuracy"), "did you mean 'TestAccuracy'"),
    "metric with more": (TOML + "level = 3\n", "target = NUMBER"),
    "no TOML": ("model = ", "expected TOML"),
    "a list": ("", "expected"),
}


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_one_error_with_the_file(text, words, tmp_path):
    path = write(tmp_path, "job.toml", text)
    with pytest.raises(RecipeError, match=words) as caught:
        load_recipe(path)
    assert str(path) in str(caught.value)


def test_keys_are_checked_as_in_python(tmp_path, capsys):
    path = write(tmp_path, "job.toml", TOML.replace("batch_size = 32", "batch_sise = 32"))
    assert cli.main(["run", str(path), "--dry-run"]) == RecipeError.exit_code
    assert "did you mean 'batch_size'" in capsys.readouterr().err


def test_the_example_of_the_documentation_loads(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "recipes.md"
    (example,) = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    recipe = load_recipe(write(tmp_path, "job.toml", example.replace('"pytorch"', '"reference"')))
    assert recipe.MUTABLE["schedule"].total == 20 and recipe.METRICS[0][1] == 97


def test_the_parts_are_those_of_the_docstring():
    from deep500.recipe import written

    assert all(part in (written.__doc__ or "") for part in PARTS)


@pytest.mark.parametrize(
    "text",
    [
        "a: &b {x: 1, y: [2]}\nm:\n  <<: *b\n  x: 3\n",
        "a: &b {x: 1}\nm: {<<: [*b, {z: {u: 1}}], w: null}\n",
        "- 1\n- {a: b}",
    ],
)
def test_yaml_is_what_its_own_loader_reads(text):
    """But for keys written twice in a table, merged ones aside."""
    yaml = pytest.importorskip("yaml")
    assert READERS[".yaml"](text) == yaml.safe_load(text)
    for again in ("a: 1\na: 2", "t: {a: 1, b: {c: 1, c: 2}}", text + "\na: 1" if text[0] == "a" else "a: 1\na: 1"):
        with pytest.raises(ValueError, match="twice in one table"):
            READERS[".yaml"](again)
