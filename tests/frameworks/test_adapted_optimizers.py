"""Optimizers of torch.optim's and Optax's interfaces against themselves, without Deep500 around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler
from deep500.training.trainer import Trainer
from tests.conftest import load_backend
from tests.tolerances import as_numpy
from tests.training.linear import linear_network, regression_batches
from tests.training.optimizers.test_rules import ByOptax, ByTorch, rate, weights

STEPS = 30
# fmt: off
ADAPTED = {  # backend, where the class is, its arguments
    "RAdam": ("pytorch", "torch.optim:RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "Adadelta": ("pytorch", "torch.optim:Adadelta", {"lr": 0.5, "rho": 0.8, "foreach": False}),
    "schedulefree": ("pytorch", "schedulefree:AdamWScheduleFree", {"lr": 0.05, "warmup_steps": 5}),
    "prodigyopt": ("pytorch", "prodigyopt:Prodigy", {"lr": 1.0, "weight_decay": 0.1, "d0": 1e-3}),
    "lion": ("jax", "optax:lion", {"learning_rate": 0.01, "b1": 0.8, "weight_decay": 0.1}),
    "adamw": ("jax", "optax:adamw", {"learning_rate": 0.05, "eps": 1e-3, "nesterov": True}),
}
# fmt: on


def adapted(row: tuple[Any, ...]) -> tuple[Any, Any]:
    """The native class or function, and ours."""
    backend, place, options = row
    module, _, name = place.partition(":")
    native = getattr(pytest.importorskip(module), name)
    return native, load_backend(backend).optimizer_from_native(native, **options)


def train(row: tuple[Any, ...], first: int, last: int, executor: Any = None, state: Any = None) -> tuple[Any, Any]:
    executor = load_backend(row[0]).from_model(linear_network(), "cpu") if executor is None else executor
    optimizer = adapted(row)[1](executor)
    if state is not None:
        optimizer.load_state_dict(state)
    for step, batch in enumerate(regression_batches(last)[first:], first):
        optimizer.set_parameter("lr", rate(optimizer.initial["lr"], step))
        optimizer.step(batch)
    return executor, optimizer


@pytest.mark.parametrize("name", ADAPTED)
def test_it_does_what_it_does_by_itself(name: str) -> None:
    """With a schedule, and from a state that was saved in between, which changes no bit."""
    row = ADAPTED[name]
    native, start = adapted(row)[0], {n: p.value for n, p in linear_network().parameters.items()}
    values = dict(row[2])
    lr = values.pop("learning_rate", None) or values.pop("lr")
    theirs: Any
    if row[0] == "pytorch":
        theirs = ByTorch(start, lambda tensors: native(tensors, lr=lr, **values))
    else:
        theirs = ByOptax(start, lambda optax, schedule: native(schedule, **values))
    model = load_backend("reference").from_model(linear_network())
    for step, batch in enumerate(regression_batches(STEPS)):
        model.network.load_state({n: np.array(array) for n, array in theirs.weights.items()})
        model.inference_and_backprop(batch)
        names, tensors = zip(*model.network.gradient("loss"), strict=True)
        theirs.step(dict(zip(names, model.network.fetch_tensors(tensors), strict=True)), rate(lr, step))
    whole, optimizer = train(row, 0, STEPS)
    early, saved = train(row, 0, 12)
    late = load_backend(row[0]).from_model(linear_network(), "cpu")
    late.network.load_state(weights(early))
    train(row, 12, STEPS, late, saved.state_dict())
    for key, array in theirs.weights.items():
        np.testing.assert_allclose(weights(whole)[key], np.asarray(array), rtol=0, atol=1e-12, err_msg=key)
        np.testing.assert_array_equal(weights(late)[key], weights(whole)[key], err_msg=key)
        assert np.abs(weights(whole)[key] - start[key]).max() > 0.02
    if optimizer.judges_other:
        trained = weights(whole)
        with optimizer.evaluation():
            for key, array in theirs.judged.items():
                np.testing.assert_allclose(weights(whole)[key], array, rtol=0, atol=1e-12, err_msg=key)
                assert np.abs(array - trained[key]).max() > 1e-3
    assert type(optimizer).lr == lr


def test_a_trainer_judges_and_resumes_with_the_modes_of_schedulefree() -> None:
    data = regression_batches(1)[0]
    dataset = NumpyDataset(data["input"], labels=data["label"])

    def trainer() -> Trainer:
        executor = load_backend("pytorch").from_model(linear_network(), "cpu")
        optimizer = adapted(ADAPTED["schedulefree"])[1](executor, lr=0.1)
        return Trainer(OrderedSampler(dataset, 2), OrderedSampler(dataset, 4), executor, optimizer)

    straight, first, again = trainer(), trainer(), trainer()
    straight.run(3, [])
    first.run(2, [])
    again.load_state(first.state())
    again.run(3, [])
    judged = weights(straight.executor)
    with straight.optimizer.evaluation():  # they are shown already
        np.testing.assert_array_equal(weights(straight.executor)["w"], judged["w"])
    for key, array in judged.items():
        np.testing.assert_array_equal(weights(again.executor)[key], array)
    straight.optimizer.step({name: as_numpy(array) for name, array in data.items()})
    assert np.abs(weights(straight.executor)["w"] - judged["w"]).max() > 1e-3


def test_what_does_not_fit_is_refused() -> None:
    pytorch, optax = load_backend("pytorch"), pytest.importorskip("optax")
    executor = load_backend("jax").from_model(linear_network(), "cpu")
    lion = load_backend("jax").optimizer_from_native(optax.lion, learning_rate=0.1, weight_decay=0.1)
    with pytest.raises(InputError, match="partition"):
        lion(executor, no_decay="norms_and_biases")
    with pytest.raises(InputError, match="leaves"):
        lion(executor).load_state_dict({"step": np.array(1)})
    with pytest.raises(InputError, match="did you mean 'weight_decay'"):
        lion(executor, weight_decy=0.1)
    RAdam = adapted(ADAPTED["RAdam"])[1]
    optimizer = RAdam(pytorch.from_model(linear_network(), "cpu"), groups=[{"parameters": "b", "weight_decay": 0.0}])
    with pytest.raises(InputError, match="RAdamOptimizer"):
        optimizer.load_state_dict({"step": np.array(1)})
    other = RAdam(pytorch.from_model(linear_network(), "cpu"))
    with pytest.raises(InputError, match="other parameters"):
        other.load_state_dict(optimizer.state_dict())
    optimizer.network.add_node("Neg", ["y"], ["minus"])
    with pytest.raises(InputError, match="after an edit"):
        optimizer.step(regression_batches(1)[0])
