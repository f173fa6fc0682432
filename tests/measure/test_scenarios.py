"""LoadGen's scenarios against closed forms: M/D/1 waiting times, batches, rates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from deep500.errors import InputError
from deep500.measure.scenarios import (
    Served,
    largest_rate,
    meets,
    most_beyond,
    multi_stream,
    offline,
    queries_needed,
    server,
    single_stream,
)
from tests.measure.processes import PROCESSES, truth


class Machine:
    """A machine that takes a fixed time per sample, and its own clock."""

    def __init__(self, seconds, per_query=0.0):
        self.now, self.seconds, self.per_query = 0, seconds, per_query

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += round(seconds * 1e9) + 1

    def answer(self, samples):
        self.now += round((self.per_query + samples * self.seconds) * 1e9)


def test_streams_and_batches():
    machine = Machine(0.01, per_query=0.02)
    single = single_stream(machine.answer, 100, machine.clock)
    assert single.latencies == pytest.approx(np.full(100, 0.03)) and single.throughput == pytest.approx(1 / 0.03)
    multi = multi_stream(machine.answer, 50, 8, machine.clock)
    assert multi.percentile(0.5).value == pytest.approx(0.1) and multi.throughput == pytest.approx(80)
    whole = offline(machine.answer, 100, 32, machine.clock)
    assert whole.seconds == pytest.approx(4 * 0.02 + 1.0) and whole.latencies[0] == pytest.approx(0.34)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_a_server_waits_as_queueing_theory_says(load):
    """M/D/1: the mean wait is load / (2 (1 - load)) service times (Pollaczek and Khinchine)."""
    machine = Machine(0.01)
    result = server(machine.answer, 40_000, load / 0.01, seed=1, clock=machine.clock, sleep=machine.sleep)
    waiting = result.latencies.mean() - 0.01
    assert waiting == pytest.approx(0.01 * load / (2 * (1 - load)), rel=0.1)
    assert result.throughput == pytest.approx(load / 0.01, rel=0.02)


def test_an_overloaded_server_falls_behind():
    machine = Machine(0.01)
    result = server(machine.answer, 1000, 200, clock=machine.clock, sleep=machine.sleep)
    assert result.latencies[-1] > 3 and result.throughput == pytest.approx(100, rel=0.02)


def test_the_largest_rate_within_a_bound():
    """M/M/1: the 99th percentile of latency is log(100) / (1 / 10 ms - rate), so 77 a second have one of 200 ms."""
    limit, bound = 77.0, np.log(100) / (100 - 77.0)
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)

        def serve(rate, longer, rng=rng, seed=seed):
            machine = Machine(0.01)

            def answer(samples):
                machine.now += round(1e9 * rng.exponential(0.01))

            return server(answer, 5000 * longer, rate, seed, clock=machine.clock, sleep=machine.sleep)

        found.append(largest_rate(serve, bound, low=1, high=1000))
    assert all(0.7 * limit <= one.rate <= limit <= one.misses <= 2.5 * limit for one in found)
    assert all(one.undecided is None or one.rate < one.undecided < one.misses for one in found)
    none = largest_rate(serve, bound=0.0001, low=1, high=1000)
    assert none.rate is None and none.misses == 1 and str(none) == "no rate surely meets the bound, 1/s surely does not"


def test_too_few_queries_neither_meet_nor_miss_a_bound():
    few = Served("server", np.full(100, 0.01), 100, 1.0)
    assert meets(few, 0.1) is None and meets(few, 0.1, q=0.9) is True and meets(few, 0.001) is False
    found = largest_rate(lambda rate, longer: few, bound=0.1, low=1, high=10)
    assert (found.rate, found.misses, found.undecided) == (None, None, 1) and "n too small to tell at 1/s" in str(found)


def test_a_bound_is_seldom_met_by_chance():
    """Of M/M/1 queues that miss a bound by a hair at most one in twenty is said to meet it; ignoring waves many are."""
    rng, q = np.random.default_rng(0), 0.9
    bound = truth("M/M/1", q) * 0.999
    runs = [Served("server", PROCESSES["M/M/1"](rng, 3000), 3000, 1.0) for _ in range(200)]
    naive = [binomtest(int((run.latencies > bound).sum()), 3000, 1 - q, "less").pvalue < 0.05 for run in runs]
    assert np.mean([meets(run, bound, q) is True for run in runs]) <= 0.07
    assert np.mean(naive) > 0.2, "the test does not bite"


@pytest.mark.parametrize(
    "scenario",
    [
        lambda clock: single_stream(at_once, 5, clock),
        lambda clock: offline(at_once, 9, 3, clock),
        lambda clock: server(at_once, 5, 100, clock=clock, sleep=at_once),
    ],
)
def test_a_clock_that_stands_still_or_goes_backwards_is_one_error(scenario):
    with pytest.raises(InputError, match=r"clock that stands still|0.0 s for [59] samples"):
        scenario(lambda: 7)
    readings = iter([10, 20, 30, *range(29, 0, -1)])
    with pytest.raises(InputError, match="-1 ns from the clock"):
        scenario(lambda: next(readings))


def at_once(_):
    """A query that is answered at once."""


def test_impossible_numbers_are_refused():
    with pytest.raises(InputError, match="rate=0"):
        server(print, 10, 0)
    with pytest.raises(InputError, match="queries=0"):
        single_stream(print, 0)


# -- LoadGen's early stopping -----------------------------------------------------------------------------------------
def test_fewest_queries_are_loadgens():
    """64 and 662 are what MLPerf's rules name for a single and a multiple stream."""
    assert queries_needed(1, 0.9) == 64 and queries_needed(1, 0.99) == 662


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("beyond", [0, 1, 2, 17, 100])
def test_one_query_fewer_is_not_enough(q, beyond):
    fewest = queries_needed(beyond, q)
    assert binom.cdf(beyond, fewest, 1 - q) <= 0.01 < binom.cdf(beyond, fewest - 1, 1 - q)
    assert most_beyond(fewest, q) == beyond and most_beyond(fewest - 1, q) == (beyond - 1 if beyond else None)


@pytest.mark.parametrize("count", [64, 200, 1000])
def test_the_bound_of_a_percentile_holds_in_99_percent(count):
    rng, true = np.random.default_rng(count), -np.log(0.1)
    bounds = [Served("single stream", rng.exponential(size=count), count, 1.0).upper_bound(0.9) for _ in range(400)]
    given = [bound for bound in bounds if bound is not None]
    assert len(given) > 0.5 * len(bounds) and np.mean([bound >= true for bound in given]) >= 0.98


def test_few_queries_have_no_bound():
    assert Served("single stream", np.random.default_rng(0).random(43), 43, 1.0).upper_bound(0.9) is None


def test_a_stream_lasts_its_least_duration_and_has_its_fewest_queries():
    machine = Machine(0.01)
    lasting = single_stream(machine.answer, 10, machine.clock, seconds=2.5)
    assert lasting.latencies.size == lasting.samples == 250 and lasting.seconds == pytest.approx(2.5)
    assert multi_stream(machine.answer, 300, 1, machine.clock, seconds=1.0).latencies.size == 300
    for wrong in (-1.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="least duration"):
            single_stream(machine.answer, 10, machine.clock, seconds=wrong)
    with pytest.raises(InputError, match="0 or more"):
        queries_needed(-1, 0.9)
