"""What schemes inherit, and a scheme that a user writes in ten lines with nothing but the documented names."""

from __future__ import annotations

import os

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import DistributedOptimizer, Serial, Threads
from deep500.distributed.schemes import ModelAverage
from deep500.errors import CommunicationError, InputError
from deep500.events import Events
from deep500.registry import is_installed, load_backend

BACKENDS = [
    name
    for name in ("reference", "pytorch", "tensorflow", "jax", "onnxruntime")
    if is_installed(name) or name in os.environ.get("DEEP500_TEST_BACKENDS", "")
]
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(480, 6)).astype(np.float32), RNG.integers(0, 3, 480)


class NeighbourMean(DistributedOptimizer):
    """The mean gradient of a rank and its two neighbours on a ring."""

    def step(self, inputs):
        self.base_optimizer.new_input()
        for name in self.network.get_params():
            self.base_optimizer.prepare_param(name)
        outputs = self.executor.inference_and_backprop(inputs, self.base_optimizer.loss)
        for param_name, grad_name in self.network.gradient(self.base_optimizer.loss):
            param, grad = self.network.fetch_tensors([param_name, grad_name])
            grad = self.communication.reduce_from_neighbors(grad) / 3
            param = self.base_optimizer.update_rule(grad, param, param_name)
            self.network.feed_tensor(param_name, param)
        return outputs


def make(backend: str, seed: int = 0, hidden: tuple[int, ...] = (8,)) -> d5.GraphExecutor:
    network = d5.networks.create("mlp", shape=(6,), classes=3, hidden=hidden, seed=seed)
    return load_backend(backend).from_model(d5.add_loss(network))


def values(executor: d5.GraphExecutor) -> dict[str, np.ndarray]:
    return executor.network.state()


def train(comm, backend, optimizer, scheme=None, steps=8, batch=48):
    executor = make(backend, seed=comm.rank + 1)
    trainee = optimizer(executor, lr=0.1)
    trainee = trainee if scheme is None else scheme(trainee, comm)
    begin = values(executor)
    for step in range(steps):
        at = np.arange(step * batch, (step + 1) * batch)[comm.rank :: comm.size]
        outputs = trainee.step({"input": X[at], "label": Y[at]})
        assert np.isfinite(float(executor.network.to_numpy(outputs["loss"])))
    return begin, values(executor)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "optimizer", [d5.optimizers.MomentumOptimizer, d5.optimizers.AdamOptimizer, d5.optimizers.AcceleGradOptimizer]
)
def test_a_users_scheme_on_three_ranks_is_serial_descent(backend, optimizer):
    begin, expected = train(Serial(), backend, optimizer)
    ranks = Threads(3).run(train, backend, optimizer, NeighbourMean)
    for _, trained in ranks:
        for name in expected:
            assert np.array_equal(trained[name], ranks[0][1][name]), "ranks differ"
            assert np.abs(trained[name] - expected[name]).max() < 3e-6, name
    assert max(np.abs(expected[name] - begin[name]).max() for name in begin) > 1e-2, "nothing was learnt"


@pytest.mark.parametrize("ranks", [2, 4])
def test_that_scheme_is_not_serial_where_not_all_are_neighbours(ranks):
    results = Threads(ranks).run(train, "reference", d5.optimizers.MomentumOptimizer, NeighbourMean)
    assert max(np.abs(results[0][1][name] - results[1][1][name]).max() for name in results[0][1]) > 1e-3


def test_ranks_begin_with_the_parameters_of_rank_0():
    def first(comm):
        executor = make("reference", seed=comm.rank)
        before = values(executor)
        DistributedOptimizer(d5.optimizers.GradientDescent(executor), comm)
        return before, values(executor)

    ranks = Threads(3).run(first)
    assert not np.array_equal(ranks[1][0]["fc1.weight"], ranks[0][0]["fc1.weight"])
    assert all(np.array_equal(after[name], ranks[0][0][name]) for _, after in ranks for name in after)


