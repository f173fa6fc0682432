"""The trainer on real backends: Dropout and running statistics resume exactly, learning happens, devices agree."""

from __future__ import annotations

import json

import numpy as np
import pytest

from deep500.networks.losses import add_loss
from deep500.networks.network import Network
from deep500.training.clipping import ClipGradientNorm
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler
from deep500.training.schedules import CosineSchedule, WarmUp
from deep500.training.trainer import Trainer
from tests.tolerances import assert_close
from tests.training.test_trainer import dataset


def network(drop=0.3):
    """Gemm, BatchNormalization, Relu, Dropout, Gemm, cross-entropy.

    No bias before the normalisation: its gradient is 0 but for rounding, which Adam would blow up to whole steps.
    """
    rng = np.random.default_rng(0)
    net = Network("small")
    net.add_input("input", ("N", 4))
    for name, shape in {"w1": (4, 8), "scale": (8,), "shift": (8,), "w2": (8, 3), "b2": (3,)}.items():
        net.add_parameter(name, rng.normal(size=shape).astype("float32"))
    net.add_parameter("mean", np.zeros(8, "float32"), trainable=False)
    net.add_parameter("variance", np.ones(8, "float32"), trainable=False)
    net.add_parameter("ratio", np.array(drop, "float32"), trainable=False)
    net.add_node("Gemm", ["input", "w1"], ["h"])
    net.add_node("BatchNormalization", ["h", "scale", "shift", "mean", "variance"], ["n"])
    net.add_node("Relu", ["n"], ["r"])
    net.add_node("Dropout", ["r", "ratio"], ["d"], seed=3)
    net.add_node("Gemm", ["d", "w2", "b2"], ["y"])
    net.add_output("y")
    return add_loss(net)


def make_trainer(backend, seed=0, drop=0.3, optimizer="MomentumOptimizer", keywords=None):
    def narrow(data):
        return NumpyDataset(data.data.astype("float32"), "input", data.labels, "label")

    executor = backend.from_model(network(drop), "cpu")
    train = ShuffleSampler(narrow(dataset(48)), 8, seed=seed)
    validation = OrderedSampler(narrow(dataset(20, 1)), 8, drop_last_batch=False)
    keywords = {"gradient_transform": ClipGradientNorm(1.0)} if keywords is None else keywords
    chosen = getattr(backend, optimizer)(executor, "loss", 0.05, **keywords)
    return Trainer(train, validation, executor, chosen, seed=seed)


def events():
    return [WarmUp(6, CosineSchedule(6))]


@pytest.mark.parametrize("optimizer", ["MomentumOptimizer", "AdamOptimizer"])
def test_resuming_equals_never_stopping_bit_for_bit(backend, optimizer):
    whole, first, late = (make_trainer(backend, seed, optimizer=optimizer) for seed in (5, 5, 77))
    want = whole.run(6, events())
    first.run(2, events())
    state = first.state()
    late.load_state({"arrays": state["arrays"], "values": json.loads(json.dumps(state["values"]))})
    got = late.run(6, events())
    for name, value in whole.executor.network.state().items():
        assert_close(late.executor.network.state()[name], value, "exact", err_msg=name)
    for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
        assert got.column(name) == want.column(name)
    start = network().parameters
    assert all(
        not np.array_equal(whole.executor.network.state()[n], start[n].value) for n in ("w1", "mean", "variance")
    )


def test_dropout_depends_on_the_seed_and_only_on_it(backend):
    first, again, other = (make_trainer(backend, seed).run(2, []).column("train_loss") for seed in (1, 1, 2))
    assert first == again != other


def test_it_learns(backend):
    statistics = make_trainer(backend, drop=0.0).run(12, events())
    losses = statistics.column("train_loss")
    assert losses[-1] < 0.7 * losses[0] and statistics.epochs[-1].test_accuracy > 60


@pytest.mark.parametrize("optimizer", ["MomentumOptimizer", "AdamOptimizer"])
def test_backends_agree_on_the_whole_run(backend, optimizer):
    """Without Dropout every backend gives the reference's losses and accuracies."""
    from tests.conftest import load_backend

    got = make_trainer(backend, drop=0.0, optimizer=optimizer).run(3, events())
    want = make_trainer(load_backend("reference"), drop=0.0, optimizer=optimizer).run(3, events())
    for name in ("train_loss", "test_loss", "train_accuracy", "test_accuracy"):
        assert_close(np.float32(got.column(name)), np.float32(want.column(name)), "training", err_msg=name)
