"""The recipe text of the design page, as it stands there, must always run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deep500.cli import main
from tests.conftest import HANG

TEXT = """\
import deep500 as d5
from recipes.recipe import run_recipe
import deep500.frameworks.pytorch as d5fw

FIXED = {'model': 'resnet', 'model_kwargs': dict(depth=44), 'dataset': 'cifar10',
         'train_sampler': d5.ShuffleSampler, 'epochs': 1}
MUTABLE = {'batch_size': 64, 'executor': d5fw.from_model, 'executor_kwargs': dict(device=d5.GPUDevice()),
           'optimizer': d5fw.MomentumOptimizer, 'optimizer_args': (0.1, 0.9)}
METRICS = [(d5.TestAccuracy(), 93.0)]

if __name__ == '__main__':
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "no data"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "no data"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(TEXT)
    return path


@pytest.mark.slow
def test_as_a_script(recipe):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, recipe.name, "--dry-run"],
        cwd=recipe.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    assert "verdict: UNJUDGED (dry run)" in done.stdout and "Traceback" not in done.stderr
    assert "STAND-IN" in done.stderr
    (folder,) = (recipe.parent / "results" / "mine").glob("20*-*")
    assert f"report:  {folder.relative_to(recipe.parent)}/report.html" in done.stdout
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["device"]["asked"] == "gpu:0" and len(manifest["environment"]["versions"]["torch"]) > 2
    assert sorted(path.name for path in recipe.parent.iterdir()) == ["mine.py", "results"]  # nothing else is written


def test_with_the_command_line(recipe, capsys):
    words = ["run", str(recipe), "batch_size=4", "--dry-run", "--backend", "reference", "--device", "cpu"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "verdict: UNJUDGED (dry run)" in out and "[dry run, stand-in data]" in out and "STAND-IN" in err
