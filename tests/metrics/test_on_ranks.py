"""Metrics that count samples give on several ranks what they give in one process, on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deep500.frameworks.reference as d5fw
from deep500.distributed import Communicator, Serial, Threads, schemes
from deep500.distributed.sampler import DistributedSampler
from deep500.metrics import DatasetBias, TestAccuracy, TopKAccuracy
from deep500.networks import add_loss, create
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler
from deep500.training.trainer import Trainer

CLASSES, SAMPLES, BATCH = 4, 41, 10  # the last batch has one sample: all ranks but one have no share of it
WHOLE = np.random.default_rng(0).random((SAMPLES, 6), np.float32)
LABELS = np.random.default_rng(1).choice(CLASSES, SAMPLES, p=[0.5, 0.2, 0.2, 0.1])


def measured_on(
    comm: Communicator, scheme: str = "ConsistentDecentralized", rate: float = 0.0, ema: Any = None
) -> dict[str, Any]:
    """What this rank's metrics say after two epochs."""
    executor = d5fw.from_model(add_loss(create("mlp", shape=(6,), classes=CLASSES, hidden=(8,))))
    optimizer = getattr(schemes, scheme)(d5fw.GradientDescent(executor, "loss", lr=rate), comm)
    whole = OrderedSampler(NumpyDataset(WHOLE, "input", LABELS), BATCH, drop_last_batch=False)
    shares = [DistributedSampler(whole, comm.rank, comm.size) for _ in range(2)]
    top, first, bias = TopKAccuracy(2), TopKAccuracy(1), DatasetBias(CLASSES)
    statistics = Trainer(*shares, executor, optimizer, ema=ema).run(2, [top, first, bias])
    values = {"top": top.measure(statistics), "bias": bias.measure(statistics), "first": first.measure(statistics)}
    return {**values, "counts": bias.details, "accuracy": TestAccuracy().measure(statistics)}


@pytest.mark.parametrize("size", [2, 3, 5])
def test_counts_are_those_of_one_process(size: int) -> None:
    alone, all_ranks = measured_on(Serial()), Threads(size, 1).run(measured_on)
    assert alone["counts"] == {str(c): 2 * int((LABELS == c).sum()) for c in range(CLASSES)}
    assert alone["bias"] < 0.05 and 0 < alone["first"] < alone["top"] < 100
    assert all_ranks == [alone] * size


@pytest.mark.parametrize("scheme", ["InconsistentDecentralized", "LocalSGD"])
def test_the_model_that_is_judged_is_the_one_that_was_validated(scheme: str) -> None:
    """Where ranks differ in parameters, that is their mean."""
    for rank in Threads(3, 2).run(measured_on, scheme, 0.5):
        assert rank["first"] == rank["accuracy"]


def test_with_averages_every_metric_judges_the_averages() -> None:
    """The raw weights, 2 epochs on, are right elsewhere."""
    raw, alone = measured_on(Serial(), rate=0.5), measured_on(Serial(), rate=0.5, ema=0.99)
    assert alone["first"] == alone["accuracy"] != raw["first"]
    for rank in Threads(2, 1).run(measured_on, "ConsistentDecentralized", 0.5, 0.99):
        assert rank["first"] == rank["accuracy"]


def refused_elsewhere(comm: Communicator) -> tuple[float | None, str]:
    """Only rank 1 has samples to judge, and k is too large for the four classes."""
    executor = d5fw.from_model(add_loss(create("mlp", shape=(6,), classes=CLASSES)))
    optimizer = schemes.ConsistentDecentralized(d5fw.GradientDescent(executor, "loss", lr=0.0), comm)
    train = DistributedSampler(OrderedSampler(NumpyDataset(WHOLE, "input", LABELS), BATCH), comm.rank, comm.size)
    test = OrderedSampler(NumpyDataset(WHOLE[:2], "input", LABELS[:2]), 2)
    metric = TopKAccuracy(5)
    share = DistributedSampler(test, 0 if comm.rank == 1 else None, 1)
    statistics = Trainer(train, share, executor, optimizer).run(1, [metric])
    return metric.measure(statistics), metric.reason


def test_all_ranks_refuse_together() -> None:
    """A rank that left before the sum would let the others wait for it."""
    first, second = Threads(2).run(refused_elsewhere)
    assert first == (None, "the scores of other ranks (1) cannot be judged")
    assert second[0] is None and "k=5" in second[1]
