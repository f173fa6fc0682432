"""An optimizer of one's own is one class, in one file: Lion, here, runs on every backend and in a recipe."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError, RecipeError
from deep500.training.optimizers import UpdateRuleOptimizer, hyperparameter
from deep500.training.schedules import StepSchedule
from tests.recipes.common import quick
from tests.tolerances import assert_close
from tests.training.linear import FakeExecutor, linear_network, regression_batches


class Lion(UpdateRuleOptimizer):
    """Lion (Chen et al. 2023, arXiv 2302.06675).

    ``u = sign(b1 m + (1 - b1) g);  w <- w - lr (u + weight_decay w);  m <- b2 m + (1 - b2) g``; first ``m = 0``.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = hyperparameter((0.9, 0.99), below=1)
    weight_decay: float = 0.0

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        (b1, b2), means = self.betas, self.slot("exp_avg")
        mean = means.get(name, 0.0)
        blend = b1 * mean + (1 - b1) * grad
        means[name] = b2 * mean + (1 - b2) * grad
        direction = blend / (abs(blend) + 1e-30)
        return old_param - self.lr * (direction + self.weight_decay * old_param)


def lion_by_hand(batches: Any, lr: float, b1: float, b2: float, weight_decay: float) -> dict[str, np.ndarray]:
    executor = FakeExecutor(linear_network())
    means = {name: np.zeros_like(executor.network.tensors[name]) for name in ("w", "b")}
    for batch in batches:
        executor.inference_and_backprop(batch)
        for name, mean in means.items():
            value, grad = executor.network.tensors[name], executor.network.tensors[f"{name}.grad"]
            step = np.sign(b1 * mean + (1 - b1) * grad) + weight_decay * value
            executor.network.tensors[name] = value - lr * step
            means[name] = b2 * mean + (1 - b2) * grad
    return {name: executor.network.tensors[name] for name in means}


def test_it_runs_on_every_backend(backend):
    batches = regression_batches(12)
    executor = backend.from_model(linear_network(), "cpu")
    optimizer = Lion(executor, "loss", 0.01, betas=(0.8, 0.95), weight_decay=0.1)
    for batch in batches:
        optimizer.step(batch)
    start = linear_network().parameters
    for name, value in lion_by_hand(batches, 0.01, 0.8, 0.95, 0.1).items():
        assert_close(executor.network.state()[name], value, "training", name)
        assert not np.allclose(value, start[name].value), f"{name} did not move"


def test_it_is_named_in_a_recipe(tmp_path):
    changes = {"optimizer": Lion, "optimizer_kwargs": {"lr": 0.01}, "schedule": StepSchedule(1, 0.5)}
    fixed, mutable, metrics = quick("reference", **changes)
    result = d5.run_recipe(fixed, mutable, metrics, ["--quiet", "--out", str(tmp_path)])
    assert result and result["test_accuracy"].value > 50
    mutable["optimizer_kwargs"] = {"lr": 0.003, "betas": (0.9, 1.5)}
    with pytest.raises(InputError, match="< 1"):
        d5.run_recipe(fixed, mutable, metrics, ["--quiet", "--out", str(tmp_path)])
    mutable["optimizer_args"], mutable["optimizer_kwargs"] = (0.1,), {"lr": 0.003}
    with pytest.raises(RecipeError, match="multiple values for argument 'lr'"):
        d5.run_recipe(fixed, mutable, metrics, ["--quiet", "--out", str(tmp_path)])


def test_all_else_follows_from_the_declaration():
    assert list(inspect.signature(Lion).parameters) == ["executor", "loss", "lr", "betas", "weight_decay", "options"]
    assert inspect.signature(Lion).parameters["betas"].default == (0.9, 0.99)
    optimizer = Lion(FakeExecutor(linear_network()), betas=(0.5, 0.9))
    assert Lion.hyperparameters == ("lr", "betas", "weight_decay") and Lion.betas == (0.9, 0.99)
    assert optimizer.initial == {"lr": 1e-3, "betas": (0.5, 0.9), "weight_decay": 0.0}
    assert repr(optimizer) == "Lion(lr=0.001, betas=(0.5, 0.9), weight_decay=0.0)"
    with pytest.raises(InputError, match="did you mean 'betas'"):
        Lion(optimizer.executor, beta=(0.9, 0.9))
    for values, keywords in (((0.1, (0.9, 0.9), 0.0, 1.0), {}), ((0.1,), {"lr": 0.2})):
        with pytest.raises(InputError, match="expected each hyper-parameter once"):
            Lion(optimizer.executor, "loss", *values, **keywords)


def test_what_is_no_hyperparameter_is_said_where_it_is_declared():
    with pytest.raises(TypeError, match=r"Odd\.mode: got the default 'fast'.*annotate another .*ClassVar"):

        class Odd(UpdateRuleOptimizer):
            mode: str = "fast"


def test_a_subclass_changes_a_default_and_adds_its_own():
    class Slow(Lion):
        lr: float = 1e-5
        ramp: bool = False

    assert Slow.hyperparameters == ("lr", "betas", "weight_decay", "ramp")
    assert (Slow.lr, Lion.lr, Slow.betas) == (1e-5, 1e-3, (0.9, 0.99))
    with pytest.raises(InputError, match="True or False"):
        Slow(FakeExecutor(linear_network()), ramp=1)
