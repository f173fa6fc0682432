"""The recipes that come with Deep500: each runs, the demo reaches its target, CIFAR-10 is used where it is."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from deep500.cli import main
from deep500.errors import RecipeError
from deep500.recipe.loader import find_recipe, list_recipes, load_recipe
from deep500.recipe.options import parse_options
from deep500.recipe.steps import make_plan
from tests.packages import serve

BUILT_IN = Path(__file__).parents[2] / "recipes"
NAMES = sorted(recipe.name for recipe in list_recipes() if recipe.path.parent == BUILT_IN)


def run(capsys, *words: str) -> tuple[int, dict, dict]:
    code = main([*words, "--json"])
    summary = json.loads(capsys.readouterr().out)
    manifest = json.loads((Path(summary["path"]) / "manifest.json").read_text())
    return code, summary, manifest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.delenv("DATA_ROOT", raising=False)


def test_the_three_are_there():
    assert {"cifar10_resnet44", "digits32_resnet20", "digits_lenet"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_dry_run(capsys, name, monkeypatch):
    serve(monkeypatch)
    code, summary, manifest = run(capsys, "run", name, "--dry-run", "batch_size=8")
    assert code == 0 and summary["verdict"] == "UNJUDGED (dry run)"
    assert manifest["division"] == "closed" and "open division" not in summary["labels"]


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_docstrings_say_open_where_they_must(name):
    """Each is understood as it stands, whatever backend it names: that takes no data and trains nothing."""
    recipe = load_recipe(BUILT_IN / f"{name}.py")
    commands = re.findall(rf"^ *(?:python recipes/{name}\.py|deep500 run {name})\b(.*)$", recipe.__doc__, re.M)
    assert commands
    for command in commands:
        words = re.sub(r"--backend \w+", "", command)
        make_plan(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, parse_options(shlex.split(words)))


def test_the_demo_reaches_its_target(capsys):
    code, summary, _ = run(capsys, "run", "digits_lenet", "--strict")
    assert code == 0 and summary["verdict"] == "PASSED"
    (metric,) = summary["metrics"]
    assert metric["value"] >= 97.0 and metric["target"] == 97.0


def test_schedules_end_with_their_epochs():
    scheduled = 0
    for name in NAMES:
        recipe = load_recipe(BUILT_IN / f"{name}.py")
        if "schedule" in recipe.MUTABLE:
            assert recipe.MUTABLE["schedule"].total == recipe.FIXED["epochs"]
            scheduled += 1
    assert scheduled >= 10


@pytest.fixture
def cifar10(tmp_path):
    """Files in CIFAR-10's official binary format: records of a label byte and 3072 pixels, 10,000 per file."""
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("data_batch_1.bin", "test_batch.bin"):
        records = rng.integers(0, 256, (10_000, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        records.tofile(folder / name)
    for number in range(2, 6):
        os.link(folder / "data_batch_1.bin", folder / f"data_batch_{number}.bin")
    return folder


def test_cifar10_in_the_data_folder_is_used(capsys, cifar10, tmp_path):
    words = ("run", "cifar10_resnet44", "--dry-run", "batch_size=8")
    code, summary, manifest = run(capsys, *words)  # ./data
    assert code == 0 and summary["labels"] == ["dry run"]
    train = manifest["data"]["train"]
    assert (train["name"], train["length"], train["stand_in"]) == ("cifar10", 50_000, False)
    assert "cifar-10-batches-bin" in train["provenance"] and manifest["data"]["validation"]["length"] == 10_000
    cifar10.parent.rename(tmp_path / "moved")
    assert run(capsys, *words)[1]["labels"] == ["dry run", "stand-in data"]
    assert run(capsys, *words, "--data", str(tmp_path / "moved"))[1]["labels"] == ["dry run"]


def test_a_truncated_cifar10_is_an_error_not_a_stand_in(capsys, cifar10):
    path = cifar10 / "test_batch.bin"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    assert main(["run", "cifar10_resnet44", "--dry-run"]) == 3
    err = capsys.readouterr().err
    assert "test_batch.bin" in err and "deep500: error:" in err and "Traceback" not in err


def test_a_file_without_its_ending_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ref.py").write_text("")
    with pytest.raises(RecipeError, match=r"did you mean 'ref\.py'"):
        find_recipe("ref")
