"""Plots of the results of training: learning curves over seeds; bars for parts of a whole and shares of a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep500.measure.quantiles import quantile
from deep500.measure.statistics import MINIMUM_SAMPLES
from deep500.report.figures import Figure
from deep500.report.plot import BOTTOM, TOP, Axis, Plot, place_names, room_for

ACCURACY = {"name": "accuracy", "unit": "%", "direction": "higher"}
"""The quality of runs whose manifest does not name their task's."""


MOST_PLOTTED = 1e100
"""A loss beyond it, on its way to infinity, has no place on an axis; the table shows it."""


def columns(epochs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys of the epoch lines that hold numbers, seed and epoch first."""
    keys = dict.fromkeys(key for line in epochs for key, value in sorted(line.items()) if is_number(value))
    return [*(key for key in ("seed", "epoch") if key in keys), *(k for k in keys if k not in ("seed", "epoch"))]


def is_number(value: Any) -> bool:
    """A finite number: no bool, no NaN."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and bool(np.isfinite(value))


def curve_figures(
    epochs: Sequence[Mapping[str, Any]], qualities: Sequence[Mapping[str, Any]] = (ACCURACY,), judged: str = "test"
) -> list[Figure]:
    """Loss and qualities over epochs: every seed thin, their median thick, and a band around it.

    ``judged`` is what the data are called by which epochs are judged: ``validation`` where test data are kept for last.
    """
    figures, known = [], columns(epochs)
    for quality in ({"name": "loss", "unit": "", "direction": "lower"}, *qualities):
        name, word = str(quality["name"]), "rise" if quality["direction"] == "higher" else "fall"
        keys = [key for key in (f"test_{name}", f"train_{name}") if key in known and _by_seed(epochs, key)]
        label = name.replace("_", " ")
        if keys:
            axis = f"{label} ({quality['unit']})" if quality["unit"] else label
            figures.append(_curve(epochs, keys, judged, axis, f"Does the {label} {word}, and for every seed?"))
    return figures


def _curve(epochs: Sequence[Mapping[str, Any]], keys: Sequence[str], judged: str, axis: str, question: str) -> Figure:
    lines = {key.replace("test_", f"{judged}_").replace("_", " "): _by_seed(epochs, key) for key in keys}
    every = [point for seeds in lines.values() for points in seeds.values() for point in points]
    x, y = (np.array(values, np.float64) for values in zip(*every, strict=True))
    seeds = max(len(of_seeds) for of_seeds in lines.values())
    ends = ", ".join(f"{key} ends at {_last(of_seeds):.4g}" for key, of_seeds in lines.items())
    plot = Plot(
        Axis.around(x, "epoch", whole=True),
        Axis.around(y, axis),
        f"{axis} over {int(x.max())} epochs, {seeds} seeds: {ends}",
        "y" if y.min() > 0 else "",
    )
    band = "interval"
    for colour, (_key, of_seeds) in enumerate(lines.items()):
        band = _one_key(plot, of_seeds, colour) if seeds > 1 else band
        for points in of_seeds.values():
            plot.line(*_columns(points), colour, "thin" if seeds > 1 else "")
        if seeds == 1:
            plot.points(*_columns(next(iter(of_seeds.values()))), colour, 4)
    plot.legend(list(lines))
    caption = (
        f"thin: each of {seeds} seeds, thick: their median, band: {band}" if seeds > 1 else "one seed: observations"
    )
    return Figure.from_plot(question, plot, caption, seeds, 0.95 if band.startswith("95 %") else None)


def _one_key(plot: Plot, of_seeds: Mapping[Any, list[tuple[float, float]]], colour: int) -> str:
    """Median and band over seeds at every epoch that more than one of them has; says what the band is."""
    at: dict[float, list[float]] = {}
    for points in of_seeds.values():
        for epoch, value in points:
            at.setdefault(epoch, []).append(value)
    shared = sorted(epoch for epoch, values in at.items() if len(values) > 1)
    if not shared:
        return "none, no epoch has two seeds"
    enough = all(len(at[epoch]) >= MINIMUM_SAMPLES for epoch in shared)
    estimates = [quantile(at[epoch], independent=True) for epoch in shared]
    pairs = list(zip(shared, estimates, strict=True))
    low = [estimate.low if enough and estimate.low is not None else min(at[epoch]) for epoch, estimate in pairs]
    high = [estimate.high if enough and estimate.high is not None else max(at[epoch]) for epoch, estimate in pairs]
    plot.band(shared, low, high, colour)
    plot.line(shared, [estimate.value for estimate in estimates], colour, "thick")
    return "95 % interval of the median" if enough else "smallest to largest"


def _by_seed(epochs: Sequence[Mapping[str, Any]], key: str) -> dict[Any, list[tuple[float, float]]]:
    of_seeds: dict[Any, list[tuple[float, float]]] = {}
    for line in epochs:
        if is_number(line.get(key)) and abs(line[key]) <= MOST_PLOTTED:
            of_seeds.setdefault(line["seed"], []).append((float(line["epoch"]), float(line[key])))
    return of_seeds


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _last(of_seeds: Mapping[Any, list[tuple[float, float]]]) -> float:
    return float(np.median([points[-1][1] for points in of_seeds.values()]))


def bar_figure(
    parts: Mapping[str, float],
    axis: str,
    question: str,
    caption: str,
    bound: float | None = None,
    n: int = 1,
    ends: Mapping[str, tuple[float | None, float | None]] | None = None,
) -> Figure:
    """Horizontal bars from 0, the length of each written beside it; a guide where the bound is.

    ``ends`` are those of intervals of 95 %, drawn over the bars; None where there is none.
    """
    intervals = {name: pair for name, pair in (ends or {}).items() if None not in pair}
    reach = [high for _, high in intervals.values() if high is not None]
    top = max([*parts.values(), *reach, bound or 0.0, 0.0])
    names = place_names(list(parts))
    # room to the right of the longest bar, where its length is written
    plot = Plot(
        Axis(0, 1.3 * top or 1.0, axis),
        Axis(-len(parts) + 0.5, 0.5, "", labels=names),
        f"{question} " + ", ".join(f"{name} {value:.4g}" for name, value in parts.items()),
        height=TOP + BOTTOM + 30 * len(parts),
        left=room_for(names),
    )
    for place, (name, value) in enumerate(parts.items()):
        plot.bar(-place, 0, value, place)
        if name in intervals:
            plot.line(intervals[name], [-place, -place], kind="ink whisker")
        beyond = max([value, *(end for end in intervals.get(name, ()) if end is not None)])
        plot.note(f"{value:.4g} {axis.split(maxsplit=1)[0].strip(',')}", beyond, -place)
    if bound is not None:
        plot.rule(x=bound)
    return Figure.from_plot(question, plot, caption, n, 0.95 if intervals else None)
