"""The trainer on schemes whose ranks differ: all report the same, and what is kept is the model that was validated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500 import registry
from deep500.distributed import Threads, schemes
from deep500.distributed.sampler import DistributedSampler
from deep500.networks.losses import add_loss
from deep500.networks.network import Network
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler
from deep500.training.trainer import Trainer

# fmt: off
SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("ConsistentNeighbors", {}), ("InconsistentDecentralized", {}), ("InconsistentParameterServer", {}),
    ("StaleSynchronous", {"staleness": 2}),
]
# fmt: on
BACKENDS = ["reference", pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))]


def network() -> Network:
    """Gemm, BatchNormalization, Relu, Gemm, cross-entropy."""
    rng = np.random.default_rng(0)
    net = Network("normalised")
    net.add_input("input", ("N", 4), "float32")
    for name, shape in {"w1": (4, 8), "scale": (8,), "shift": (8,), "w2": (8, 3), "b2": (3,)}.items():
        net.add_parameter(name, rng.normal(size=shape).astype("float32"))
    net.add_parameter("mean", np.zeros(8, "float32"), trainable=False)
    net.add_parameter("variance", np.ones(8, "float32"), trainable=False)
    net.add_node("Gemm", ["input", "w1"], ["h"])
    net.add_node("BatchNormalization", ["h", "scale", "shift", "mean", "variance"], ["n"])
    net.add_node("Relu", ["n"], ["r"])
    net.add_node("Gemm", ["r", "w2", "b2"], ["y"])
    net.add_output("y")
    return add_loss(net)


def data(samples: int, seed: int) -> NumpyDataset:
    """Three clouds; their centres do not depend on the seed."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, samples)
    points = 2 * np.eye(4)[labels] + rng.normal(scale=0.3, size=(samples, 4))
    return NumpyDataset(points.astype("float32"), "input", labels, "label")


def work(comm: Any, backend: str, scheme: str, keywords: dict[str, Any]) -> dict[str, Any]:
    module = registry.load_backend(backend)
    executor = module.from_model(network(), "cpu")
    optimizer = getattr(schemes, scheme)(module.MomentumOptimizer(executor, "loss", 0.03), comm, **keywords)
    computing = list(optimizer.computing_ranks(comm.size))
    position = computing.index(comm.rank) if comm.rank in computing else None
    train = DistributedSampler(ShuffleSampler(data(74, 1), 16, seed=2, drop_last_batch=False), position, len(computing))
    test = DistributedSampler(OrderedSampler(data(30, 2), 8), comm.rank, comm.size)
    trainer = Trainer(train, test, executor, optimizer)
    statistics = trainer.run(10, events=[])
    samples = sum(len(batch["label"]) for batch in train)
    return {"statistics": statistics, "state": executor.network.state(), "samples": samples, "optimizer": optimizer}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES)
def test_all_ranks_report_the_same_and_learn(scheme: str, keywords: dict[str, Any], size: int, backend: str) -> None:
    for seed in (None, 3):
        results = Threads(size, seed).run(work, backend, scheme, keywords)
        assert sum(result["samples"] for result in results) == 74
        for record in zip(*(result["statistics"].epochs for result in results), strict=True):
            accuracies = {(epoch.train_accuracy, epoch.test_accuracy) for epoch in record}
            assert len(accuracies) == 1 and len({(epoch.train_loss, epoch.test_loss) for epoch in record}) == 1
            assert {(epoch.train_samples, epoch.test_samples) for epoch in record} == {(74, 30)}
        epochs = results[0]["statistics"].epochs
        assert epochs[-1].test_accuracy > 90 and epochs[-1].train_loss < epochs[0].train_loss


@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES[2:])
def test_the_server_has_the_mean_statistics_of_the_workers(scheme: str, keywords: dict[str, Any]) -> None:
    """The server sees no data, so its own running statistics would be those from before the training."""
    results = Threads(3, 1).run(work, "reference", scheme, keywords)
    assert results[0]["samples"] == 0
    for name, value in results[0]["state"].items():
        assert all(np.array_equal(result["state"][name], value) for result in results[1:]), name
    assert np.abs(results[0]["state"]["mean"]).max() > 0.1

    def statistics_of_workers(comm: Any) -> list[np.ndarray]:
        module = registry.load_backend("reference")
        executor = module.from_model(network(), "cpu")
        optimizer = getattr(schemes, scheme)(module.GradientDescent(executor, "loss", 0.0), comm, **keywords)
        optimizer.step({name: value[:0] if comm.rank == 0 else value for name, value in data(9, comm.rank)[:].items()})
        before = executor.network.state()
        optimizer.agree()
        return [before["mean"], executor.network.state()["mean"], before["variance"]]

    server, first, second = Threads(3).run(statistics_of_workers)
    assert (server[0] == 0).all() and (server[2] == 1).all() and np.abs(first[0] - second[0]).max() > 1e-3
    for statistics in (server, first, second):
        np.testing.assert_allclose(statistics[1], (first[0] + second[0]) / 2, rtol=1e-6)
