"""Latencies against a device whose every answer takes a known time on a made-up clock."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.metrics import InferenceLatency, OfflineThroughput, ServerRate, StepLatency
from tests.metrics.watched import STEPS, TAKES, Clock, train, watch


class Served:
    """A run with a trained network that takes a fixed time, or the next of a list, when it is waited for."""

    def __init__(self, clock, seconds, fixed=None):
        self.clock, self.seconds, self.queries, self.sizes, pending = clock, seconds, 0, set(), []
        descriptor = SimpleNamespace(shape=(fixed or "N", 3))
        executor = SimpleNamespace(network=SimpleNamespace(inputs={"x": descriptor}))

        def inference(inputs, outputs):
            assert outputs == ["scores"]
            self.sizes.add(len(inputs["x"]))
            pending.append(self.seconds(self.queries) if callable(self.seconds) else self.seconds)
            self.queries += 1

        def synchronize():
            while pending:
                clock.now += pending.pop()

        executor.inference, executor.synchronize = inference, synchronize
        batches = [{"x": np.zeros((64, 3), np.float32), "label": np.zeros(64, int)}]
        trainer = SimpleNamespace(train_sampler=batches, validation_sampler=None, network_output="scores")
        self.run = SimpleNamespace(executor=executor, trainer=trainer, epoch=0)

    def measure(self, metric):
        metric.before_run(self.run)
        return metric.measure(None)


def test_step_latency_is_a_percentile_of_the_steps_after_the_warm_up():
    clock = Clock()
    metric = StepLatency(clock=clock.nanoseconds)
    statistics = watch(metric, clock=clock)
    assert metric.measure(statistics) == pytest.approx(sum(TAKES.values()) + 0.004)
    assert metric.details["n"] == STEPS and metric.name == "step_latency_p50"
    tail = StepLatency(0.99, clock=clock.nanoseconds)
    watch(tail, clock=clock)
    assert tail.measure(None) is None and tail.reason == "no p99: 60 samples of a time series, 1263 are needed"


def steps(metric, clock, durations):
    run = SimpleNamespace(executor=SimpleNamespace(synchronize=lambda: None), epoch=0)
    metric.before_run(run)
    for seconds in durations:
        metric.before_batch(run)
        clock.now += seconds
        metric.after_batch(run)
    return metric.measure(None)


def test_warm_up_is_cut_and_drift_is_no_number():
    random = np.random.default_rng(1)
    flat = 1 + 0.01 * random.standard_normal(500)
    clock = Clock()
    metric = StepLatency(clock=clock.nanoseconds)
    assert steps(metric, clock, [9.0, 8.0, 7.0, 6.0, 5.0, *flat]) == pytest.approx(np.median(flat), rel=2e-3)
    assert metric.details["warm_up"] >= 5 and metric.details["n"] == 505 - metric.details["warm_up"]
    assert metric.details["low"] < 1 < metric.details["high"]
    metric = StepLatency(clock=clock.nanoseconds)
    assert steps(metric, clock, flat + np.linspace(0, 1, 500)) is None and metric.reason.startswith("no steady state")
    metric = StepLatency(clock=clock.nanoseconds)
    assert steps(metric, clock, []) is None and metric.reason == "no step was taken"


@pytest.mark.parametrize(("scenario", "samples", "q"), [("single_stream", 1, 0.9), ("multi_stream", 8, 0.99)])
def test_stream_latency_is_the_scenarios_percentile(scenario, samples, q):
    clock, times = Clock(), np.random.default_rng(2).permutation(np.linspace(0.0005, 1.0, 2000))
    served = Served(clock, lambda number: 100.0 if number < 5 else times[number - 5])  # five to warm up
    metric = InferenceLatency(scenario, queries=2000, clock=clock.nanoseconds)
    assert served.measure(metric) == pytest.approx(q, abs=2e-3) and metric.name == f"{scenario}_p{100 * q:g}"
    assert served.sizes == {samples} and metric.details["low"] < q < metric.details["high"]
    assert metric.details["samples_per_second"] == pytest.approx(samples / times.mean())


def test_queue_counts_in_the_server_scenario(monkeypatch):
    """At 90 % load a queue of exponential arrivals and fixed service has a p99 far above the service time."""
    clock = Clock()

    def sleep(seconds):
        clock.now += seconds + 2e-9  # the clock rounds to nanoseconds

    monkeypatch.setattr("deep500.measure.scenarios.server.__defaults__", (0, clock.nanoseconds, sleep))
    latencies = {}
    for load in (0.1, 0.7, 0.9):
        metric = InferenceLatency("server", 0.5, queries=4000, rate=load / 0.01, clock=clock.nanoseconds)
        latencies[load] = Served(clock, 0.01).measure(metric)
    assert latencies[0.1] == pytest.approx(0.01, rel=0.1)
    assert latencies[0.7] > 1.2 * latencies[0.1]
    assert latencies[0.9] is None and "depend on each other" in metric.reason  # a wave lasts hundreds of queries


def test_offline_throughput_is_samples_over_seconds():
    clock = Clock()
    metric = OfflineThroughput(batch=32, samples=1000, clock=clock.nanoseconds)
    served = Served(clock, 0.5)
    assert served.measure(metric) == pytest.approx(64) and metric.details["samples"] == 1024
    assert served.sizes == {32}


def test_the_largest_rate_meets_the_bound_and_no_more():
    clock = Clock()

    def sleep(seconds):
        clock.now += seconds + 2e-9  # the clock rounds to nanoseconds

    def metric(bound):
        return ServerRate(bound, low=1, high=1000, queries=6000, steps=5, clock=clock.nanoseconds, sleep=sleep)

    rate = Served(clock, 0.01).measure(metric(0.05))
    assert 30 < rate < 95, "one worker serves 100 queries a second, and less if a hundredth may wait 40 ms at most"
    slow = metric(0.005)
    assert Served(clock, 0.01).measure(slow) is None and "1/s surely does not" in slow.reason


def test_what_cannot_be_asked_is_a_reason():
    metric = InferenceLatency()
    assert metric.measure(None) is None and metric.reason == "it did not watch a run"
    many = OfflineThroughput(batch=65)
    assert Served(Clock(), 1.0).measure(many) is None and "'x' comes in batches of 64, not of 65" in many.reason
    metric = InferenceLatency()
    assert Served(Clock(), 1.0, fixed=64).measure(metric) is None and "not of 1" in metric.reason


@pytest.mark.parametrize(
    "make",
    [
        lambda: StepLatency(1.0),
        lambda: InferenceLatency("burst"),
        lambda: InferenceLatency("server"),
        lambda: InferenceLatency(rate=3.0),
        lambda: InferenceLatency(queries=0),
        lambda: OfflineThroughput(batch=0),
        lambda: ServerRate(0.0),
        lambda: ServerRate(0.1, low=5, high=2),
    ],
)
def test_arguments_out_of_range_are_refused(make):
    with pytest.raises(InputError, match="expected"):
        make()


def test_a_trained_network_answers():
    single, whole = InferenceLatency(queries=50), OfflineThroughput(batch=8, samples=64)
    _, statistics = train(single, whole)
    assert whole.measure(statistics) > 0
    single.measure(statistics)  # on a busy machine fifty may be too few for an interval
    assert single.details["n"] == 50 and single.details["samples_per_second"] > 0
