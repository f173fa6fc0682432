"""The recipe's picture: time against size for every benchmark, and the gain by optimising before differentiating."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recipes.studies.enzyme_microbenchmarks.measuring import ENZYME, HAND, JAX, PRIMAL, REF, TORCH, MeasuredBenchmark
from recipes.studies.enzyme_microbenchmarks.printing import PUBLISHED
from recipes.studies.enzyme_microbenchmarks.problems import BENCHMARKS
from recipes.studies.enzyme_microbenchmarks.summary import Summary

LOOKS = {
    PRIMAL: ("#999999", ":", ""),
    ENZYME: ("#0072b2", "-", "o"),
    REF: ("#d55e00", "-", "s"),
    HAND: ("#009e73", "-", "^"),
    "CppAD": ("#cc79a7", "--", "v"),
    "CoDiPack": ("#882255", "--", "D"),
    "Adept": ("#aa4499", "--", "<"),
    TORCH: ("#e69f00", "-.", "P"),
    JAX: ("#56b4e9", "-.", "X"),
}
"""Colour, line and marker: told apart without colours, too."""


def plot(rows: Sequence[MeasuredBenchmark], path: Path) -> None:
    """Draw; the file's ending says which kind. Bars are intervals over launches."""
    from matplotlib.figure import Figure

    summary = Summary(rows)
    names = [name for name in BENCHMARKS if name in summary.names]
    columns = min(4, len(names) + 1)
    lines = -(-(len(names) + 1) // columns)
    figure = Figure(figsize=(3.4 * columns, 2.9 * lines + 0.5), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for name, axes in zip(names, panels, strict=False):
        _sweep(summary, name, axes)
    _gains(summary, names, panels[len(names)])
    for axes in panels[len(names) + 1 :]:
        axes.set_axis_off()
    handles = {text: handle for axes in panels for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), fontsize="small", loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=150)


def _sweep(summary: Summary, name: str, axes: Any) -> None:
    """Milliseconds of all variants against size."""
    sizes = summary.sizes(name)
    for variant in summary.variants:
        color, line, marker = LOOKS.get(variant, ("black", "-", "."))
        points = [
            (summary.rows[name, size][0].amount, seconds)
            for size in sizes
            if (seconds := summary.seconds(name, size, variant)) is not None
        ]
        if not points:
            continue
        middle = [1e3 * seconds.median for _, seconds in points]
        low, high = ([1e3 * (getattr(s, end) or s.median) for _, s in points] for end in ("low", "high"))
        errors = [np.subtract(middle, low), np.subtract(high, middle)]
        style = {"color": color, "linestyle": line, "marker": marker or None, "markersize": 4, "linewidth": 1.2}
        axes.errorbar([amount for amount, _ in points], middle, errors, label=variant, capsize=2, **style)
    axes.set(xscale="log", yscale="log", title=BENCHMARKS[name].title, xlabel=BENCHMARKS[name].axis, ylabel="ms")
    axes.grid(alpha=0.3)


def _gains(summary: Summary, names: Sequence[str], axes: Any) -> None:
    """Ref/Enzyme of every benchmark, and their mean beside the published ones."""
    here = [(BENCHMARKS[n].title, ratio) for n in names if (ratio := summary.ratio([n], REF, ENZYME)) is not None]
    middle = [ratio.median for _, ratio in here]
    low, high = ([getattr(ratio, end) or ratio.median for _, ratio in here] for end in ("low", "high"))
    errors = np.array([np.subtract(middle, low), np.subtract(high, middle)])
    axes.barh([title for title, _ in here], np.subtract(middle, 1), left=1, xerr=errors, color="#4878a8", capsize=3)
    mean = summary.ratio(names, REF, ENZYME)
    if mean is not None:
        axes.axvline(mean.median, color="#b04030", label=f"geometric mean {mean.median:.2f}")
    for (where, value), style in zip(PUBLISHED.items(), ("--", ":"), strict=True):
        axes.axvline(value, color="black", linestyle=style, linewidth=1, label=f"published, {where}: {value}")
    axes.set(xscale="log", title="Ref/Enzyme")
    axes.set_xlim(min(0.7, *low, 1) * 0.9, max(6, *high, 1) * 1.2)
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100) if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.invert_yaxis()
