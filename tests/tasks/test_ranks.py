"""A task on several ranks is the task on one: gradients weigh by its samples, states add up, rows come together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import Threads, schemes
from deep500.distributed.sampler import DistributedSampler
from deep500.tasks import Quality, Regression
from deep500.training.data import SequenceDataset, length_mask


class Tokens(Regression):
    """A number for every token; padding counts for nothing."""

    qualities = (*Regression.qualities, Quality("worst", direction="lower"))

    def count(self, batch):
        return int(batch["mask"].sum())

    def judged_inputs(self):
        return (self.label, "mask")

    def zero(self):
        return {**super().zero(), "worst": np.zeros((0, 1))}

    def judge(self, batch, outputs):
        mask = batch["mask"].astype(bool)
        sums = super().judge({self.label: batch[self.label][mask]}, {self.output: outputs[self.output][mask]})
        error = np.abs(batch[self.label] - outputs[self.output])[mask]
        return {**sums, "worst": error.max(initial=0.0).reshape(1, 1)}

    def measure(self, sums, loss):
        return {**super().measure(sums, loss), "worst": float(sums["worst"].max())}

    def add_loss(self, network):
        """sum(mask * (output - label)^2) / sum(mask)"""
        network.add_input(self.label, ("N", 5), "float64")
        network.add_input("mask", ("N", 5), "float64")
        network.add_input("input_length", ("N",), "int64")  # of the batch, read by nobody
        network.add_node("Sub", ["y", self.label], ["e"])
        network.add_node("Mul", ["e", "e"], ["square"])
        network.add_node("Mul", ["square", "mask"], ["within"])
        for name, value in (("sum", "within"), ("tokens", "mask")):
            network.add_node("ReduceSum", [value], [name], keepdims=0)
        network.add_node("Div", ["sum", "tokens"], [self.loss])
        network.add_output(self.loss)
        return network


class Masked(SequenceDataset):
    """With a label for every token, and a mask."""

    def __getitem__(self, index):
        batch = super().__getitem__(index)
        steps = batch["input"].shape[-2]
        mask = length_mask(np.atleast_1d(batch["input_length"]), steps).astype(np.float64)
        label = np.sin(batch["input"][..., 0]) * mask.reshape(batch["input"].shape[:-1])
        return {**batch, "label": label, "mask": mask}


def work(comm: Any, backend: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    rng, module = np.random.default_rng(1), d5.load_backend(backend)
    data = Masked([rng.normal(size=(n, 2)) for n in (5, 1, 2, 4, 3, 5, 1, 1, 2)], input_name="input")
    network = d5.Network("tokens")
    network.add_input("input", ("N", 5, 2), "float64")
    network.add_parameter("w", np.array([[0.3], [-0.2]]))
    network.add_parameter("shape", np.array([0, 5]), trainable=False)
    network.add_node("MatMul", ["input", "w"], ["column"])
    network.add_node("Reshape", ["column", "shape"], ["y"])
    network.add_output("y")
    task = Tokens()
    executor = module.from_model(task.add_loss(network))
    optimizer = schemes.ConsistentDecentralized(module.MomentumOptimizer(executor, lr=0.1), comm)
    train = DistributedSampler(d5.ShuffleSampler(data, 4, seed=2, drop_last_batch=False), comm.rank, comm.size)
    test = DistributedSampler(d5.OrderedSampler(data, 4), comm.rank, comm.size)
    statistics = d5.Trainer(train, test, executor, optimizer, task=task).run(3, [])
    last = statistics.epochs[-1]
    return executor.network.state(), {**last.qualities, "loss": last.train_loss, "samples": last.train_samples}


@pytest.mark.parametrize("name", ["reference", pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))])
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_weigh_by_what_the_task_counts(name, size):
    (weights, said), *_ = Threads(1).run(work, name)
    assert said["samples"] == 24 and not np.allclose(weights["w"], [[0.3], [-0.2]])
    for again, other in Threads(size, 3).run(work, name):
        np.testing.assert_allclose(again["w"], weights["w"], rtol=1e-12)
        assert other == pytest.approx(said, rel=1e-9)
