"""A recipe of a backend that is not installed runs on one that is: what `pip install deep500` alone gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deep500.compare import worker
from deep500.recipe import loader
from tests.conftest import HANG

WITHOUT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in ("torch", "jax") else found(name, *more)
from deep500.cli import main
code = main(sys.argv[1:])
assert not {"torch", "jax"} & set(sys.modules)
sys.exit(code)
"""
WRITTEN = """
backend = "jax"
[fixed]
model = "mlp"
dataset = "digits"
epochs = 1
[mutable]
batch_size = 64
optimizer = "AdamOptimizer"
[[metrics]]
metric = "TestAccuracy"
"""


def without_frameworks(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = [sys.executable, "-c", WITHOUT, *words]
    return subprocess.run(done, cwd=folder, capture_output=True, text=True, check=False, timeout=HANG)


def test_a_shipped_recipe_runs_in_numpy(tmp_path: Path) -> None:
    words = ("run", "digits_lenet", "--backend", "reference", "--dry-run", "--quiet")
    done = without_frameworks(tmp_path, *words)
    assert done.returncode == 0 and "dry run" in done.stdout, done.stderr


def test_without_a_framework_the_line_says_both_cures(tmp_path: Path) -> None:
    done = without_frameworks(tmp_path, "run", "digits_lenet", "--dry-run")
    assert done.returncode == 3
    assert "pip install 'deep500[pytorch]'; or run the recipe in NumPy: add --backend reference" in done.stderr


def test_a_written_recipe_runs_in_numpy(tmp_path: Path) -> None:
    if sys.version_info < (3, 11):
        pytest.importorskip("tomli")
    (tmp_path / "job.toml").write_text(WRITTEN)
    done = without_frameworks(tmp_path, "run", "job.toml", "--backend", "reference", "--dry-run", "--quiet")
    assert done.returncode == 0, done.stderr


def test_a_worker_of_a_comparison_loads_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it loads a recipe, every backend's name means its own; the loader takes away only what it put there."""
    name = "deep500.frameworks.jax"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(loader, "is_installed", lambda backend: backend == "reference")
    with worker.only("reference"):
        recipe = loader.load_recipe(loader.find_recipe("digits_lenet"), "reference")
        assert sys.modules[name] is sys.modules["deep500.frameworks.reference"]
    assert name not in sys.modules and recipe.MUTABLE["batch_size"] == 32
