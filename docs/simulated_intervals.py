"""The pictures of intervals.md, simulated anew whenever pages are built. By hand: ``simulated_intervals.py DIR``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.signal import lfilter

from deep500.measure import over_launches, quantile

LEVEL = 0.95
SHOWN = 40
"""Intervals that a picture shows one by one."""

Interval = tuple[float, float] | None


def dependent_times(rng: np.random.Generator, phi: float, n: int) -> np.ndarray:
    """Times around 1 whose logarithms are an AR(1) series: the median is 1, neighbours are alike for phi near 1."""
    first = rng.normal() * phi
    steps = rng.normal(size=n) * np.sqrt(1 - phi**2)
    noise, _ = lfilter([1.0], [1.0, -phi], steps, zi=[first])
    return np.exp(0.05 * noise)


def launches(rng: np.random.Generator, count: int = 6, n: int = 200) -> list[np.ndarray]:
    """Samples of several launches: the launches are 2 % apart, the samples of each 5 %, all around 1."""
    return [level * rng.normal(1, 0.05, n) for level in rng.normal(1, 0.02, count)]


def naive(samples: np.ndarray) -> Interval:
    """The textbook interval of the median, as if samples were independent."""
    return _ends(quantile(samples, level=LEVEL, independent=True))


def counted(samples: np.ndarray) -> Interval:
    """The interval of as many samples as the series is worth, where it is worth enough for one."""
    return _ends(quantile(samples, level=LEVEL))


def pooled(groups: Sequence[np.ndarray]) -> Interval:
    """The textbook interval of all samples of all launches together."""
    return naive(np.concatenate(groups))


def of_launches(groups: Sequence[np.ndarray]) -> Interval:
    """The interval over launches, each of which is one value."""
    return _ends(over_launches(groups, level=LEVEL).estimate)


def covers(intervals: Sequence[Interval], truth: float = 1.0) -> float:
    """Share of the given intervals that hold the truth; nan if none was given."""
    given = [interval for interval in intervals if interval is not None]
    return float(np.mean([low <= truth <= high for low, high in given])) if given else float("nan")


def draw(folder: Path, series: int = 400) -> None:
    """Write the three pictures, each from this many simulated series."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2026)
    times = [dependent_times(rng, 0.9, 1000) for _ in range(series)]
    methods = {"as if independent": naive, "counting what the series is worth": counted}
    _draw_intervals(folder / "dependent.svg", "1,000 samples, AR(1) of 0.9", times, methods)
    _draw_coverage(folder / "coverage.svg", series)
    groups = [launches(rng) for _ in range(series)]
    methods = {"all samples together": pooled, "each launch one value": of_launches}
    _draw_intervals(folder / "launches.svg", "six launches of 200 samples, 2 % apart", groups, methods)


def _ends(estimate: object) -> Interval:
    low, high = getattr(estimate, "low", None), getattr(estimate, "high", None)
    return None if low is None or high is None else (low, high)


def _draw_intervals(path: Path, title: str, data: Sequence, methods: dict[str, Callable[..., Interval]]) -> None:  # type: ignore[type-arg]
    """Intervals of the first series as bars beside each other; those that miss the truth stand out."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, (name, method) in zip(figure.subplots(1, 2, sharey=True), methods.items(), strict=True):
        intervals = [method(values) for values in data]
        for place, interval in enumerate(intervals[:SHOWN]):
            if interval is not None:
                missed = not interval[0] <= 1 <= interval[1]
                axes.plot([place, place], interval, color="#c0392b" if missed else "#7f8c8d", lw=3 if missed else 1.5)
        axes.axhline(1, color="black", lw=0.8)
        given = sum(interval is not None for interval in intervals)
        axes.set_title(f"{name}:\n{covers(intervals):.0%} of {given} hold the truth", fontsize=9)
        axes.set_xlabel(f"the first {SHOWN} of {len(intervals)} series")
    figure.suptitle(f"{title}: intervals of the median, nominal {LEVEL:.0%}", fontsize=10)
    figure.savefig(path)


def _draw_coverage(path: Path, series: int) -> None:
    """Coverage over the strength of dependence."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    rng = np.random.default_rng(2027)
    strengths = [0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95]
    data = {phi: [dependent_times(rng, phi, 1000) for _ in range(series)] for phi in strengths}
    for name, method, marker in (("as if independent", naive, "o"), ("counting what it is worth", counted, "s")):
        shares = [covers([method(values) for values in data[phi]]) for phi in strengths]
        axes.plot(strengths, shares, marker, label=name)
    axes.axhline(LEVEL, color="black", lw=0.8)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("AR(1) coefficient of the series")
    axes.set_ylabel("share that holds the truth")
    axes.set_title(f"1,000 samples, {series} series each; line: nominal {LEVEL:.0%}", fontsize=9)
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
