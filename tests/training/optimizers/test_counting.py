"""Parameters that begin to train later, or pause: each has its own count of updates, as torch.optim has it."""

from typing import Any

import numpy as np
import pytest
import torch

from deep500 import load_backend
from deep500.networks import add_loss, create
from deep500.training import optimizers
from tests.tolerances import assert_close

FIRST, SECOND = ("fc1.weight", "fc1.bias"), ("fc2.weight", "fc2.bias")
KINDS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "AdamOptimizer": (torch.optim.Adam, {}, {}),
    "AdamWOptimizer": (torch.optim.AdamW, {}, {}),
    "AMSGradOptimizer": (torch.optim.Adam, {}, {"amsgrad": True}),
    "NAdamOptimizer": (torch.optim.NAdam, {}, {}),
    "AdaGradOptimizer": (torch.optim.Adagrad, {"lr_decay": 0.5}, {}),
    "AdafactorOptimizer": (torch.optim.Adafactor, {"lr": 1.0}, {}),
}


def make(backend: str) -> Any:
    network = add_loss(create("mlp", shape=(4,), hidden=(3,), classes=2, seed=1))
    return load_backend(backend).from_model(network)


def choose(network: Any, trained: tuple[str, ...]) -> None:
    for name in (*FIRST, *SECOND):
        if (name in trained) != network.parameters[name].trainable:
            value = np.array(network.to_numpy(network.fetch_tensors([name])[0]))
            network.set_parameter(name, value, trainable=name in trained)


def trained(step: int) -> tuple[str, ...]:
    """Which parameters: the last layer, both, the first one, both."""
    return SECOND if step < 3 else FIRST if step in (8, 9) else (*FIRST, *SECOND)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["reference", "pytorch"])
def test_late_parameters_equal_torchs(backend: str, kind: str) -> None:
    """Also after a state was stored and loaded in between."""
    native, keywords, more = KINDS[kind]
    executor, rng = make(backend), np.random.default_rng(0)
    network = executor.network
    values = {n: torch.tensor(np.array(network.to_numpy(network.fetch_tensors([n])[0]))) for n in (*FIRST, *SECOND)}
    theirs = native([*values.values()], **{"lr": 0.1, **keywords, **more})
    choose(network, trained(0))
    ours = getattr(optimizers, kind)(executor, **{"lr": 0.1, **keywords})
    for step in range(13):
        choose(network, trained(step))
        if step == 6:
            state = ours.state_dict()
            assert int(state["own_steps/fc1.bias"]) == 3
            ours = getattr(optimizers, kind)(executor, **{"lr": 0.1, **keywords})
            ours.load_state_dict(state)
        names = ours.parameter_names()
        assert set(names) == set(trained(step))
        gradients = {name: rng.normal(size=tuple(values[name].shape)).astype(np.float32) for name in names}
        for name, value in values.items():
            value.grad = torch.tensor(gradients[name]) if name in gradients else None
        theirs.step()
        ours.new_input()
        ours.apply_gradients(names, network.fetch_tensors(names), [network.to_tensor(gradients[n]) for n in names])
        ours.count_update()
        for name, want in values.items():
            got = network.to_numpy(network.fetch_tensors([name])[0])
            assert_close(got, want.numpy(), "training", err_msg=f"{name} after step {step}")


def test_a_native_optimizers_counts_are_stored() -> None:
    ends = []
    for stops in (False, True):
        executor, rng = make("pytorch"), np.random.default_rng(0)
        module = load_backend("pytorch")
        choose(executor.network, SECOND)
        optimizer = module.AdamOptimizer(executor, lr=0.1)
        for step in range(6):
            choose(executor.network, trained(step))
            if stops and step == 5:
                state = optimizer.state_dict()
                optimizer = module.AdamOptimizer(executor, lr=0.1)
                optimizer.load_state_dict(state)
            optimizer.step({"input": rng.normal(size=(4, 4)).astype(np.float32), "label": np.array([0, 1, 1, 0])})
        ends.append(executor.network.state())
    for name, value in ends[0].items():
        assert_close(np.asarray(ends[1][name]), np.asarray(value), "exact", err_msg=name)


@pytest.mark.parametrize(
    "kind",
    [
        "LAMBOptimizer",
        "AdEMAMixOptimizer",
        "SOAPOptimizer",
        "AcceleGradOptimizer",
        "AlgoPerfNAdamOptimizer",
        "ScheduleFreeAdamWOptimizer",
        "MuonOptimizer",
    ],
)
def test_a_late_parameter_moves_as_if_the_optimizer_began_with_it(kind: str) -> None:
    ends = []
    for first in (0, 3):
        executor, rng = make("reference"), np.random.default_rng(0)
        network = executor.network
        if first:
            choose(network, SECOND)
        optimizer = getattr(optimizers, kind)(executor)
        for step in range(first + 4):
            if step == first:
                choose(network, (*FIRST, *SECOND))
            optimizer.prepare()
            names = optimizer.parameter_names()
            grads = [
                rng.normal(size=network.parameters[n].value.shape).astype(np.float32)
                if step >= first
                else np.zeros(network.parameters[n].value.shape, np.float32)
                for n in names
            ]
            optimizer.apply_gradients(names, network.fetch_tensors(names), grads)
            optimizer.count_update()
        ends.append(network.fetch_tensors(list(FIRST)))
    for one, other in zip(*ends, strict=True):
        assert_close(other, one, "training")
