"""`measure` on a made-up clock: stopping, coverage of the sequential rule, and words for what went wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.measure import Budget, Plan, Target, measure
from deep500.measure.sampling import Judge, next_size
from tests.measure.test_quantiles import autoregressive


class FakeClock:
    """A clock that only moves when ``work`` is called, by the next of the given seconds."""

    def __init__(self, seconds):
        self.seconds, self.now, self.calls = seconds, 0, 0

    def __call__(self):
        return self.now

    def work(self):
        self.now += round(self.seconds[self.calls % len(self.seconds)] * 1e9)
        self.calls += 1


def measure_fake(seconds, plan):
    clock = FakeClock(seconds)
    return measure(clock.work, plan, clock=clock), clock


def test_stops_when_the_interval_is_tight_and_keeps_every_sample():
    seconds = np.exp(0.1 * np.random.default_rng(0).standard_normal(20_000))
    measurement, clock = measure_fake(seconds, Plan(budget=Budget(max_s=1e9)))
    assert measurement.reached and not measurement.problems
    assert measurement.estimates[0].precision <= 0.05 and measurement.estimates[0].n_eff >= 50
    assert clock.calls == measurement.samples.size < 400
    assert measurement.samples == pytest.approx(seconds[: clock.calls], abs=1e-9)


def test_says_what_was_not_reached():
    seconds = np.exp(np.random.default_rng(0).standard_normal(2000))
    plan = Plan(targets=(Target(rel=0.01), Target(0.99, level=0.95, rel=0.1)), budget=Budget(max_n=200, max_s=1e9))
    measurement, _ = measure_fake(seconds, plan)
    assert not measurement.reached and measurement.samples.size == 200
    assert "not reached: 1.0% wanted" in measurement.problems[0]
    assert "no interval" in measurement.problems[1] and measurement.estimates[1].low is None


def test_the_time_budget_ends_a_measurement():
    measurement, clock = measure_fake([1.0, 1.1, 0.9], Plan(budget=Budget(max_s=10.0)))
    assert clock.calls == 11 and not measurement.reached


def test_drift_is_no_result():
    measurement, _ = measure_fake(np.linspace(1, 2, 300), Plan(budget=Budget(max_n=300, max_s=1e9)))
    assert not measurement.reached and "no steady state" in measurement.problems[0]


def test_constant_samples_are_a_result():
    measurement, _ = measure_fake([0.5], Plan(budget=Budget(max_s=1e9)))
    assert measurement.reached and measurement.estimates[0].value == 0.5


def test_a_clock_that_goes_backwards_is_refused():
    ticks = iter([0, 10, 5])
    with pytest.raises(InputError, match="expected time to go forward"):
        measure(lambda: None, clock=lambda: next(ticks))


def test_a_timer_too_coarse_for_the_function_is_named():
    measurement = measure(lambda: None, Plan(budget=Budget(max_n=60)))
    assert any("5 % of a sample" in problem for problem in measurement.problems)


def test_the_device_is_waited_for_and_caches_can_be_cold():
    waits = []
    measurement = measure(
        lambda: None, Plan(budget=Budget(max_n=30), cold_bytes=1 << 16), synchronize=lambda: waits.append(1)
    )
    assert len(waits) == measurement.samples.size == 30


@pytest.mark.parametrize("phi", [0.0, 0.7, 0.9])
def test_sequential_stopping_covers(phi):
    rng, trials, covered, sizes = np.random.default_rng(3), 150, 0, []
    truth = np.median(autoregressive(rng, 1_000_000, 0.0))
    plan = Plan(targets=(Target(rel=0.15),), budget=Budget(max_n=4000))
    for _ in range(trials):
        judge, size, series = Judge(plan), 30, autoregressive(rng, 4000, phi)
        while True:
            _, (estimate,), enough = judge(series[:size])
            if enough or size == 4000:
                break
            size = min(4000, next_size(size))
        covered += estimate.low <= truth <= estimate.high
        sizes.append(size)
    assert covered / trials >= 0.97
    oracle = max(50, (2.576 * 1.2533 * 0.3 / 0.15) ** 2) * (1 + phi) / (1 - phi)
    assert np.median(sizes) <= 3 * math.ceil(oracle)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Target(q=1.0),
        lambda: Target(rel=0),
        lambda: Budget(min_n=0),
        lambda: Budget(min_n=9, max_n=5),
        lambda: Plan(targets=()),
    ],
)
def test_impossible_plans_are_refused(wrong):
    with pytest.raises(InputError):
        wrong()
