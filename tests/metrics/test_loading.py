"""Costs of data alone: latencies and rates of a loader whose times are known, and reasons where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500.errors import InputError
from deep500.metrics import DatasetLatency, LoaderThroughput
from tests.metrics.watched import train


class Ticking:
    """A clock that every batch moves by a time of its own, in nanoseconds; without noise nothing is a series."""

    def __init__(self, typical: int) -> None:
        self.now, self.typical = 0, typical
        self.rng = np.random.default_rng(0)

    def __call__(self) -> int:
        return self.now

    def transform(self, batch, rng):
        self.now += int(self.typical * (1 + 0.1 * self.rng.standard_normal()))
        return batch


def watched(metric, clock: Ticking):
    trainer, statistics = train(metric)
    trainer.train_sampler.add_transformation(clock.transform)
    clock.now = 0
    return trainer, statistics


@given(typical=st.integers(10_000, 10**8))
def test_latency_is_that_of_the_batches(typical):
    clock = Ticking(typical)
    metric = DatasetLatency(clock=clock)
    _, statistics = watched(metric, clock)
    value = metric.measure(statistics)
    assert value == pytest.approx(typical / 1e9, rel=0.1)
    assert metric.details["low"] <= value <= metric.details["high"]
    assert metric.details["first"] == pytest.approx(typical / 1e9, rel=0.5) and metric.details["n"] >= 50


def test_too_few_batches_are_no_percentile():
    clock = Ticking(1000)
    for metric in (DatasetLatency(0.99, batches=100, clock=clock), DatasetLatency(seconds=1e-5, clock=clock)):
        _, statistics = watched(metric, clock)
        assert metric.measure(statistics) is None and metric.reason.startswith("no p")
        assert metric.details["n"] <= 100 and metric.details["first"] > 0


def test_throughput_is_samples_over_time_and_the_sampler_stays_where_it_was():
    clock, cpu = Ticking(10**7), Ticking(1)
    metric = LoaderThroughput(100, clock=clock, cpu_clock=lambda: 2 * clock.now)
    trainer, statistics = watched(metric, clock)
    place = trainer.train_sampler.state()
    value = metric.measure(statistics)
    assert metric.details["samples"] == 112 and cpu.now == 0  # whole batches of 16
    assert value == pytest.approx(16 / 1e-2, rel=0.1) and value == pytest.approx(112 / metric.details["seconds"])
    assert metric.details["samples_per_cpu_second"] == pytest.approx(value / 2)
    assert metric.details["cpu_seconds_per_1000"] == pytest.approx(2000 / value)
    assert trainer.train_sampler.state() == place


@pytest.mark.parametrize("metric", [DatasetLatency(), LoaderThroughput()])
def test_no_sampler_no_number(metric):
    assert metric.measure(None) is None and metric.reason == "it did not watch a run"
    trainer, statistics = train(metric)
    trainer.train_sampler = iter([])
    assert metric.measure(statistics) is None and "makes no batches by (epoch, number)" in metric.reason


@pytest.mark.parametrize("wrong", [{"q": 1}, {"batches": 0}, {"seconds": 0}])
def test_bad_input(wrong):
    with pytest.raises(InputError, match="got q="):
        DatasetLatency(**wrong)
    with pytest.raises(InputError, match="got samples=0"):
        LoaderThroughput(0)