def test_different_networks_are_refused():
    def work(comm):
        DistributedOptimizer(d5.optimizers.GradientDescent(make("reference", hidden=(8 + comm.rank,))), comm)

    with pytest.raises(CommunicationError, match=r"rank 0 has \['fc1\.weight', \[8, 6\].*rank 1 has.*\[9, 6\]"):
        Threads(2).run(work)


def test_a_native_optimizer_has_no_rule_to_call():
    backend = load_backend("pytorch")
    scheme = NeighbourMean(backend.MomentumOptimizer(make("pytorch"), lr=0.1), Serial())
    with pytest.raises(InputError, match=r"use deep500\.training\.optimizers\.MomentumOptimizer"):
        scheme.step({"input": X[:4], "label": Y[:4]})


def test_hyperparameters_are_the_base_optimizers():
    base = d5.optimizers.MomentumOptimizer(make("reference"), lr=0.1, momentum=0.5)
    scheme = ModelAverage(base, Serial())
    scheme.set_parameter("lr", 0.25)
    assert base.lr == 0.25 and scheme.get_parameters()["momentum"] == 0.5 and scheme.initial_parameter("lr") == 0.1
    with pytest.raises(InputError, match="momentum"):
        scheme.set_parameter("momentun", 0.1)
    with pytest.raises(InputError, match=r"got Executor to distribute"):
        ModelAverage(make("reference"), Serial())  # type: ignore[arg-type]


def test_a_rank_without_samples_makes_no_update_of_its_own():
    def work(comm):
        executor = make("reference")
        scheme = ModelAverage(d5.optimizers.MomentumOptimizer(executor, lr=0.1, momentum=0.9), comm)
        scheme.step({"input": X[: 4 - 4 * comm.rank], "label": Y[: 4 - 4 * comm.rank]})
        return scheme.base_optimizer.state, values(executor), scheme.base_optimizer.steps

    (state, mine, steps), (idle_state, idle, idle_steps) = Threads(2).run(work)
    assert state["momentum_buffer"] and not idle_state and (steps, idle_steps) == (1, 0)
    assert all(np.array_equal(mine[name], idle[name]) for name in mine)


def test_communication_is_heard_and_counted():
    class Listen(d5.Event):
        heard = 0

        def after_communication(self, source):
            self.heard += 1

    def work(comm):
        executor = make("reference")
        scheme = d5.schemes.ConsistentDecentralized(d5.optimizers.GradientDescent(executor), comm)
        executor.events, listener = Events([Listen()]), None
        listener = executor.events.listeners[0]
        scheme.step({"input": X[:4], "label": Y[:4]})
        facts = scheme.communication_facts()
        return listener.heard, facts["scheme"], facts["traffic"]["all_reduce"]["payload_bytes"]

    size = sum(array.nbytes for array in values(make("reference")).values())
    assert Threads(2).run(work) == [(1, "ConsistentDecentralized", size)] * 2


def test_a_state_of_another_scheme_is_refused():
    mine = ModelAverage(d5.optimizers.MomentumOptimizer(make("reference")), Serial()).state_dict()
    with pytest.raises(InputError, match="got a state without 'seen'; expected that of LocalSGD"):
        d5.schemes.LocalSGD(d5.optimizers.MomentumOptimizer(make("reference")), Serial()).load_state_dict(mine)


def test_a_validation_that_fails_leaves_ranks_their_own_parameters():
    def work(comm):
        executor = make("reference")
        scheme = d5.schemes.LocalSGD(d5.optimizers.GradientDescent(executor, lr=0.5), comm, every=9)
        scheme.step({"input": X[comm.rank :: comm.size], "label": Y[comm.rank :: comm.size]})
        before = values(executor)
        with pytest.raises(ZeroDivisionError), scheme.evaluation():
            assert any(not np.array_equal(value, before[name]) for name, value in values(executor).items())
            raise ZeroDivisionError
        return all(np.array_equal(value, before[name]) for name, value in values(executor).items())

    assert Threads(2).run(work) == [True, True]
