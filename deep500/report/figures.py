"""Plots of a series' samples: over time with the warm-up, distribution, tails, dependence.

Each answers the question in its title. At most some hundred points are drawn per plot, the largest ones always among
them, since they are what a reader looks for. Lines join only what is ordered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from deep500.measure.launches import WITHIN, basis
from deep500.measure.units import unit_for
from deep500.report.plot import Axis, Plot
from deep500.results.samples import SampleStore

MOST_POINTS = 600
MOST_CURVE = 240
MOST_VIOLINS = 8


@dataclass(frozen=True)
class Figure:
    """A plot with the question that it answers, what must be said below it, and what it claims for rule R12."""

    question: str
    plot: Markup
    caption: str
    claims: tuple[dict[str, Any], ...] = ()

    @classmethod
    def from_plot(cls, question: str, plot: Plot, caption: str, n: int, level: float | None = None) -> Figure:
        """Take a plot of ``n`` values, with intervals of a level if it shows any; the claims are what was drawn."""
        x = "categorical" if plot.x.labels or plot.y.labels else "ordered"
        claims = [
            {
                "type": "plot",
                "question": question,
                "kind": kind,
                "x": x,
                "from_zero": kind == "bar",
                **({"axis": [float(plot.x.low), float(plot.x.high)]} if kind == "bar" else {}),
                "n": n,
                "level": level,
            }
            for kind in plot.drawn
        ]
        return cls(question, plot.markup(), caption, tuple(claims))


def series_figures(store: SampleStore, series: str, stat: Mapping[str, Any]) -> list[Figure]:
    """Six plots of one series: time series, cumulative distribution, violins, tail, dependence, normal quantiles.

    Args:
        store: the samples.
        series: which.
        stat: its entry of ``stats.json``.

    Launches without a sample are left out; without any there is nothing to plot.
    """
    cuts = {launch["launch"]: launch["cut"]["index"] for launch in stat["launches"]}
    measured = {launch: store.durations(series, launch) for launch in cuts}
    raw = {launch: values for launch, values in measured.items() if values.size}
    if not raw:
        return []
    steady = {
        launch: values[cuts[launch] :] if cuts[launch] < values.size else values for launch, values in raw.items()
    }
    whole = np.concatenate(list(steady.values()))
    factor, unit = unit_for(float(np.median(whole)))
    ordered = np.sort(whole) * factor
    middle = _reported_median(stat, factor, ordered)
    return [
        _over_time({launch: values * factor for launch, values in raw.items()}, cuts, middle, unit, series),
        _distribution(ordered, stat, factor, unit, series),
        _violins({launch: values * factor for launch, values in steady.items()}, ordered, unit, series),
        _tail(ordered, stat, factor, unit, series, middle),
        *_dependence(max(steady.values(), key=len), stat, series),
        _normal(ordered, stat, unit, series),
    ]


def _reported_median(stat: Mapping[str, Any], factor: float, ordered: np.ndarray) -> tuple[float, str]:
    """The median that tables show, and what it is over, in words; that of all samples where they show none.

    Over launches it is the median of theirs, from which that of all samples together differs.
    """
    known = next((estimate for estimate in stat["estimates"] if estimate["q"] == 0.5), None)
    if known is None:
        return float(np.median(ordered)), "of all samples"
    return known["value"] * factor, basis(known.get("launches") or 1, known["ci"].get("cluster") or WITHIN)


def _over_time(
    raw: Mapping[int, np.ndarray], cuts: Mapping[int, int], middle: tuple[float, str], unit: str, series: str
) -> Figure:
    total = sum(values.size for values in raw.values())
    every = np.concatenate(list(raw.values()))  # warm-up included: that it is slower is what the plot shows
    top = 1.5 * float(np.quantile(every, 0.99))
    shown = np.append(every[every <= top], 0.0)
    warm = sum(cuts.values())
    plot = Plot(
        Axis(0, max(total, 1), "sample", whole=True),
        Axis.around(shown, unit),
        f"{total} samples of {series} in the order in which they were taken, {len(raw)} launches, the first "
        f"{warm} of them warm-up; median {middle[0]:.4g} {unit}, {middle[1]}",
        "y",
    )
    begin, most = 0, max(40, MOST_POINTS // len(raw))
    for number, (launch, values) in enumerate(raw.items()):
        if cuts[launch]:
            plot.shade(begin, begin + cuts[launch])
        places = _thin(values, most)
        plot.points(begin + places, values[places], number)
        begin += values.size
    above = int(sum((values > plot.y.high).sum() for values in raw.values()))
    if above:
        plot.note(f"{above} above")
    colours = "; a colour is a launch" if len(raw) > 1 else ""
    return Figure.from_plot(
        "Does it hold steady?",
        plot,
        f"n = {total}; shaded: {warm} samples of warm-up, which no figure counts{colours}",
        total,
    )


def _distribution(ordered: np.ndarray, stat: Mapping[str, Any], factor: float, unit: str, series: str) -> Figure:
    log = bool(ordered[0] > 0 and ordered[-1] / ordered[0] > 20)
    plot = Plot(
        Axis.around(ordered, unit, log=log),
        Axis(0, 1, "share of samples"),
        f"cumulative distribution of {series}: from {ordered[0]:.4g} to {ordered[-1]:.4g} {unit}, half of "
        f"all samples together within {np.median(ordered):.4g} {unit}",
        "x",
    )
    places = np.unique(np.linspace(0, ordered.size - 1, min(ordered.size, MOST_CURVE)).astype(int))
    plot.line(ordered[places], (places + 1) / ordered.size, stairs=True)
    levels = set()
    for estimate in stat["estimates"]:
        if estimate["ci"]["low"] is not None:
            plot.line([estimate["ci"]["low"] * factor, estimate["ci"]["high"] * factor], [estimate["q"]] * 2, 1, "bar")
            levels.add(f"{100 * estimate['ci']['level']:g} %")
    bars = f"; bars: {' and '.join(sorted(levels))} intervals of the quantiles" if levels else ""
    return Figure.from_plot(
        "What share is done within a time?", plot, f"n = {ordered.size}{bars}", ordered.size, _level(stat)
    )


def _violins(by_launch: Mapping[int, np.ndarray], ordered: np.ndarray, unit: str, series: str) -> Figure:
    groups = {str(launch): values for launch, values in by_launch.items()}
    if len(groups) > MOST_VIOLINS:
        groups = {"all": ordered}
    top = min(float(ordered[-1]), float(np.quantile(ordered, 0.99)) * 1.1)
    labels = tuple((float(place), name) for place, name in enumerate(groups))
    plot = Plot(
        Axis(-0.6, len(groups) - 0.4, "launch", labels=labels),
        Axis.around(ordered[ordered <= top], unit),
        f"violins and boxes of {series} for {len(groups)} groups; medians "
        + ", ".join(f"{np.median(v):.4g}" for v in groups.values())
        + f" {unit}",
        "y",
    )
    for place, values in enumerate(groups.values()):
        _violin(plot, place, values, top)
    above = int((ordered > plot.y.high).sum())
    if above:
        plot.note(f"{above} above")
    return Figure.from_plot(
        "Where do most of them lie, and do launches agree?",
        plot,
        f"n = {ordered.size}; box: quartiles and median, whiskers: the farthest sample within 1.5 of its "
        "height, outline: density",
        ordered.size,
    )


def _violin(plot: Plot, place: int, values: np.ndarray, top: float) -> None:
    from scipy.stats import gaussian_kde

    plot.drawn |= {"violin": None, "box": None}
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    within = np.sort(values[(values >= low - 1.5 * (high - low)) & (values <= high + 1.5 * (high - low))])
    shown = values[values <= top]
    shown = shown[:: max(1, shown.size // 1500)]
    if shown.size > 2 and np.ptp(shown) > 0:
        grid = np.linspace(shown.min(), shown.max(), 60)
        density = gaussian_kde(shown)(grid)
        half = 0.42 * density / density.max()
        plot.area(np.append(place - half, (place + half)[::-1]), np.append(grid, grid[::-1]), place)
    plot.line([place, place], [min(within[0], low), low], 0, "ink")  # of few samples none may lie beyond a quartile
    plot.line([place, place], [high, max(high, within[-1])], 0, "ink")
    side = 0.13
    plot.line(
        [place - side, place + side, place + side, place - side, place - side], [low, low, high, high, low], 0, "ink"
    )
    plot.line([place - side, place + side], [middle, middle], 0, "ink thick")


def _tail(
    ordered: np.ndarray, stat: Mapping[str, Any], factor: float, unit: str, series: str, middle: tuple[float, str]
) -> Figure:
    """The quantile function far out: the time that one sample in n exceeds."""
    n = ordered.size
    rarity = n / (n - np.arange(n))  # sample i of n (from 0): n - i of n samples take at least as long
    places = np.unique(n - np.geomspace(1, n, MOST_CURVE).astype(int))
    log = bool(ordered[0] > 0 and ordered[-1] / max(float(np.median(ordered)), 1e-300) > 10)
    plot = Plot(
        Axis(1, max(2.0, n * 1.15), "one in ... samples takes at least", log=True),
        Axis.around(ordered[n // 2 :] if log else np.append(ordered, 0.0), unit, log=log),
        f"tail of {series}: the largest of {n} samples is {ordered[-1]:.4g} {unit}, "
        f"{ordered[-1] / max(middle[0], 1e-300):.3g} times the median {middle[1]}",
        "y",
    )
    plot.points(rarity[places], ordered[places], size=3)
    for estimate in stat["estimates"]:
        if estimate["ci"]["low"] is not None:
            plot.line(
                [1 / (1 - estimate["q"])] * 2,
                [estimate["ci"]["low"] * factor, estimate["ci"]["high"] * factor],
                1,
                "bar",
            )
    return Figure.from_plot(
        "How bad are the slowest?",
        plot,
        f"n = {n}; bars: intervals of the quantiles (p90 is one in 10, p99 one in 100)",
        n,
        _level(stat),
    )


def _dependence(values: np.ndarray, stat: Mapping[str, Any], series: str) -> list[Figure]:
    """Autocorrelation of "is it above the median?", whose size does not count: where n_eff comes from; none if few."""
    n, lags = values.size, min(40, values.size // 2)
    if lags < 3:
        return []
    above = (values > np.median(values)).astype(np.float64)
    above -= above.mean()
    scale = float(above @ above) or 1.0
    correlation = np.array([float(above[lag:] @ above[: n - lag]) / scale for lag in range(1, lags + 1)])
    limit = 1.96 / float(np.sqrt(n))
    worth = min((estimate["n_eff"] for estimate in stat["estimates"]), default=float("nan"))
    plot = Plot(
        Axis(0, lags + 1, "samples apart", whole=True),
        Axis.around(np.concatenate([correlation, [0, 1, -limit]]), "correlation of being above the median"),
        f"autocorrelation of whether {series} is above the median of its launch, up to {lags} samples apart: "
        f"{correlation[0]:.2g} one apart",
    )
    plot.area([0, lags + 1, lags + 1, 0], [-limit, -limit, limit, limit], 7)
    plot.rule(y=0.0)
    for lag, value in enumerate(correlation, 1):
        plot.line([lag, lag], [0.0, value])
    caption = (
        f"n = {n} (the longest launch); of whether a sample is above the median, not of its size; grey: 95 % of "
        f"independent samples; all launches: n_eff {worth:.4g} of {stat['n']}"
    )
    return [Figure.from_plot("Does a slow moment last?", plot, caption, n, 0.95)]


def _normal(ordered: np.ndarray, stat: Mapping[str, Any], unit: str, series: str) -> Figure:
    from scipy.stats import norm

    places = np.unique(np.linspace(0, ordered.size - 1, min(ordered.size, MOST_CURVE)).astype(int))
    places = np.union1d(places, np.arange(max(0, ordered.size - 20), ordered.size))
    expected = norm.ppf((places + 0.5) / ordered.size)
    top = min(float(ordered[-1]), 1.5 * float(np.quantile(ordered, 0.99)))
    low, high = np.quantile(ordered, [0.25, 0.75])
    slope = (high - low) / (norm.ppf(0.75) - norm.ppf(0.25))
    normality = stat.get("normality")
    text = "too few to test" if normality is None else f"Shapiro-Wilk W {normality['W']:.3g}, p {normality['p']:.2g}"
    plot = Plot(
        Axis.around(expected, "standard normal quantile"),
        Axis.around(ordered[ordered <= top], unit),
        f"normal quantile plot of {series}: {text}",
        "y",
    )
    plot.line(expected[[0, -1]], np.median(ordered) + slope * expected[[0, -1]], kind="guide")
    plot.points(expected, ordered[places], size=3)
    caption = f"n = {ordered.size}; line: where normal ones would lie; {text}; intervals do not assume it"
    return Figure.from_plot("Are they normal?", plot, caption, ordered.size)


def _level(stat: Mapping[str, Any]) -> float | None:
    """The lowest level of the intervals that are drawn."""
    intervals = (estimate["ci"] for estimate in stat["estimates"])
    return min((interval["level"] for interval in intervals if interval["low"] is not None), default=None)


def _thin(values: np.ndarray, most: int) -> np.ndarray:
    """Positions of at most ``most`` evenly spaced values, and of the twenty largest."""
    if values.size <= most:
        return np.arange(values.size)
    even = np.linspace(0, values.size - 1, most).astype(int)
    return np.union1d(even, np.argsort(values)[-20:])
