"""Variants of the same work that take turns in random order in one process, and the ratios of their times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deep500.measure.statistics import median_interval, paired_ratio

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
        bar: the largest ratio of CPU time of ``deep500`` to the yardstick that is met; None if there is none.
        share: of the rounds, for work that takes long.
    """

    what: str
    variants: Callable[[], Mapping[str, Work]]
    calls: int
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


def compare(comparison: Comparison, rounds: int) -> bool:
    """Measure and print one line per ratio; whether the bar, if there is one, is met or may be."""
    rounds = max(8, int(comparison.share * rounds))
    return report(comparison, measure(comparison.variants(), rounds, comparison.calls))


def report(comparison: Comparison, times: Times) -> bool:
    """Print one line per ratio, with the verdict on the bar; False if the whole interval lies above the bar."""
    yardstick, *others = times
    base = median_interval([cpu for cpu, _ in times[yardstick]])
    print(f"{comparison.what}: {yardstick} {base.median * 1e3:.3g} ms of CPU ({base.n} rounds)")
    met = True
    for name in others:
        for clock, column in CLOCKS.items():
            ratio = paired_ratio([t[column] for t in times[name]], [t[column] for t in times[yardstick]])
            verdict = ""
            if (name, clock) == ("deep500", "CPU") and comparison.bar is not None:
                sure = ratio.high is not None and ratio.low is not None
                sure = sure and not ratio.low <= comparison.bar <= ratio.high
                verdict = f"  bar {comparison.bar}: {'met' if ratio.median <= comparison.bar else 'MISSED'}"
                verdict += "" if sure else " (the interval holds the bar: more rounds would tell)"
                met = not (sure and ratio.median > comparison.bar)
            print(f"  {name:>20} / {yardstick}, {clock:>4}: {ratio}{verdict}")
    return met
