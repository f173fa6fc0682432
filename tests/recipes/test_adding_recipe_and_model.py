"""To add a recipe is to write one file, and so is to add a model: CONTRIBUTING.md, "Adding things", as it is done."""

from __future__ import annotations

from pathlib import Path

from deep500 import cli
from deep500.networks import model_names

MODEL = """\
import numpy as np
import deep500 as d5


def two_branches(classes, shape, seed):
    '''relu(x A) + tanh(x B), then a linear layer.'''
    random, width = np.random.default_rng(seed), int(np.prod(shape))
    network = d5.Network("two branches")
    network.add_input("input", ("N", *shape))
    network.add_node("Flatten", "input", "flat", axis=1)
    for name, (rows, columns) in {"a": (width, 16), "b": (width, 16), "c": (16, classes)}.items():
        network.add_parameter(name, random.normal(0, rows**-0.5, (rows, columns)).astype("float32"))
    network.add_node("MatMul", ["flat", "a"], "left")
    network.add_node("MatMul", ["flat", "b"], "right")
    network.add_node("Relu", "left", "positive")
    network.add_node("Tanh", "right", "bounded")
    network.add_node("Add", ["positive", "bounded"], "both")
    network.add_node("MatMul", ["both", "c"], "output")
    network.add_output("output")
    return network
"""
RECIPE = """\
'''Two branches read digits.'''
import deep500 as d5
import deep500.frameworks.reference as d5fw
from deep500.recipe import run_recipe

FIXED = {"model": "two_branches.py:two_branches", "dataset": "digits", "epochs": 3}
MUTABLE = {"batch_size": 64, "executor": d5fw.from_model, "optimizer": d5fw.AdamOptimizer,
           "optimizer_kwargs": {"lr": 0.01}}
METRICS = [(d5.TestAccuracy(), 80.0)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
"""


def test_a_file_of_recipes_is_listed_and_runs_by_name_with_a_model_that_is_another(tmp_path, monkeypatch, capsys):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "digits_two_branches.py").write_text(RECIPE)
    (tmp_path / "recipes" / "two_branches.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["list"]) == 0
    assert "digits_two_branches Two branches read digits." in " ".join(capsys.readouterr().out.split())
    assert cli.main(["run", "digits_two_branches", "--quiet"]) == 0
    assert "verdict: PASSED" in capsys.readouterr().out


def test_readme_names_every_model_of_the_zoo():
    row = next(
        line
        for line in (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").splitlines()
        if "| model zoo |" in line
    )
    assert row.split("`")[1].split() == model_names(), "write the new model into the row 'model zoo' of README.md"
