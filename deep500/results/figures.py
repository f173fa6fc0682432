"""Plots of samples for the report, as SVG elements: the series with its warm-up, and how the rest is distributed.

Each answers the question in its title. Lines join only what is ordered; at most a thousand points are drawn per launch,
the largest ones always among them, since they are what a reader looks for.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep500.results.samples import SampleStore

MOST_POINTS = 1000


def series_svg(store: SampleStore, series: str, stat: Mapping[str, Any], label: str = "") -> str:
    """Three plots of one series: over time with the warm-up shaded, cumulative distribution, and normal quantiles.

    Args:
        store: the samples.
        series: which.
        stat: its entry of ``stats.json``.
        label: what must be said beside every number of the run.
    """
    import matplotlib
    from matplotlib.figure import Figure

    cuts = {launch["launch"]: launch["cut"]["index"] for launch in stat["launches"]}
    launches = {launch: store.durations(series, launch) * 1e3 for launch in cuts}
    kept = np.concatenate([values[cuts[launch] :] for launch, values in launches.items()])
    with matplotlib.rc_context({"svg.hashsalt": "deep500", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        over_time, distribution, normal = figure.subplots(1, 3)
        _over_time(over_time, launches, cuts, kept)
        _distribution(distribution, kept, stat["estimates"])
        _normal(normal, kept)
        if label:
            figure.suptitle(label)
        return to_svg(figure)


def _over_time(axes: Any, launches: Mapping[int, np.ndarray], cuts: Mapping[int, int], kept: np.ndarray) -> None:
    begin = 0
    for number, (launch, values) in enumerate(launches.items()):
        shown = _thin(values)
        axes.plot(begin + shown, values[shown], ".", markersize=2, color=f"C{number % 10}")
        if cuts[launch]:
            axes.axvspan(begin, begin + cuts[launch], alpha=0.15, color="gray", linewidth=0)
        begin += values.size
    high = np.quantile(kept, 0.99) * 1.5
    if kept.max() > high > 0:
        axes.set_ylim(0, high)
        axes.text(0.98, 0.98, f"{int((kept > high).sum())} above", transform=axes.transAxes, ha="right", va="top")
    _name(axes, "Is it steady?", "sample (grey: warm-up)", "ms")


def _distribution(axes: Any, kept: np.ndarray, estimates: Sequence[Mapping[str, Any]]) -> None:
    ordered = np.sort(kept)
    shown = _thin(ordered)
    axes.step(ordered[shown], (shown + 1) / ordered.size, where="post")
    for one in estimates:
        if one["ci"]["low"] is not None:
            axes.plot([one["ci"]["low"] * 1e3, one["ci"]["high"] * 1e3], [one["q"]] * 2, linewidth=4, alpha=0.5)
    if ordered[0] > 0 and ordered[-1] / ordered[0] > 20:
        axes.set_xscale("log")
    _name(axes, "How is it distributed?", "ms (bars: intervals of the estimates)", "share at most")


def _normal(axes: Any, kept: np.ndarray) -> None:
    from scipy.stats import norm

    ordered = np.sort(kept)
    shown = _thin(ordered)
    expected = norm.ppf((shown + 0.5) / ordered.size)
    axes.plot(expected, ordered[shown], ".", markersize=2)
    low, high = np.quantile(kept, [0.25, 0.75])
    slope = (high - low) / (norm.ppf(0.75) - norm.ppf(0.25))
    axes.plot(expected, np.median(kept) + slope * expected, linewidth=1, color="gray")
    _name(axes, "Is it normal?", "normal quantile (line: if it were)", "ms")


def _name(axes: Any, title: str, x: str, y: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)


def _thin(values: np.ndarray) -> np.ndarray:
    """Positions of at most a thousand evenly spaced values, and of the twenty largest."""
    if values.size <= MOST_POINTS:
        return np.arange(values.size)
    even = np.linspace(0, values.size - 1, MOST_POINTS).astype(int)
    return np.unique(np.concatenate([even, np.argsort(values)[-20:]]))


def to_svg(figure: Any) -> str:
    """A figure as an SVG element that is the same bytes every time."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return text.getvalue()[text.getvalue().index("<svg") :]
