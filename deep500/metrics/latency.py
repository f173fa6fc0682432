"""Latency of one step or one query: percentiles, not means, since a user waits for the slow ones too."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from typing import Any

from deep500.errors import InputError
from deep500.measure.quantiles import Estimate, quantile
from deep500.measure.scenarios import largest_rate, multi_stream, offline, server, single_stream
from deep500.measure.standing import worth_needed
from deep500.measure.steady import find_steady_state
from deep500.metrics.base import Direction, Kind, ObservingMetric, ProbingMetric

WARM_UP = 5
"""Queries before the first that counts: compilation and caches."""


class StepLatency(ObservingMetric):
    """A percentile of the time of a training step, from loading its batch until the device has finished.

    Warm-up is cut off (MSER-5); a series that drifts, or that is too short for the percentile's interval, is not
    measured. Waiting for the device after every step keeps the CPU from working ahead: measure speed without it.

    Args:
        q: which percentile, between 0 and 1.
        level: of the interval, which ``details`` has.
        clock: nanoseconds.
    """

    unit, direction, kind = "s", "lower", "cost"

    def __init__(self, q: float = 0.5, level: float = 0.95, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.q, self.level, self._clock = _percentile(q), level, clock
        self.name = f"step_latency_p{100 * q:g}"
        self._durations, self._begin = array("q"), 0

    def before_batch(self, run: Any) -> None:
        """A step begins."""
        self._begin = self._clock()

    def after_batch(self, run: Any) -> None:
        """A step ends when the device has finished."""
        run.executor.synchronize()
        self._durations.append(self._clock() - self._begin)

    def measure(self, statistics: Any) -> float | None:
        """The percentile of all steps after the warm-up."""
        if not self.observed():
            return None
        seconds = [duration / 1e9 for duration in self._durations]
        if not seconds:
            self.reason = "no step was taken"
            return None
        steady = find_steady_state(seconds)
        if not steady.is_steady:
            self.reason = f"no steady state: {steady.state}"
            return None
        value, self.details, self.reason = _report(quantile(seconds[steady.cut :], self.q, self.level, steady=steady))
        self.details["warm_up"] = steady.cut
        return value


class InferenceLatency(ProbingMetric):
    """A percentile of the time that a query takes of the trained network, in one of LoadGen's scenarios.

    Args:
        scenario: ``"single_stream"`` (p90), ``"multi_stream"`` (p99 of queries of ``samples`` samples) or ``"server"``
            (p99 of queries that arrive at random, ``rate`` times a second; the time in the queue counts).
        q: another percentile than the scenario's.
        queries: how many; half as many again as the percentile needs by default, 600 at least. More are needed where
            latencies depend on each other, as in a queue.
        samples: in each query of the multi-stream scenario.
        rate: arrivals per second in the server scenario.
        seed: of the arrivals.
        clock: nanoseconds.

    Raises:
        InputError: an unknown scenario, the server scenario without a rate, or a number out of range.
    """

    unit, direction, kind = "s", "lower", "cost"
    USUAL = {"single_stream": 0.9, "multi_stream": 0.99, "server": 0.99}  # noqa: RUF012 - a table

    def __init__(
        self,
        scenario: str = "single_stream",
        q: float | None = None,
        queries: int | None = None,
        samples: int = 8,
        rate: float | None = None,
        seed: int = 0,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        if scenario not in self.USUAL:
            raise InputError(f"got scenario {scenario!r}; expected one of {', '.join(self.USUAL)}: choose one")
        self.q = _percentile(self.USUAL[scenario] if q is None else q)
        queries = max(600, math.ceil(1.5 * worth_needed(self.q))) if queries is None else queries
        if (scenario == "server") != (rate is not None) or queries < 1 or samples < 1:
            raise InputError(
                f"got scenario {scenario!r} with rate={rate}, queries={queries}, samples={samples}; expected a rate "
                "for the server scenario alone, and numbers of at least 1: give them so"
            )
        self.scenario, self.queries, self.rate, self.seed, self._clock = scenario, queries, rate, seed, clock
        self.samples = samples if scenario == "multi_stream" else 1
        self.name = f"{scenario}_p{100 * self.q:g}"

    def measure(self, statistics: Any) -> float | None:
        """The percentile; ``details`` has its interval and the throughput."""
        answer = _answer(self, self.samples)
        if answer is None:
            return None
        if self.scenario == "single_stream":
            served = single_stream(answer, self.queries, self._clock)
        elif self.scenario == "multi_stream":
            served = multi_stream(answer, self.queries, self.samples, self._clock)
        else:
            served = server(answer, self.queries, self.rate or 0.0, self.seed, self._clock)
        value, self.details, self.reason = _report(served.percentile(self.q))
        self.details["samples_per_second"] = served.throughput
        return value


class OfflineThroughput(ProbingMetric):
    """Samples per second of the trained network when all are there at once: LoadGen's offline scenario.

    Args:
        batch: samples in each run of the network.
        samples: how many in all.
        clock: nanoseconds.
    """

    name, unit = "offline_throughput", "samples/s"
    direction: Direction = "higher"
    kind: Kind = "rate"

    def __init__(self, batch: int = 32, samples: int = 2048, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        if batch < 1 or samples < 1:
            raise InputError(f"got batch={batch}, samples={samples}; expected at least 1 of each: pass larger numbers")
        self.batch, self.samples, self._clock = batch, -(-samples // batch) * batch, clock

    def measure(self, statistics: Any) -> float | None:
        """The rate, over whole batches."""
        answer = _answer(self, self.batch)
        if answer is None:
            return None
        served = offline(answer, self.samples, self.batch, self._clock)
        self.details = {"samples": served.samples, "seconds": served.seconds, "batch": self.batch}
        return served.throughput


class ServerRate(ProbingMetric):
    """The most queries per second whose p99 of latency is surely within a bound: LoadGen's server scenario.

    Args:
        bound: seconds.
        low, high: queries per second between which to search, on a logarithmic scale.
        queries: at each rate that is tried.
        steps: how often to halve the range.
        seed: of the arrivals.
        clock: nanoseconds.
        sleep: waits a number of seconds.
    """

    unit, direction, kind = "queries/s", "higher", "rate"

    def __init__(
        self,
        bound: float,
        low: float = 1.0,
        high: float = 10_000.0,
        queries: int = 600,
        steps: int = 8,
        seed: int = 0,
        clock: Callable[[], int] = time.perf_counter_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (bound > 0 and 0 < low < high and queries >= 1):
            raise InputError(
                f"got bound={bound}, low={low}, high={high}, queries={queries}; expected positive numbers, low < high"
            )
        self.bound, self.low, self.high, self.queries = bound, low, high, queries
        self.steps, self.seed, self._clock, self._sleep = steps, seed, clock, sleep
        self.name = f"server_rate_{bound:g}s"

    def measure(self, statistics: Any) -> float | None:
        """The rate, None if the lowest already misses the bound; ``details`` says where n was too small to tell."""
        answer = _answer(self, 1)
        if answer is None:
            return None
        largest = largest_rate(
            lambda rate, longer: server(answer, longer * self.queries, rate, self.seed, self._clock, self._sleep),
            self.bound,
            self.low,
            self.high,
            steps=self.steps,
        )
        self.details = {"misses": largest.misses, "undecided": largest.undecided}
        self.reason = "" if largest.rate is not None else str(largest)
        return largest.rate


def _answer(metric: ProbingMetric, samples: int) -> Callable[[int], object] | None:
    """A function that answers one query of ``samples`` samples; None, and the metric's reason, where there is none."""
    batch = metric.first(samples) if metric.ready() else None
    if batch is None:
        return None
    executor, output = metric.run.executor, metric.run.trainer.network_output
    outputs = None if output is None else [output]

    def answer(_: int) -> None:
        executor.inference(batch, outputs)
        executor.synchronize()

    for _ in range(WARM_UP):
        answer(samples)
    return answer


def _percentile(q: float) -> float:
    if not 0 < q < 1:
        raise InputError(f"got percentile {q}; expected a number between 0 and 1: the median is 0.5")
    return q


def _report(estimate: Estimate) -> tuple[float | None, dict[str, Any], str]:
    """Value, what is behind it, and why there is none."""
    about = {
        "low": estimate.low,
        "high": estimate.high,
        "level": estimate.level,
        "n": estimate.n,
        "n_eff": estimate.n_eff,
    }
    if estimate.low is None:
        return None, about, f"no p{100 * estimate.q:g}: {estimate.reason}"
    return estimate.value, about, ""
