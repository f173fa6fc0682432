"""What is called a result is one: faults that once passed are red, honest series pass, coverage is as promised."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.measure import Budget, Plan, Target, measure, over_launches, quantile
from deep500.measure.standing import coarse, headline, likely_cause, ties, worth_needed
from deep500.measure.steady import DRIFTING, SHIFTING, SteadyState, find_steady_state
from tests.benchmarks.standing import row
from tests.measure.processes import PROCESSES
from tests.measure.test_sampling import measure_fake

TRIALS = 100


def judged(samples):
    steady = find_steady_state(samples)
    return steady, quantile(samples[steady.cut :], steady=steady)


def noisy(rng, shape):
    return shape * np.exp(rng.uniform(0.02, 0.05) * rng.standard_normal(shape.size))


FAULTS = {
    "drift of 10 %": lambda rng: noisy(rng, np.linspace(1, 1.1, 300)),
    "step of 10 % at half": lambda rng: noisy(rng, np.repeat([1.0, 1.1], 150)),
    "step of 30 % down at half": lambda rng: noisy(rng, np.repeat([1.3, 1.0], 150)),
    "step that is undone": lambda rng: noisy(rng, np.repeat([1.0, 1.1, 1.0], 100)),
    "AR(.98)": lambda rng: PROCESSES["AR(.98)"](rng, 1000),
    "random walk": lambda rng: PROCESSES["random walk"](rng, 300),
    "ten samples": lambda rng: rng.lognormal(0, 1, 10),
    "thirty samples": lambda rng: rng.lognormal(0, 1, 30),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_old_faults_are_observations_and_say_why(kind):
    rng = np.random.default_rng(5)
    found = [judged(FAULTS[kind](rng))[1] for _ in range(TRIALS)]
    assert np.mean([estimate.low is not None for estimate in found]) <= 0.05
    assert all(estimate.reason and estimate.high is None for estimate in found if estimate.low is None)


# (process, n): share of series that must be given an interval of the median, at least
HONEST = {
    ("lognormal", 100): 0.85,
    ("bimodal", 300): 0.95,
    ("Pareto 1.5", 300): 0.93,
    ("AR(.5)", 300): 0.87,
    ("square wave", 1000): 0.0,
    ("M/M/1", 1000): 0.0,
}


@pytest.mark.parametrize(("process", "n"), HONEST)
def test_honest_series_are_results_and_cover(process, n):
    found = row(process, n, 200, quantiles=(0.5,))
    for cell in found.cells.values():
        assert cell.share >= HONEST[process, n] and cell.holds, f"{cell}"


def test_tails_need_more():
    rng = np.random.default_rng(0)
    series = rng.lognormal(0, 1, 2000)
    for q, n in ((0.5, 50), (0.9, 139), (0.99, 1263)):
        assert quantile(series[: n - 1], q).reason.endswith(f"{n} are needed")
        assert np.ceil(worth_needed(q)) == n and quantile(series[:2000], q).low is not None


def test_a_plan_can_only_demand_more():
    series = np.random.default_rng(0).lognormal(0, 1, 100)
    assert quantile(series, min_neff=0).low is not None and quantile(series[:40], min_neff=0).low is None
    assert quantile(series, min_neff=200).low is None


def test_the_places_where_the_level_changes_are_found_and_said():
    rng = np.random.default_rng(1)
    for _ in range(20):
        steady, estimate = judged(noisy(rng, np.repeat([1.0, 1.2, 1.0], [300, 100, 200])))
        assert not steady.is_steady and estimate.low is None
        assert all(min(abs(place - true) for place in steady.changes) <= 20 for true in (300, 400)), str(steady)
        assert judged(noisy(rng, np.repeat([1.0, 1.2, 1.0, 1.3], [200, 100, 200, 100])))[1].low is None
    assert "new levels from sample" in estimate.reason
    assert judged(noisy(rng, np.linspace(1, 1.3, 600)))[0].state == DRIFTING
    assert judged(noisy(rng, np.repeat([1.0, 1.05, 1.0], 200)))[0].state == SHIFTING


def test_dependence_alone_is_no_change_of_level():
    rng = np.random.default_rng(2)
    for process, n in (("AR(.5)", 300), ("AR(.7), spikes", 300), ("lognormal", 1000), ("AR(.9)", 1000)):
        assert np.mean([judged(PROCESSES[process](rng, n))[0].is_steady for _ in range(TRIALS)]) >= 0.95


def test_a_warm_up_that_may_be_a_regime_is_no_result():
    shape = np.repeat([1.3, 1.0], [60, 140])
    steady, estimate = judged(noisy(np.random.default_rng(0), shape))
    assert steady.is_steady and steady.cut == 60
    assert estimate.reason == "warm-up took 60 of 200 samples, more than a quarter"
    assert judged(noisy(np.random.default_rng(0), np.repeat([1.3, 1.0], [60, 240])))[1].low is not None


def test_few_launches_need_each_of_them_to_be_long_enough_and_many_do_not():
    rng = np.random.default_rng(3)
    launches = [rng.lognormal(0, 0.05, 200) for _ in range(3)]
    assert over_launches(launches).standing == "result within 3 launches"
    found = over_launches([*launches, rng.lognormal(0, 0.05, 20)])
    assert found.standing == "observation" and found.reason.startswith("launch 4: 20 samples of a time series")
    assert over_launches([rng.lognormal(0, 0.05, 5) for _ in range(8)]).standing == "result"


def test_over_launches_most_of_them_must_be_steady():
    rng = np.random.default_rng(4)
    flat, rising = np.ones(200), np.linspace(1, 1.3, 200)
    few = over_launches([noisy(rng, flat) for _ in range(5)] + [noisy(rng, rising) for _ in range(3)])
    most = over_launches([noisy(rng, flat) for _ in range(3)] + [noisy(rng, rising) for _ in range(5)])
    assert few.standing == "result" and most.standing == "observation" and "4, 5, 6, 7, 8" in most.reason


def test_sampling_goes_on_until_the_rule_is_content():
    slow = PROCESSES["AR(.9)"](np.random.default_rng(6), 20_000)
    found, _ = measure_fake(slow, Plan((Target(0.5, 0.95, 0.2),), Budget(max_s=1e9)))
    assert found.reached and found.estimates[0].low is not None
    assert found.samples.size >= 500 and 50 <= found.estimates[0].n_eff  # at 30 samples it was precise already


def test_a_coarse_clock_is_named():
    rough = np.round(np.random.default_rng(0).normal(1, 0.05, 300), 2)
    found, _ = measure_fake(rough, Plan(budget=Budget(max_n=300, max_s=1e9)))
    assert found.reached and any(problem.startswith("coarse clock: ") for problem in found.problems)
    assert not coarse(ties(np.random.default_rng(0).normal(1, 0.05, 300)))
    assert not coarse(ties(np.ones(100)))  # of which nothing is known but that nothing varies


def test_a_missed_precision_is_in_the_headline_with_its_cause():
    rng = np.random.default_rng(7)
    wave = PROCESSES["AR(.9)"](rng, 500)
    assert likely_cause(wave, 500, 15.0).startswith("autocorrelation (tau 15: 500 samples are worth 33)")
    assert likely_cause(PROCESSES["bimodal"](rng, 300), 300, 1.0).startswith("2 speeds")
    assert likely_cause(rng.lognormal(0, 1, 300), 300, 1.0).startswith("spread")
    assert likely_cause(rng.normal(1, 0.01, 300), 300, 1.0, 0.2).startswith("launches differ")
    assert headline("result", 0.04, 0.05) == "result" and headline("result", 0.06, 0.05).startswith("result, precision")
    found, _ = measure_fake(rng.lognormal(0, 1, 400), Plan(budget=Budget(max_n=300, max_s=1e9)))
    assert "likely cause: spread" in found.problems[0]


def test_many_places_are_counted_and_thirty_samples_are_no_result():
    assert "and 1 places more" in str(SteadyState(0, SHIFTING, changes=(1, 2, 3, 4, 5)))
    assert measure(lambda: None, Plan(budget=Budget(max_n=30))).estimates[0].low is None
