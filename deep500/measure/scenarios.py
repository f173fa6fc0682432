"""Four ways in which queries reach a system, after MLPerf Inference's LoadGen: what latency means depends on them.

==================  ===================================================================  ==========================
scenario            queries                                                              headline
==================  ===================================================================  ==========================
``single_stream``   the next one is sent when the last one is answered                   90th percentile of latency
``multi_stream``    the same, with several samples in each query                         99th percentile of latency
``server``          they arrive by themselves (Poisson), whether or not the system keeps up  99th percentile at a rate
``offline``         all samples are there at once                                        samples per second
==================  ===================================================================  ==========================

A query's latency counts from its *arrival*: the time that it waits behind others is part of it. A clock that goes
backwards, or stands still where time must pass, is an InputError.

How many queries are enough is LoadGen's early stopping (:func:`queries_needed`), and a run lasts a least duration.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deep500.errors import InputError
from deep500.measure.dependence import longest_time
from deep500.measure.quantiles import Estimate, quantile
from deep500.measure.sampling import Clock

Answer = Callable[[int], object]
"""Runs one query of that many samples to its end."""
READINGS = 1_000_000
"""How often `server` reads the clock for what a sleep left over: 50 ms or more, several ticks of a coarse clock."""


@dataclass(frozen=True)
class Served:
    """The outcome of the queries of one scenario.

    Attributes:
        scenario: its name.
        latencies: seconds from arrival to answer, one per query, in order of arrival.
        samples: how many samples all queries held together.
        seconds: from the first arrival to the last answer.
        rate: arrivals per second that were asked for; None where the system sets the pace.
    """

    scenario: str
    latencies: np.ndarray
    samples: int
    seconds: float
    rate: float | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise InputError(
                f"got {self.seconds} s for {self.samples} samples; expected time to pass: use a finer clock"
            )

    @property
    def throughput(self) -> float:
        """Samples per second: all samples over all seconds."""
        return self.samples / self.seconds

    def percentile(self, q: float, level: float = 0.95) -> Estimate:
        """A percentile (0 < q < 1) of the latency with its interval, which widens where latencies hang together."""
        return quantile(self.latencies, q, level)

    def upper_bound(self, q: float, confidence: float = 0.99) -> float | None:
        """An upper bound of percentile ``q`` of the latency, as LoadGen states it; None if there are too few queries.

        The :func:`most_beyond` slowest queries are left out, and the slowest remaining one is the bound. A system whose
        percentile lies above it would look as good with a probability of at most ``1 - confidence``. LoadGen assumes
        independent queries; here their number is divided by the autocorrelation time, which raises the bound where they
        are not.

        Example:
            >>> latencies = np.random.default_rng(2).permutation(64) + 1.0
            >>> Served("single stream", latencies, 64, 1.0).upper_bound(0.9)
            63.0
        """
        tau = max(1.0, longest_time(self.latencies, q)[1])
        over = most_beyond(int(self.latencies.size / tau), q, confidence)
        if over is None:
            return None
        return float(np.sort(self.latencies)[self.latencies.size - 1 - int(over * tau)])

    def __str__(self) -> str:
        head = f"{self.scenario}: {self.throughput:.4g} samples/s"
        return "; ".join([head, *(f"p{q * 100:g} {self.percentile(q)} s" for q in (0.5, 0.9, 0.99))])


def queries_needed(beyond: int, q: float, confidence: float = 0.99) -> int:
    """The smallest number of queries that shows that percentile ``q`` is within a bound, if ``beyond`` are slower.

    LoadGen's early stopping (MLPerf Inference rules, appendix on early stopping): a system whose percentile lies just
    above the bound would have at most ``beyond`` slow queries with a probability of at most ``1 - confidence``.

    Example:
        >>> [queries_needed(beyond, q) for beyond, q in ((0, 0.9), (1, 0.9), (0, 0.99), (1, 0.99))]
        [44, 64, 459, 662]
    """
    _positive(q=q, confidence=confidence, **{"1 - q": 1 - q, "1 - confidence": 1 - confidence})
    if beyond < 0:
        raise InputError(f"got beyond={beyond}; expected a number of queries, 0 or more")

    def enough(queries: int) -> bool:
        most = most_beyond(queries, q, confidence)
        return most is not None and most >= beyond

    low, high = beyond, beyond + 1
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def most_beyond(queries: int, q: float, confidence: float = 0.99) -> int | None:
    """The largest number of slow queries that shows that percentile ``q`` is within a bound; None: too few queries.

    That is the largest t with ``P(Binomial(queries, 1 - q) <= t) <= 1 - confidence``.

    Example:
        >>> [most_beyond(queries, 0.9) for queries in (43, 44, 64, 23_886)]
        [None, 0, 1, 2280]
    """
    from scipy.stats import binom

    most = int(binom.ppf(1 - confidence, queries, 1 - q))
    while most >= 0 and binom.cdf(most, queries, 1 - q) > 1 - confidence:
        most -= 1
    return None if most < 0 else most


def single_stream(answer: Answer, queries: int, clock: Clock = time.perf_counter_ns, *, seconds: float = 0.0) -> Served:
    """One sample after the other: at least ``queries`` of them, for at least ``seconds`` (LoadGen asks for 600 s).

    Example:
        >>> single_stream(lambda samples: sum(range(1000)), queries=50).latencies.size
        50
    """
    return _stream("single stream", answer, queries, 1, clock, seconds)


def multi_stream(
    answer: Answer, queries: int, samples: int = 8, clock: Clock = time.perf_counter_ns, *, seconds: float = 0.0
) -> Served:
    """The same with several samples in each query."""
    return _stream("multi-stream", answer, queries, samples, clock, seconds)


def offline(answer: Answer, samples: int, batch: int, clock: Clock = time.perf_counter_ns) -> Served:
    """All samples at once, answered in batches; a sample's latency is the time until its batch is done."""
    _positive(samples=samples, batch=batch)
    clock = _forward(clock)
    begin, latencies = clock(), np.empty(samples)
    for first in range(0, samples, batch):
        size = min(batch, samples - first)
        answer(size)
        latencies[first : first + size] = (clock() - begin) / 1e9
    return Served("offline", latencies, samples, float(latencies[-1]))


