"""The meta-layer's share of a step: a clock that time is made up for, and every backend's executor."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import deep500.frameworks.reference as d5ref
from deep500 import run_recipe
from deep500.errors import InputError
from deep500.metrics import FrameworkOverhead, TestAccuracy
from deep500.networks import Network, add_loss
from deep500.networks.execution.capabilities import ClocksFramework
from deep500.networks.execution.framework_clock import FrameworkClock
from deep500.results import Record
from deep500.results.verify import verify
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import OrderedSampler


class Slow:
    """An executor whose step takes a known time in its framework and a known time around it."""

    def __init__(self, inside: float, around: float) -> None:
        self.inside, self.around, self.clock = inside, around, FrameworkClock()

    def inference_and_backprop(self, inputs, loss):
        time.sleep(self.around)
        self.clock.timed(time.sleep)(self.inside)

    def synchronize(self):
        pass


def test_a_clock_adds_up_what_is_called_through_it():
    slow = Slow(0.02, 0.01)
    step = slow.clock.step(slow, {}, "loss")
    assert slow.clock.calls == 1
    assert step.inside >= 0.02 and step.seconds >= step.inside + 0.01


def network():
    """With running statistics, which every step in training mode moves."""
    net = Network("small")
    net.add_input("input", ("N", 16), np.float32)
    rng = np.random.default_rng(0)
    net.add_parameter("w", rng.standard_normal((16, 4)).astype(np.float32))
    net.add_node("MatMul", ["input", "w"], ["h"])
    for name, value in (("scale", 1), ("shift", 0), ("mean", 0), ("variance", 1)):
        trainable = name in ("scale", "shift")
        net.add_parameter(name, np.full(4, value, np.float32), trainable=trainable)
    net.add_node("BatchNormalization", ["h", "scale", "shift", "mean", "variance"], ["output"])
    net.add_output("output")
    return add_loss(net)


def fetched(executor, names):
    return [np.array(executor.network.to_numpy(tensor)) for tensor in executor.network.fetch_tensors(names)]


def test_a_clocked_step_is_a_step(backend):
    """It leaves the gradients that the plain step leaves, spends time inside, and no clock is left behind."""
    executor, net = backend.from_model(network()), network()
    batch = {"input": np.random.default_rng(0).random((4, 16), np.float32), "label": np.arange(4)}
    names = [gradient for _, gradient in net.gradient("loss")]
    executor.inference_and_backprop(batch)
    expected = fetched(executor, names)
    executor.clocked_step(batch)
    step = executor.clocked_step(batch)
    assert len(names) == 3 and all(map(np.array_equal, expected, fetched(executor, names)))
    assert 0 < step.inside < step.seconds
    assert isinstance(executor, ClocksFramework)


def test_the_metric_tells_both_shares_and_leaves_no_trace(backend):
    executor = backend.from_model(network())
    statistics = ["mean", "variance"]
    batches = list(sampler())
    run = SimpleNamespace(executor=executor, trainer=SimpleNamespace(loss="loss"), epoch=0, inputs=dict(batches[0]))
    metric = FrameworkOverhead(steps=8)
    metric.before_run(run)
    metric.after_batch(run)
    for array in run.inputs.values():
        array[...] = 0  # as a loader does that uses its memory again
    run.inputs = batches[1]
    metric.after_batch(run)
    assert all(map(np.array_equal, metric._inputs.values(), next(iter(sampler())).values()))
    before = fetched(executor, ["w", *statistics])
    value, details = metric.measure(None), metric.details
    assert value is not None and 0 < value < 100, metric.reason
    assert details["low"] <= value <= details["high"] and details["n"] == 8
    assert 0 < details["own_seconds"] and 0 < details["over_framework"]
    assert all(map(np.array_equal, before, fetched(executor, ["w", *statistics])))
    executor.inference_and_backprop(next(iter(sampler())))
    assert not np.array_equal(before[1], fetched(executor, ["mean"])[0])  # such steps do move it


def sampler():
    rng = np.random.default_rng(0)
    return OrderedSampler(NumpyDataset(rng.random((48, 16), np.float32), "input", np.arange(48) % 4), 16)


def test_what_cannot_be_told_has_its_reason():
    metric = FrameworkOverhead()
    assert metric.measure(None) is None and metric.reason == "it did not watch a run"
    run = SimpleNamespace(
        executor=SimpleNamespace(backend="other", network=network()),
        trainer=SimpleNamespace(),
        epoch=0,
        inputs={"input": 1},
    )
    metric.before_run(run)
    assert metric.measure(None) is None and metric.reason == "no step was watched"
    metric.after_batch(run)
    assert metric.measure(None) is None and metric.reason == "other has no clock around its framework's calls"


@pytest.mark.parametrize("wrong", [{"steps": 1}, {"seconds": 0.0}])
def test_too_little_to_measure_is_refused(wrong):
    with pytest.raises(InputError, match="expected at least two steps"):
        FrameworkOverhead(**wrong)


def test_every_report_says_it_unasked(tmp_path):
    fixed = {"model": "mlp", "dataset": "digits", "epochs": 1, "batch_size": 128}
    mutable = {"executor": d5ref.from_model, "optimizer": d5ref.GradientDescent, "optimizer_kwargs": {"lr": 0.1}}
    result = run_recipe(fixed, mutable | {"seed": 0}, [(TestAccuracy(), 0.0)], argv=["--out", str(tmp_path)])
    noted = Record.open(Path(result.path)).seed_notes(0)["framework_overhead"]["details"]
    assert noted["n"] >= 6 and noted["low"] <= noted["percent"] <= noted["high"]
    said = f"{noted['percent']:.2g} % [{noted['low']:.2g}, {noted['high']:.2g}] of forward and backward is Deep500"
    assert said in Path(result.report).read_text() and verify(Path(result.path)) == []
    assert [metric.name for metric in result.metrics] == ["test_accuracy"]
