"""The summary of several launches' rows.

A launch's quotient of two variants at one size is the median over its rounds, and its geometric mean is over sizes and
benchmarks. Intervals are over launches: each has processes, memory layout and moment of its own, and its own rounds.
A size at which a variant is missing in any launch has no quotient in any; it is counted, and named with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

import numpy as np

from deep500.measure.statistics import Interval, median_interval
from recipes.studies.enzyme_microbenchmarks.measuring import ENZYME, REF, MeasuredBenchmark
from recipes.studies.enzyme_microbenchmarks.problems import ALL, BENCHMARKS, STYLES


class Summary:
    """Rows by benchmark and size.

    Args:
        rows: of all launches.

    Attributes:
        names: the benchmarks and styles that there are.
        variants: all variants of the published layouts, those of styles if there are no others.
    """

    def __init__(self, rows: Sequence[MeasuredBenchmark]) -> None:
        self.rows: dict[tuple[str, str], list[MeasuredBenchmark]] = {}
        for row in rows:
            self.rows.setdefault((row.name, row.size), []).append(row)
        self.names = [name for name in ALL if any(key[0] == name for key in self.rows)]
        self.variants = list(dict.fromkeys(v for row in rows for v in (*row.seconds, *row.absent)))

    def sizes(self, name: str) -> list[str]:
        """A benchmark's sizes, small ones first."""
        return [size for at, size in self.rows if at == name]

    def _logs(self, name: str, size: str, a: str, b: str) -> list[float] | None:
        """Logarithms of a quotient, one for each launch; None if one of them lacks a variant."""
        rows = self.rows[name, size]
        if not all(a in row.seconds and b in row.seconds for row in rows):
            return None
        return [float(np.median(np.log(np.divide(row.seconds[a], row.seconds[b])))) for row in rows]

    def _launches(self, name: str, a: str, b: str, size: str = "") -> list[float] | None:
        """Means over sizes of logarithms, one for each launch."""
        logs = [self._logs(name, item, a, b) for item in ([size] if size else self.sizes(name))]
        there = [item for item in logs if item is not None]
        if not there:
            return None
        launches = min(map(len, there))
        return list(np.mean([item[:launches] for item in there], axis=0))

    def ratio(self, names: Sequence[str], a: str, b: str, size: str = "") -> Interval | None:
        """The geometric mean of a/b over benchmarks, each over its sizes (or at one), with an interval over launches.

        Benchmarks that have it at no size are left out; None if all are.
        """
        means = [mean for name in names if (mean := self._launches(name, a, b, size)) is not None]
        if not means:
            return None
        launches = min(map(len, means))
        return median_interval(np.exp(np.mean([mean[:launches] for mean in means], axis=0)))

    def count(self, names: Sequence[str], a: str, b: str) -> tuple[int, int]:
        """At how many sizes there is a quotient, and how many sizes there are."""
        every = [(name, size) for name in names for size in self.sizes(name)]
        return sum(self._logs(*key, a, b) is not None for key in every), len(every)

    def seconds(self, name: str, size: str, variant: str) -> Interval | None:
        """Of one call."""
        rows = self.rows[name, size]
        if not all(variant in row.seconds for row in rows):
            return None
        return median_interval([float(np.median(row.seconds[variant])) for row in rows])

    def reason(self, name: str, size: str, variant: str) -> str:
        """Say why a variant is missing at a size; empty if it was never meant to be there."""
        return next((row.absent[variant] for row in self.rows[name, size] if variant in row.absent), "")

    def why(self, names: Sequence[str], variants: Sequence[str]) -> str:
        """The first reason for which one of these is missing."""
        reasons = (self.reason(name, size, v) for name in names for size in self.sizes(name) for v in variants)
        return next((reason for reason in reasons if reason), "")

    def memory(self, name: str, size: str, variant: str) -> str:
        """MiB, in words."""
        sizes = [row.memory[variant] for row in self.rows[name, size] if variant in row.memory]
        return f"{np.median(sizes):.0f}" if sizes else ""

    def worst(self, name: str, key: str) -> float:
        """The largest difference over sizes and launches."""
        return max(getattr(row, key) for size in self.sizes(name) for row in self.rows[name, size])

    def absences(self) -> list[str]:
        """Every variant that is missing somewhere: where and why."""
        lines: dict[tuple[str, str], list[str]] = {}
        for name, size in self.rows:
            for variant in (*self.variants,):
                if reason := self.reason(name, size, variant):
                    benchmark = ALL[name]
                    title = f"{benchmark.title}, {benchmark.style}" if benchmark.style else benchmark.title
                    lines.setdefault((variant, reason), []).append(f"{title} ({size})")
        return [f"{variant}, {reason}: {'; '.join(where)}" for (variant, reason), where in lines.items()]

    def instead(self, style: str) -> Interval | None:
        """The geometric mean of Ref/Enzyme with a style in the place of its benchmark's published layout."""
        if STYLES[style].benchmark not in self.names or self.ratio([style], REF, ENZYME) is None:
            return None
        names = [style if name == STYLES[style].benchmark else name for name in BENCHMARKS if name in self.names]
        return self.ratio(names, REF, ENZYME)

    def extremes(self) -> tuple[float, float] | None:
        """The geometric means of Ref/Enzyme if every benchmark is in the style that makes it least, and most."""
        choices = []
        for name in BENCHMARKS:
            names = [name, *(style for style in STYLES if STYLES[style].benchmark == name)]
            ratios = [self.ratio([choice], REF, ENZYME) for choice in names if choice in self.names]
            values = [log(ratio.median) for ratio in ratios if ratio is not None]
            if values:
                choices.append((min(values), max(values)))
        if not any(low < high for low, high in choices):
            return None
        low, high = np.mean(choices, axis=0)
        return exp(low), exp(high)
