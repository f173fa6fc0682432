"""Costs of data alone, when nothing trains: time of a batch, and samples per second of the loader."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from itertools import count
from typing import Any

from deep500.errors import InputError
from deep500.measure.quantiles import quantile
from deep500.measure.standing import worth_needed
from deep500.measure.steady import find_steady_state
from deep500.metrics.base import Direction, Kind, ProbingMetric

FEWEST = 300
"""Batches by default: how much a series depends on itself is hardly known from fewer."""


class DatasetLatency(ProbingMetric):
    """A percentile of the time that one thread needs for a training batch: reading, decoding, augmenting, stacking.

    The batches are those of the epochs that follow the run's, made one after the other with no thread beside them.
    ``details`` has the interval and the first batch, which may find files in no cache. Next to
    :class:`~deep500.metrics.StepLatency` it says how many ``data_threads`` a recipe needs.

    Args:
        q: which percentile, between 0 and 1.
        batches: how many; half as many again as the percentile needs if None, 300 at least.
        seconds: after which no further batch is begun.
        level: of the interval.
        clock: nanoseconds.

    Raises:
        InputError: a number out of range.

    Example:
        >>> DatasetLatency(0.99).name
        'dataset_latency_p99'
    """

    unit, direction, kind = "s", "lower", "cost"

    def __init__(
        self,
        q: float = 0.5,
        batches: int | None = None,
        seconds: float = 60.0,
        level: float = 0.95,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        if not 0 < q < 1 or (batches is not None and batches < 1) or seconds <= 0:
            raise InputError(
                f"got q={q}, batches={batches}, seconds={seconds}; expected a number between 0 and 1, and positive "
                "ones: the median is 0.5"
            )
        self.q, self.limit, self.seconds, self.level, self._clock = q, batches, seconds, level, clock
        self.name = f"dataset_latency_p{100 * q:g}"

    def measure(self, statistics: Any) -> float | None:
        """The percentile of all batches after the warm-up."""
        make = _maker(self)
        if make is None:
            return None
        most = max(FEWEST, math.ceil(1.5 * worth_needed(self.q))) if self.limit is None else self.limit
        spent = array("q")
        for number in range(most):
            begin = self._clock()
            make(number)
            spent.append(self._clock() - begin)
            if sum(spent) > 1e9 * self.seconds:
                break
        seconds = [duration / 1e9 for duration in spent]
        steady = find_steady_state(seconds)
        estimate = quantile(seconds[steady.cut :], self.q, self.level, steady=steady)
        self.details = {
            "first": seconds[0],
            "low": estimate.low,
            "high": estimate.high,
            "level": estimate.level,
            "n": estimate.n,
            "n_eff": estimate.n_eff,
            "warm_up": steady.cut,
        }
        if estimate.low is None:
            self.reason = f"no p{100 * self.q:g}: {estimate.reason}"
            return None
        return estimate.value


class LoaderThroughput(ProbingMetric):
    """Training samples per second that the recipe's loader delivers, with its threads, to somebody who does nothing.

    ``details`` has its CPU time per 1,000 samples and, per second of CPU time, the samples: what a core can do. A
    training whose :class:`~deep500.metrics.Throughput` comes near waits for its data.

    Args:
        samples: how many at least; whole epochs are not needed.
        clock, cpu_clock: nanoseconds that pass, and those of all threads of the process.

    Raises:
        InputError: no samples.

    Example:
        >>> LoaderThroughput().name, LoaderThroughput().unit
        ('loader_throughput', 'samples/s')
    """

    name, unit = "loader_throughput", "samples/s"
    direction: Direction = "higher"
    kind: Kind = "rate"

    def __init__(
        self,
        samples: int = 2048,
        clock: Callable[[], int] = time.perf_counter_ns,
        cpu_clock: Callable[[], int] = time.process_time_ns,
    ) -> None:
        if samples < 1:
            raise InputError(f"got samples={samples}; expected at least 1: pass a larger number")
        self.samples, self._clock, self._cpu_clock = samples, clock, cpu_clock

    def measure(self, statistics: Any) -> float | None:
        """The rate, from the first batch on: threads start within it."""
        if _maker(self) is None:
            return None
        sampler = self.run.trainer.train_sampler
        place, delivered = sampler.state(), 0
        begin, cpu = self._clock(), self._cpu_clock()
        for epoch in count(sampler.epoch + 1):
            sampler.set_epoch(epoch)
            batches = iter(sampler)
            for batch in batches:
                delivered += len(next(iter(batch.values())))
                if delivered >= self.samples:
                    break
            batches.close()
            if delivered >= self.samples:
                break
        seconds, busy = (self._clock() - begin) / 1e9, (self._cpu_clock() - cpu) / 1e9
        sampler.resume(place)
        self.details = {
            "samples": delivered,
            "seconds": seconds,
            "cpu_seconds_per_1000": 1e3 * busy / delivered,
            "samples_per_cpu_second": delivered / busy if busy else None,
        }
        return delivered / seconds


def _maker(metric: ProbingMetric) -> Callable[[int], Any] | None:
    """A function that makes the n-th training batch after the run's; None, and a reason, without such a sampler."""
    if not metric.ready():
        return None
    whole = sampler = metric.run.trainer.train_sampler
    while not hasattr(sampler, "batch") and hasattr(sampler, "sampler"):
        sampler = sampler.sampler
    if not hasattr(sampler, "batch") or not hasattr(whole, "resume"):
        metric.reason = f"{type(sampler).__name__} makes no batches by (epoch, number)"
        return None
    per_epoch = len(whole)
    return lambda number: sampler.batch(whole.epoch + 1 + number // per_epoch, number % per_epoch)