def server(
    answer: Answer,
    queries: int,
    rate: float,
    seed: int = 0,
    clock: Clock = time.perf_counter_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> Served:
    """Queries of one sample that arrive ``rate`` times a second on average, with exponential gaps, and wait in line.

    Args:
        answer: runs one query; a single worker answers them in order of arrival.
        queries: how many.
        rate: arrivals per second.
        seed: of the gaps.
        clock, sleep: of the machine.
    """
    _positive(queries=queries, rate=rate)
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, queries))
    clock = _forward(clock)
    latencies, begin = np.empty(queries), clock()
    for i, arrival in enumerate(arrivals):
        early = arrival - (clock() - begin) / 1e9
        if early > 0:
            sleep(early)
            for _ in range(READINGS):  # sleeping may end a little early
                if (clock() - begin) / 1e9 >= arrival:
                    break
            else:
                raise InputError("got a clock that stands still; expected one that runs while sleep() waits: pass both")
        answer(1)
        latencies[i] = (clock() - begin) / 1e9 - arrival
    return Served("server", latencies, queries, float(arrivals[-1] + latencies[-1] - arrivals[0]), rate)


@dataclass(frozen=True)
class LargestRate:
    """The outcome of a search for the largest arrival rate that keeps a latency within a bound.

    Attributes:
        rate: the largest that surely does; None if none was found.
        misses: the smallest that surely does not; None if none was found.
        undecided: the smallest of those in between at which there were too few queries to tell; None if there is none.
    """

    rate: float | None
    misses: float | None
    undecided: float | None

    def __str__(self) -> str:
        meeting = "no rate surely meets the bound" if self.rate is None else f"{self.rate:.4g}/s surely meets the bound"
        missed = "" if self.misses is None else f", {self.misses:.4g}/s surely does not"
        return meeting + missed + ("" if self.undecided is None else f"; n too small to tell at {self.undecided:.4g}/s")


