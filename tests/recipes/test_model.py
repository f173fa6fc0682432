"""A user's own model in a recipe, in comparisons, in plans and in substitutions: PyTorch's modules, ONNX messages."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500 import cli
from deep500.errors import InputError, RecipeError
from deep500.networks import add_loss, as_network, create
from deep500.recipe.build import load_data
from deep500.recipe.model import make_native, make_network
from deep500.recipe.options import Options
from deep500.recipe.steps import make_plan
from deep500.results import Record
from tests.conftest import load_backend
from tests.recipes.common import quick
from tests.tolerances import assert_close

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.backend("pytorch")


class Mine(torch.nn.Module):
    """Convolution, normalization, dropout, a linear layer."""

    def __init__(self, classes: int = 10, width: int = 6) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(1, width, 3, padding=1), torch.nn.BatchNorm2d(width)
        self.drop, self.head = torch.nn.Dropout(0.1), torch.nn.Linear(16 * width, classes)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.head(self.drop(x.flatten(1)))


FILE = """\
import torch


class Net(torch.nn.Sequential):
    def __init__(self, classes):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, 12), torch.nn.ReLU(), torch.nn.Linear(12, classes))


def wrong():
    return 5
"""


def values_of(backend: str, **changes: Any) -> tuple[dict[str, Any], Any]:
    """The recipe's values and its training data."""
    fixed, mutable, metrics = quick(backend, **{"augmentation": None, "model_kwargs": None, **changes})
    values = make_plan(fixed, mutable, metrics, Options([])).values
    return values, load_data(values, False, False, None)[0]


@pytest.mark.parametrize("backend", ["pytorch", "jax", "reference", "tensorflow", "onnxruntime"])
def test_a_module_trains_in_every_backend(backend: str, tmp_path: Path) -> None:
    load_backend(backend)
    fixed, mutable, metrics = quick(backend, model=Mine, model_kwargs={"width": 4}, batch_size=64)
    result = d5.run_recipe(fixed, mutable, metrics, argv=["--quiet", "--out", str(tmp_path)])
    lines = Record(Path(result.path)).epochs()
    assert lines[-1]["train_loss"] < 0.8 * lines[0]["train_loss"]


def test_a_class_is_made_from_the_seed_with_what_it_declares() -> None:
    values, data = values_of("pytorch", model=Mine)
    first, again, other = (make_network(values, data, seed) for seed in (1, 1, 2))
    assert first.content_hash() == again.content_hash() != other.content_hash()
    assert first.inputs["input"].shape == ("N", 1, 8, 8) and first.outputs == ["output", "loss"]
    narrow, data = values_of("pytorch", model=Mine, model_kwargs={"classes": 3, "trainable": "head.*"})
    network = make_network(narrow, data, 0)
    assert network.trainable() == ["head.weight", "head.bias"] and network.parameters["head.bias"].value.shape == (3,)


def test_an_instance_keeps_its_weights_and_they_are_recorded() -> None:
    module = Mine()
    values, data = values_of("pytorch", model=module)
    network = make_network(values, data, 7)
    assert_close(network.parameters["head.weight"].value, module.head.weight, "exact")
    fixed, mutable, metrics = quick("pytorch", model=module, model_kwargs=None)

    def recorded() -> Any:
        return make_plan(fixed, mutable, metrics, Options([])).resolved["recipe"]["model"]

    before = recorded()
    assert before["class"].endswith(":Mine") and len(before["weights"]) == 64
    with torch.no_grad():
        module.head.bias += 1
    assert recorded()["weights"] != before["weights"]


def test_the_file_of_a_model_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_networks.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    import my_own_networks  # type: ignore[import-not-found]

    digest = hashlib.sha256(FILE.encode()).hexdigest()
    for model in (my_own_networks.Net, my_own_networks.Net(10), "my_own_networks:Net"):
        fixed, mutable, metrics = quick("reference", model=model, model_kwargs=None)
        (own,) = make_plan(fixed, mutable, metrics, Options([])).resolved["own"]
        assert own == {"key": "model", "name": "my_own_networks:Net", "sha256": digest}


def test_native_keeps_the_module(tmp_path: Path) -> None:
    values, data = values_of("pytorch", model=Mine, model_kwargs={"native": True})
    executor = make_native(values, data, 3)
    assert executor is not None and type(executor.module) is Mine  # type: ignore[attr-defined]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        want = Mine()
    assert_close(executor.network.state()["conv.weight"], want.conv.weight, "exact")
    with pytest.raises(RecipeError, match="native=True where a network of operators is needed"):
        make_network(values, data, 3)
    values, data = values_of("reference", model=Mine, model_kwargs={"native": True})
    with pytest.raises(RecipeError, match=r"native=True and executor .*; expected PyTorch's"):
        make_native(values, data, 3)
    fixed, mutable, metrics = quick("pytorch", model=Mine, model_kwargs={"native": True})
    result = d5.run_recipe(fixed, mutable, metrics, argv=["--quiet", "--out", str(tmp_path)])
    lines = Record(Path(result.path)).epochs()
    assert lines[-1]["train_loss"] < lines[0]["train_loss"]


def test_what_is_no_model_is_one_error() -> None:
    values, data = values_of("reference", model=lambda: 5)
    with pytest.raises(RecipeError, match=r"model: got int from .*; expected a deep500 Network or a model of PyTorch"):
        make_network(values, data, 0)
    values, data = values_of("reference", model=Mine, model_kwargs={"widht": 3})
    with pytest.raises(RecipeError, match=r"model_kwargs: got 'widht'; .*width"):
        make_network(values, data, 0)
    values, data = values_of("reference", model=Mine(), model_kwargs={"width": 3})
    with pytest.raises(RecipeError, match="model_kwargs: got 'width'; expected a keyword of as_network"):
        make_network(values, data, 0)


def test_a_message_is_a_model() -> None:
    message = create("mlp", classes=10, shape=(1, 8, 8), hidden=(4,)).to_onnx()
    values, data = values_of("reference", model=message)
    network = make_network(values, data, 0)
    assert network.outputs == ["output", "loss"]
    assert as_network(message).content_hash() == as_network(message.SerializeToString()).content_hash()


def test_a_module_is_compared_planned_and_optimized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module, example = Mine(), np.zeros((1, 1, 8, 8), "float32")
    result = d5.compare_models(module, ["reference", "pytorch"], rounds=0, example=example, batch_sizes=[3])
    assert result.gate and "Mine" in str(result)
    plan = d5.plan_checkpointing(module, 0.9, batch=8, example=example)
    assert plan.budget > 0
    with_loss = add_loss(as_network(module, example))
    assert plan.predicted_peak == d5.plan_checkpointing(with_loss, 0.9, batch=8).predicted_peak
    optimized = d5.optimize_network(module, measure=False, example=example, budget=2)
    assert len(optimized.network.nodes) <= len(optimized.original.nodes)
    with pytest.raises(InputError, match="got Mine without example inputs"):
        d5.optimize_network(module, measure=False)
    (tmp_path / "mine.py").write_text(FILE.replace("classes)", "classes=3)", 1))
    words = ["compare", f"{tmp_path / 'mine.py'}:Net", "--backend", "reference,pytorch", "--rounds", "0", "--json"]
    assert cli.main([*words, "--example", "2x64", "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["frameworks"] == ["reference", "pytorch"]
    assert cli.main([*words, "--example", "2xx"]) == 2
    assert "got --example '2xx'; expected sizes" in capsys.readouterr().err
