"""Counted operations, their rate and their share of a roof, against a run whose figures are made up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from deep500.devices import CPUDevice, GPUDevice
from deep500.errors import InputError
from deep500.measure.bounds import Roofs
from deep500.metrics import FlopRate, Flops, RoofShare
from deep500.networks import Network, add_loss, create
from deep500.training.statistics import EpochRecord, TrainingStatistics

NETWORK = add_loss(create("mlp"))
STEP = NETWORK.flops(loss="loss").total
STATISTICS = TrainingStatistics(
    [EpochRecord(0, train_samples=100, train_seconds=1.0), EpochRecord(1, train_samples=300, train_seconds=1.0)]
)


def watched(metric, network=NETWORK, device=None):
    executor = SimpleNamespace(network=network, device=device or CPUDevice())
    metric.before_run(SimpleNamespace(executor=executor, optimizer=SimpleNamespace(loss="loss"), epoch=0))
    return metric


def test_flops_are_the_graphs():
    forward, step = watched(Flops()), watched(Flops("step"))
    assert forward.measure(STATISTICS) == NETWORK.flops().total and step.measure(STATISTICS) == STEP
    assert sum(step.details.values()) == STEP and "Gemm" in step.details
    assert (forward.name, step.name, forward.unit) == ("forward_flops", "step_flops", "FLOP/sample")
    with pytest.raises(InputError, match="'forward' or 'step'"):
        Flops("backward")


def test_what_cannot_be_counted_is_named():
    network = Network()
    network.add_input("x", ("N", 3))
    network.add_node("Foo", "x", "y", domain="mine", name="own")
    network.add_output("y")
    metric = watched(Flops(), network)
    assert metric.measure(STATISTICS) is None and metric.reason == "cannot count own (Foo)"
    step = watched(Flops("step"), network)
    assert step.measure(STATISTICS) is None and step.reason.startswith("cannot count the operations: ")
    assert Flops().measure(STATISTICS) is None


def test_rate_and_share_of_the_roof():
    rate, share = watched(FlopRate()), watched(RoofShare(Roofs(flops=STEP * 1000.0, bandwidth=1e9)))
    assert rate.measure(STATISTICS) == pytest.approx(STEP * 200)
    assert share.measure(STATISTICS) == pytest.approx(20)
    assert share.details["measured"] is False and share.details["roof_FLOP/s"] == STEP * 1000
    assert rate.measure(TrainingStatistics([EpochRecord(0)])) is None and "not measured" in rate.reason


def test_the_roof_of_a_processor_is_measured_and_that_of_a_gpu_is_asked_for(monkeypatch):
    monkeypatch.setattr("deep500.metrics.work.measure_roofs", lambda: Roofs(STEP * 400.0, 1e9))
    share = watched(RoofShare())
    assert share.measure(STATISTICS) == pytest.approx(50) and share.details["measured"] is True
    share = watched(RoofShare(), device=GPUDevice())
    assert share.measure(STATISTICS) is None and share.reason == "the roof of gpu:0 is not known: give roofs=Roofs(...)"


def test_more_than_the_roof_cannot_be():
    share = watched(RoofShare(Roofs(STEP * 100.0, 1e9)))
    assert share.measure(STATISTICS) is None and "exceed the roof" in share.reason


@pytest.mark.backend("pytorch")
@pytest.mark.parametrize("of", ["forward", "step"])
def test_a_module_of_the_users_own_is_no_graph_to_count(of):
    import torch

    import deep500.frameworks.pytorch as d5fw

    metric = Flops(of)
    executor = d5fw.from_native(torch.nn.Linear(4, 3), torch.zeros(1, 4))
    metric.before_run(SimpleNamespace(executor=executor, optimizer=SimpleNamespace(loss="loss"), epoch=0))
    assert metric.measure(STATISTICS) is None and metric.reason.startswith("cannot count")
