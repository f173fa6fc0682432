"""Gradient accumulation: the gradient of the whole batch, whatever the pieces, in every backend."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from deep500.distributed import Threads
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.sampler import DistributedSampler
from deep500.distributed.schemes import ConsistentDecentralized
from deep500.errors import AccumulationWarning, InputError
from deep500.events import Event
from deep500.networks import add_loss, create, to_dtype
from deep500.networks.network import Network
from deep500.training import optimizers as d5
from deep500.training.accumulation import check_accumulation, pieces
from deep500.training.clipping import ClipGradientNorm
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler
from tests.conftest import load_backend
from tests.tolerances import as_numpy
from tests.training.linear import linear_network

SAMPLES = 10


def batch(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"input": rng.normal(size=(SAMPLES, 4)), "label": rng.integers(0, 3, SAMPLES)}


def optimizer_of(backend: str, **options: Any) -> Any:
    module = load_backend(backend)
    executor = module.from_model(linear_network("cross_entropy"), "cpu")
    return module.MomentumOptimizer(executor, lr=0.1, **options)


def left(optimizer: Any, names: list[str]) -> dict[str, np.ndarray]:
    tensors = optimizer.network.fetch_tensors(names)
    return {name: as_numpy(optimizer.network.to_numpy(t)) for name, t in zip(names, tensors, strict=True)}


@pytest.mark.parametrize("count", [2, 4, 32])
def test_the_gradient_is_that_of_the_whole_batch(backend_name: str, count: int) -> None:
    """10 samples: pieces of 5; of 3, 3, 2 and 2; of 1."""
    whole, divided = optimizer_of(backend_name), optimizer_of(backend_name, accumulate=count)
    want, got = whole.backprop(batch()), divided.backprop(batch())
    assert want.keys() == got.keys() == {"y", "loss"}
    for name in want:
        np.testing.assert_allclose(as_numpy(got[name]), as_numpy(want[name]), rtol=1e-12, atol=1e-13, err_msg=name)
    expected, names = left(whole, ["w.grad", "b.grad"]), left(divided, ["w.grad", "b.grad"])
    for name, gradient in expected.items():
        assert np.abs(gradient).max() > 1e-3
        np.testing.assert_allclose(names[name], gradient, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "native"])
def test_so_are_steps_with_clipping_decay_and_groups(backend_name: str, ours: bool) -> None:
    options = {"gradient_transform": ClipGradientNorm(0.1), "weight_decay": 0.1, "no_decay": "b", "momentum": 0.9}
    ends = []
    for accumulate in (1, 3):
        module = load_backend(backend_name)
        executor = module.from_model(linear_network("cross_entropy"), "cpu")
        kind = d5.MomentumOptimizer if ours else module.MomentumOptimizer
        optimizer = kind(executor, lr=0.5, accumulate=accumulate, **options)
        for number in range(5):
            optimizer.step(batch(number))
        assert optimizer.steps == 5
        ends.append(executor.network.state())
    for name, value in ends[0].items():
        np.testing.assert_allclose(as_numpy(ends[1][name]), as_numpy(value), rtol=1e-11, atol=1e-12, err_msg=name)
        assert not np.array_equal(as_numpy(value), linear_network().parameters[name].value)


def test_ranks_exchange_once_for_all_pieces() -> None:
    """As many messages and the same parameters as without, on ranks with 5 samples each, in pieces of 3 and 2."""
    data = NumpyDataset(batch()["input"].astype(np.float64), labels=batch()["label"])

    def train(comm: Any, accumulate: int) -> tuple[int, dict[str, np.ndarray]]:
        module = load_backend("reference")
        executor = module.from_model(linear_network("cross_entropy"), "cpu")
        base = d5.MomentumOptimizer(executor, lr=0.1, accumulate=accumulate)
        optimizer = ConsistentDecentralized(base, comm)
        sampler = DistributedSampler(OrderedSampler(data, SAMPLES), comm.rank, comm.size)
        for _ in range(3):
            for inputs in sampler:
                optimizer.step({"input": inputs["input"].astype(np.float64), "label": inputs["label"]})
        return comm.traffic.messages, executor.network.state()

    plain = Threads(2).run(lambda comm: train(comm, 1))
    divided = Threads(2).run(lambda comm: train(comm, 2))
    for (messages, state), (expected, want) in zip(divided, plain, strict=True):
        assert messages == expected > 0
        for name, value in want.items():
            np.testing.assert_allclose(state[name], value, rtol=1e-12, atol=1e-13)


def test_a_scheme_that_runs_backward_itself_is_told(backend_name: str) -> None:
    class Alone(DistributedOptimizer):
        def step(self, inputs: Any) -> Any:
            outputs = self.executor.inference_and_backprop(inputs, self.base_optimizer.loss)
            self.update()
            return outputs

    from deep500.distributed import Serial

    optimizer = Alone(optimizer_of(backend_name, accumulate=2), Serial())
    with pytest.raises(InputError, match="backprop"):
        optimizer.step(batch())


def test_batch_normalization_is_named() -> None:
    network = add_loss(create("resnet", depth=8))
    executor = load_backend("reference").from_model(network)
    with pytest.warns(AccumulationWarning, match="9 BatchNormalization nodes"):
        d5.GradientDescent(executor, accumulate=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        d5.GradientDescent(executor)


def test_events_see_one_step_and_the_whole_gradient() -> None:
    seen: list[Any] = []

    class Watch(Event):
        def before_update(self, optimizer: Any) -> None:
            seen.append(np.array(optimizer.network.fetch_tensors(["w.grad"])[0]))

    from deep500.events import Events

    whole, divided = optimizer_of("reference"), optimizer_of("reference", accumulate=2)
    for optimizer in (whole, divided):
        optimizer.executor.events = Events([Watch()])
        optimizer.step(batch())
    assert len(seen) == 2
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-12)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_how_many_pieces_is_a_whole_number(count: Any) -> None:
    with pytest.raises(InputError, match="accumulate="):
        check_accumulation(linear_network(), "loss", count)


def test_pieces_count_by_the_labels_that_count(backend_name: str) -> None:
    """In pieces of 3, 3, 2 and 2 samples 1, 0, 2 and 1 of them count; and where none does, the step is that of a whole
    batch of such."""
    network = add_loss(to_dtype(create("mlp", shape=(4,), hidden=(3,), classes=3), "float64"), ignore_index=2)
    module = load_backend(backend_name)
    whole, divided = (
        module.MomentumOptimizer(module.from_model(network, "cpu"), lr=0.1, **options)
        for options in ({}, {"accumulate": 4})
    )
    for labels in ([0, 2, 2, 2, 2, 2, 0, 1, 2, 0], [2] * SAMPLES, [1, 2, 0, 0, 0, 2, 2, 2, 1, 1]):
        given = {**batch(), "label": np.array(labels)}
        with np.errstate(invalid="ignore"):
            want, got = whole.step(given), divided.step(given)
        np.testing.assert_allclose(as_numpy(got["loss"]), as_numpy(want["loss"]), rtol=1e-12)
        names = whole.parameter_names()
        for name, tensor in left(whole, names).items():
            np.testing.assert_allclose(left(divided, names)[name], tensor, rtol=1e-12, atol=1e-13, err_msg=name)


def test_a_loss_that_is_no_mean_is_refused() -> None:
    network = Network()
    network.add_input("x", ("N", 3))
    network.add_input("label", ("N",), "int64")
    network.add_node("SoftmaxCrossEntropyLoss", ["x", "label"], ["loss"], reduction="sum")
    with pytest.raises(InputError, match="got accumulate=2 with the loss 'loss', which is a sum; expected a mean"):
        check_accumulation(network, "loss", 2)


def test_a_fixed_batch_size_and_unequal_inputs_are_refused() -> None:
    with pytest.raises(InputError, match="fixed first size"):
        check_accumulation(add_loss(create("mlp", shape=(4,), batch=4)), "loss", 2)
    with pytest.raises(InputError, match="2, 3"):
        list(pieces(linear_network(), {"input": np.ones((2, 4)), "label": np.ones((3, 3))}, 2))
