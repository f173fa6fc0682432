"""The key ``custom_ops``: loaded before the model is built, recorded by content, in recipes and comparisons."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500 import cli
from deep500.errors import RecipeError, ResultsError
from deep500.networks import Network
from deep500.recipe.build import digest, load_custom_ops
from deep500.recipe.loader import load_recipe

PLUGIN = """
import numpy as np
import deep500 as d5

@d5.register_op("{name}")
class Ramp(d5.CustomPythonOp):
    '''ReLU, written by hand.

    And more that no list shows.'''
    def forward(self, inputs):
        return np.maximum(inputs[0], 0)
    def backward(self, grads, fwd_inputs, fwd_outputs):
        return grads[0] * (fwd_inputs[0] > 0)
"""
RECIPE = """
import deep500 as d5
import deep500.frameworks.reference as d5fw
from deep500.networks import create, replace_operator

def model(classes, shape, seed):
    plain = create("mlp", hidden=(16,), classes=classes, shape=shape, seed=seed)
    return replace_operator(plain, "Relu", "{name}", domain="deep500")

FIXED = {{"model": model, "dataset": "digits", "epochs": {epochs}}}
MUTABLE = {{"custom_ops": ["plugins/ramp"], "batch_size": 128, "executor": d5fw.from_model,
           "optimizer": d5fw.MomentumOptimizer, "optimizer_kwargs": {{"lr": 0.1, "momentum": 0.9}}}}
METRICS = [(d5.TestAccuracy(), 20.0)]

if __name__ == "__main__":
    d5.run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
"""


@pytest.fixture
def project(tmp_path, monkeypatch, request):
    """A recipe with a plugin beside it, in a folder that is not the current one; operators have names of their own."""
    name = "Ramp" + hashlib.sha256(request.node.name.encode()).hexdigest()[:8]
    folder = tmp_path / "project" / "plugins" / "ramp"
    folder.mkdir(parents=True)
    (folder / "ramp.py").write_text(PLUGIN.format(name=name))
    recipe = tmp_path / "project" / "job.py"
    recipe.write_text(RECIPE.format(name=name, epochs=1))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return recipe, folder, name


def test_a_recipe_loads_and_records_its_plugins(project, capsys):
    recipe, folder, name = project
    assert cli.main(["run", str(recipe)]) == 0
    path = capsys.readouterr().out.splitlines()[0].removeprefix("results: ")
    manifest = json.loads((Path(path) / "manifest.json").read_text())
    assert manifest["custom_ops"] == [{"path": "plugins/ramp", "sha256": digest(folder)}]
    assert manifest["resolved"]["recipe"]["custom_ops"] == ["plugins/ramp"]
    assert cli.main(["list"]) == 0
    listed = capsys.readouterr().out.partition("custom operators")[2]
    assert re.search(rf"{name}\s+ReLU, written by hand\.", listed) and "no list shows" not in listed


def test_the_digest_is_that_of_the_content(project):
    _, folder, _ = project
    before = digest(folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "ramp.pyc").write_bytes(b"1")
    (folder / ".ramp.py.swp").write_bytes(b"1")
    assert digest(folder) == before
    (folder / "kernel.cpp").write_text("// a part of it")
    changed = digest(folder)
    (folder / "kernel.cpp").rename(folder / "kernel.cc")
    assert len({before, changed, digest(folder), digest(folder / "ramp.py")}) == 4


def test_a_changed_plugin_is_not_resumed(project, capsys):
    recipe, folder, name = project
    recipe.write_text(RECIPE.format(name=name, epochs=3))
    module = load_recipe(recipe)
    with pytest.raises(KeyboardInterrupt):
        _run(module, recipe, {"events": [_StopAfterOne()]}, ["--quiet"])
    (folder / "ramp.py").write_text(PLUGIN.format(name=name) + "# another day\n")
    with pytest.raises(ResultsError, match="custom operators whose files changed"):
        _run(module, recipe, {"events": [_StopAfterOne()]}, ["--quiet", "--resume"])


def _run(module, recipe, more, argv):
    from deep500.recipe.options import parse_options
    from deep500.recipe.plan import RecipeFile
    from deep500.recipe.runner import execute

    mutable = {**module.MUTABLE, **more}
    return execute(module.FIXED, mutable, module.METRICS, parse_options(argv), RecipeFile.at(recipe))


class _StopAfterOne(d5.Event):
    def after_epoch(self, run):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (
            ["plugins/rump"],
            r"'plugins/rump', that is .*project/plugins/rump, where nothing is; .*relative to the recipe",
        ),
        (["plugins"], r"custom_ops: got plugin .*expected a Python file, or a folder with plugins.py"),
        (["broken.py"], r"custom_ops: got plugin .*broken.py.*SyntaxError"),
        ("plugins/ramp", "expected a list of paths"),
        ([3], "expected a list of paths"),
    ],
)
def test_wrong_paths_are_errors_with_the_cure(project, capsys, paths, expected):
    recipe, _, _ = project
    (recipe.parent / "broken.py").write_text("def")
    with pytest.raises(RecipeError, match=expected):
        _run(load_recipe(recipe), recipe, {"custom_ops": paths}, ["--quiet"])


def test_without_a_file_paths_are_relative_to_the_current_folder(project, monkeypatch):
    recipe, folder, _ = project
    monkeypatch.chdir(recipe.parent)
    assert load_custom_ops(["plugins/ramp"], None) == [{"path": "plugins/ramp", "sha256": digest(folder)}]


@pytest.mark.backend("onnxruntime")
def test_comparisons_load_plugins_in_every_process(project, capsys):
    recipe, folder, name = project
    words = ["--backend", "reference,onnxruntime", "--dry-run", "--json", "--threads", "1"]
    assert cli.main(["compare", str(recipe), *words]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["timings"]["training step"]["samples"]) >= {"reference", "onnxruntime"}
    manifest = json.loads((Path(result["path"]) / "manifest.json").read_text())
    assert manifest["resolved"]["asked"]["custom_ops"] == [{"path": "plugins/ramp", "sha256": digest(folder)}]

    net = Network("model")
    net.add_input("x", ("N", 3))
    net.add_node(name, "x", "y", domain="deep500")
    net.add_output("y")
    net.to_onnx("model.onnx")
    assert cli.main(["compare", "model.onnx", *words, "--custom-op", str(folder)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["gate"]["equivalent"] and "inference of 1" in result["timings"]
    assert cli.main(["compare", str(recipe), *words, "--custom-op", str(folder)]) == 2
    assert "'custom_ops'" in capsys.readouterr().err
    assert cli.main(["compare", "model.onnx", *words, "--custom-op", "nowhere"]) == 2
    assert "got plugin" in capsys.readouterr().err
    np.testing.assert_array_equal(_inference("model.onnx"), [[0, 0, 1]])


def _inference(model):
    executor = d5.load_backend("onnxruntime").from_onnx(model)
    return executor.inference({"x": np.array([[-1, 0, 1]], np.float32)})["y"]
