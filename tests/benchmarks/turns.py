"""Variants of the same work that take turns in random order in one process, and the ratios of their times."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deep500.measure.statistics import Interval, median_interval, paired_ratio
from tests.benchmarks.filling import say_ratio

Work = Callable[[], object]
Times = dict[str, list[tuple[float, float]]]
CLOCKS = {"CPU": 0, "wall": 1}


@dataclass(frozen=True)
class Comparison:
    """Something that is done in several ways: by ``deep500``, and by those it is compared with.

    Attributes:
        what: what is done, for the reader.
        variants: makes the ways; the first is the yardstick. ``"... again"``, the same once more, shows what the method
            cannot resolve.
        calls: per round.
        figure: that the ratio of CPU time of ``deep500`` to the yardstick belongs to; empty if to none.
        bar: the largest ratio that meets it; None if there is none.
        share: of the rounds, for work that takes long.
    """

    what: str
    variants: Callable[[], Mapping[str, Work]]
    calls: int
    figure: str = ""
    bar: float | None = None
    share: float = 1.0


def measure(variants: Mapping[str, Work], rounds: int, calls: int, warm_up: int = 3) -> Times:
    """CPU and wall seconds per call of each variant, in turns in random order."""
    order, shuffle = list(variants), random.Random(0).shuffle
    times: Times = {name: [] for name in variants}
    for work in variants.values():
        for _ in range(warm_up):
            work()
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            work, cpu, wall = variants[name], time.process_time(), time.perf_counter()
            for _ in range(calls):
                work()
            times[name].append(((time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls))
    return times


def say_all(comparisons: Iterable[Comparison], rounds: int) -> bool:
    """Measure and print all, then say their figures; whether every bar is met."""
    figures: dict[str, dict[str, Interval]] = {}
    bars = {}
    for one in comparisons:
        figures.setdefault(one.figure, {})[one.what] = compare(one, rounds)
        bars[one.figure] = one.bar
    return all([say_ratio(figure, ratios, bars[figure]) for figure, ratios in figures.items() if figure])


def compare(comparison: Comparison, rounds: int) -> Interval:
    """Measure and print one line per ratio; returns that of ``deep500`` to the yardstick, CPU time."""
    rounds = max(8, int(comparison.share * rounds))
    return report(comparison.what, measure(comparison.variants(), rounds, comparison.calls))


def report(what: str, times: Times) -> Interval:
    """Print one line per ratio; returns that of ``deep500`` to the yardstick, CPU time."""
    yardstick, *others = times
    base = median_interval([cpu for cpu, _ in times[yardstick]])
    print(f"{what}: {yardstick} {base.median * 1e3:.3g} ms of CPU ({base.n} rounds)")
    ratios = {}
    for name in others:
        for clock in CLOCKS:
            ratios[name, clock] = ratio_of(times, name, yardstick, clock)
            print(f"  {name:>20} / {yardstick}, {clock:>4}: {ratios[name, clock]}")
    return ratios["deep500", "CPU"]


def ratio_of(times: Times, name: str, yardstick: str, clock: str = "CPU") -> Interval:
    """Of the times of two variants."""
    first, second = ([pair[CLOCKS[clock]] for pair in times[key]] for key in (name, yardstick))
    return paired_ratio(first, second)


def inverse(ratio: Interval) -> Interval:
    """Of the second to the first."""
    median, high, low = (value and 1 / value for value in ratio)
    return Interval(median, low, high, ratio.n)


def geometric_mean(ratios: Sequence[Interval]) -> Interval:
    """Of medians; its ends are those of the intervals' ends, which are further apart than need be."""
    ends = [None if None in column else statistics.geometric_mean(column) for column in zip(*ratios, strict=True)]
    return Interval(*ends, n=len(ratios))  # type: ignore[misc, arg-type]