def largest_rate(
    serve: Callable[[float, int], Served],
    bound: float,
    low: float,
    high: float,
    q: float = 0.99,
    steps: int = 8,
    longer: int = 4,
) -> LargestRate:
    """Search the largest arrival rate at which the q-th percentile of latency is within a bound.

    Args:
        serve: runs the server scenario at a rate, that many times as long.
        bound: seconds.
        low, high: rates between which to search, by halving on a logarithmic scale.
        q: which percentile.
        steps: how often to halve.
        longer: how much longer a run may be made at a rate where there are too few queries to tell.
    """
    _positive(low=low, high=high, bound=bound, longer=longer)
    outcomes: dict[float, bool | None] = {}

    def holds(rate: float) -> bool:
        outcomes[rate] = meets(serve(rate, 1), bound, q)
        if outcomes[rate] is None and longer > 1:
            outcomes[rate] = meets(serve(rate, longer), bound, q)
        return outcomes[rate] is True

    best = low if holds(low) else None
    for _ in range(steps if best is not None else 0):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if holds(middle) else (low, middle)
        best = low
    misses = min((rate for rate, outcome in outcomes.items() if outcome is False), default=None)
    undecided = min((rate for rate, outcome in outcomes.items() if outcome is None), default=None)
    return LargestRate(best, misses, undecided)


def meets(served: Served, bound: float, q: float = 0.99, level: float = 0.95) -> bool | None:
    """Return whether the q-th percentile of latency is within a bound; None if there are too few queries to tell.

    The share of queries beyond the bound is held against 1 - q by the one-sided limits of Clopper and Pearson (1934),
    of as many independent queries as these are worth: latencies of a queue come in waves.

    Example:
        >>> answers = np.random.default_rng(0).exponential(0.01, 1000)
        >>> [meets(Served("server", answers, 1000, 10.0), bound) for bound in (0.01, 0.046, 0.09)]
        [False, None, True]
    """
    from scipy.stats import beta

    tau = longest_time(served.latencies, q)[1]
    worth, beyond = served.latencies.size / tau, float((served.latencies > bound).sum()) / tau
    if beta.ppf(level, beyond + 1, max(worth - beyond, 1e-9)) <= 1 - q:
        return True
    return False if beyond and beta.ppf(1 - level, beyond, worth - beyond + 1) > 1 - q else None


def _stream(name: str, answer: Answer, queries: int, samples: int, clock: Clock, seconds: float) -> Served:
    _positive(queries=queries, samples=samples)
    if not 0 <= seconds < math.inf:
        raise InputError(f"got seconds={seconds}; expected a least duration, 0 or more")
    clock = _forward(clock)
    nanoseconds = array("q", bytes(8 * queries))  # allocated before: a growing list would be timed too
    begin = previous = clock()
    last, taken = begin + int(seconds * 1e9), 0
    while taken < queries or previous < last:
        answer(samples)
        now = clock()
        if taken < queries:
            nanoseconds[taken] = now - previous
        else:
            nanoseconds.append(now - previous)
        previous, taken = now, taken + 1
    return Served(name, np.array(nanoseconds) / 1e9, taken * samples, (previous - begin) / 1e9)


def _forward(clock: Clock) -> Clock:
    """The same clock, which raises InputError where it goes backwards."""
    last = clock()

    def read() -> int:
        nonlocal last
        now = clock()
        if now < last:
            raise InputError(f"got {now - last} ns from the clock; expected time to go forward: use a monotonic clock")
        last = now
        return now

    return read


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value > 0:
            raise InputError(f"got {name}={value}; expected a positive number")
