"""The recipe's key ``task``: a built-in, one of the user's own, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import RecipeError
from deep500.metrics import TestQuality
from deep500.recipe import run_recipe
from deep500.results.verify import verify
from deep500.training.data import NumpyDataset

OWN = """
import numpy as np
import deep500 as d5

class Half(d5.tasks.Task):
    name, sample, qualities = "half", "number", (d5.tasks.Quality("near", "%"),)
    def add_loss(self, network):
        return d5.networks.add_loss(network, "mean_squared_error", label=self.label)
    def zero(self):
        return {"near": np.zeros(()), "seen": np.zeros(())}
    def judge(self, batch, outputs):
        near = np.abs(outputs[self.output] - batch[self.label]) < 0.5
        return {"near": near.sum(), "seen": near.size}
    def measure(self, sums, loss):
        return {"near": float(100 * sums["near"] / sums["seen"]) if sums["seen"] else None}
"""


def line(seed: int = 0):
    """Numbers on a plane, with little noise."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(120, 3)).astype(np.float32)
    y = (x @ np.array([[1.0], [-2.0], [0.5]]) + 0.01 * rng.normal(size=(120, 1))).astype(np.float32)
    halves = (slice(80), slice(80, 120))
    return tuple(NumpyDataset(x[half], "input", y[half], "label", name="plane") for half in halves)


def recipe(backend: str, **changes):
    d5fw = d5.load_backend(backend) if isinstance(backend, str) else backend
    fixed = {"model": "mlp", "model_kwargs": {"hidden": (), "classes": 1}, "dataset": line, "epochs": 6}
    mutable = {
        "batch_size": 8,
        "executor": d5fw.from_model,
        "optimizer": d5fw.GradientDescent,
        "optimizer_kwargs": {"lr": 0.1},
        **changes,
    }
    return fixed, mutable


def run(tmp_path, backend, metrics, *words, **changes):
    fixed, mutable = recipe(backend, **changes)
    return run_recipe(fixed, mutable, metrics, ["--out", str(tmp_path), "--quiet", *words])


def lines(result):
    text = (Path(result.path) / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(part) for part in text.splitlines()]


def test_regression_is_a_task(tmp_path, backend):
    metrics = [(TestQuality("r2"), 0.99), (TestQuality("mean_squared_error", direction="lower"), 0.01)]
    result = run(tmp_path, backend, metrics, task="regression")
    assert result.verdict == "PASSED"
    curve = lines(result)
    assert curve[-1]["test_r2"] > 0.99 > curve[0]["train_r2"] and curve[0]["test_accuracy"] is None
    assert verify(Path(result.path)) == []


def test_a_task_of_ones_own_file(tmp_path, backend):
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    result = run(tmp_path, backend, [(TestQuality("near", "%"), 99.0)], task=f"{tmp_path / 'own.py'}:Half")
    assert result.verdict == "PASSED" and lines(result)[-1]["test_near"] >= 99.0
    manifest = json.loads((Path(result.path) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["resolved"]["own"][0]["key"] == "task" and manifest["resolved"]["recipe"]["loss"] is None


@pytest.mark.parametrize(
    ("metric", "changes", "message"),
    [
        (TestQuality("word_error_rate"), {"task": "regression"}, r"expected a quality of task 'regression'.*r2"),
        (TestQuality("r2", direction="lower"), {"task": "regression"}, r"'r2' in no unit, lower is better"),
        (TestQuality("r2"), {"task": "regressing"}, r"task: got 'regressing'; expected one of .*regression"),
        (TestQuality("r2"), {"task": dict}, r"task: got dict from .*; expected a Task"),
        (TestQuality("r2"), {"task": "regression", "task_kwargs": {"labl": "y"}}, r"task_kwargs: got 'labl'.*label"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(tmp_path, metric, changes, message):
    with pytest.raises(RecipeError, match=message):
        run(tmp_path, "reference", [(metric, None)], **changes)
