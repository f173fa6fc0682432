"""LoadGen's scenarios against closed forms: M/D/1 waiting times, batches, rates."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.measure.scenarios import largest_rate, multi_stream, offline, server, single_stream


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
    def serve(rate):
        machine = Machine(0.01)
        return server(machine.answer, 5000, rate, clock=machine.clock, sleep=machine.sleep)

    rate = largest_rate(serve, bound=0.05, low=1, high=1000)
    assert serve(rate).percentile(0.99).high <= 0.05 < serve(rate * 1.1).percentile(0.99).high
    assert largest_rate(serve, bound=0.001, low=1, high=1000) is None


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
