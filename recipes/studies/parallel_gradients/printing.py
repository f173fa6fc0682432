"""The study's results: tables, JSON, a picture, and the page of documentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deep500.measure.statistics import Interval, paired_ratio
from recipes.studies.parallel_gradients.measuring import (
    ALL,
    BUSIEST,
    STRONG,
    WORST_PUBLISHED,
    Checked,
    TimedPoint,
    base_of,
    efficiency,
)

EFFICIENCY = 0.9
"""Least parallel efficiency of the gradient over the primal's, on two workers."""


def tables(checked: Sequence[Checked], timed: Sequence[TimedPoint]) -> str:
    """Print what was checked, what gradients cost, how they scale, and the bars."""
    blocks = [_aligned(checks(checked))] if checked else []
    if timed:
        blocks += [_aligned(overheads(timed)), _aligned(scaling(timed)), bars(timed)]
    wrong = [f"WRONG: {line}" for result in checked for line in result.wrong]
    return "\n\n".join("\n".join(block) for block in [*blocks, wrong] if block)


def checks(checked: Sequence[Checked]) -> list[list[str]]:
    """Relative errors."""
    rows = [["checked", "form", "against serial", "forward mode", "differences", "constants"]]
    for result in checked:
        errors = (f"{error:.0e}" for error in (result.difference, result.dot, result.finite_difference))
        rows.append([result.proxy, result.point.title, *errors, "unchanged" if result.is_unchanged else "CHANGED"])
    return rows


def overheads(timed: Sequence[TimedPoint]) -> list[list[str]]:
    """Milliseconds on one worker, and gradient over primal."""
    rows = [["one worker", "form", "primal ms", "gradient ms", "gradient/primal", "by processors' time"]]
    for result in timed:
        if result.point.workers == 1:
            parts = [_cell(result.interval(part)) for part in ("primal", "gradient")]
            rows.append(
                [result.proxy, result.point.title, *parts, _cell(result.overhead()), _cell(result.overhead(ALL))]
            )
    return rows


def scaling(timed: Sequence[TimedPoint]) -> list[list[str]]:
    """Efficiencies over the same form with one worker."""
    rows = [
        [
            "scaling",
            "mode",
            "form",
            "gradient/primal",
            "primal's",
            "gradient's",
            "of primal's",
            "busiest's",
            "processors'",
        ]
    ]
    for result in timed:
        if result.point.workers == 1:
            continue
        base = base_of(result, timed)
        parts = [efficiency(result, base, part) for part in ("primal", "gradient")]
        efficiencies = [_cell(paired_ratio(part, [1.0] * len(part))) for part in parts]
        relative = [_cell(relative_efficiency(result, base, clock)) for clock in ("", BUSIEST, ALL)]
        rows.append([result.proxy, result.mode, result.point.title, _cell(result.overhead()), *efficiencies, *relative])
    return rows


def relative_efficiency(timed: TimedPoint, base: TimedPoint, clock: str = "") -> Interval:
    """The gradient's parallel efficiency over the primal's."""
    gradient, primal = (efficiency(timed, base, part, clock) for part in ("gradient", "primal"))
    return paired_ratio(gradient, primal)


def bars(timed: Sequence[TimedPoint]) -> list[str]:
    """Say what should hold, and whether it does."""
    worst = max(timed, key=lambda result: result.overhead().median)
    lines = [
        f"gradient/primal: worst {_cell(worst.overhead())} ({worst.proxy}, {worst.mode}, {worst.point.title}); bar "
        f"{WORST_PUBLISHED} (published worst): {_met(worst.overhead().median <= WORST_PUBLISHED)}"
    ]
    two = [result for result in timed if result.point.workers == 2 and result.mode == STRONG]
    for clock, what in (("", "wall clock"), (BUSIEST, "busiest worker's time"), (ALL, "processors' time")):
        if two:
            least = min(two, key=lambda result: relative_efficiency(result, base_of(result, timed), clock).median)
            value = relative_efficiency(least, base_of(least, timed), clock)
            lines.append(
                f"gradient's efficiency over primal's on two workers, {what}: least {_cell(value)} ({least.proxy}, "
                f"{least.point.title}); bar {EFFICIENCY}: {_met(value.median >= EFFICIENCY)}"
            )
    return lines


def _met(holds: bool) -> str:
    return "met" if holds else "missed"


def _cell(value: Interval) -> str:
    return f"{value.median:.3g}" + ("" if value.low is None else f" [{value.low:.3g}, {value.high:.3g}]")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def as_json(checked: Sequence[Checked], timed: Sequence[TimedPoint], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, every sample too."""
    return {
        "about": about,
        "checked": [{**asdict(result), "wrong": result.wrong} for result in checked],
        "timed": [asdict(result) for result in timed],
        "bars": bars(timed) if timed else [],
    }


def plot(timed: Sequence[TimedPoint], path: Path) -> None:
    """Seconds against workers, log-log, for each proxy and mode; the ending says which kind of file."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    proxies = list(dict.fromkeys(result.proxy for result in timed))
    figure = Figure(figsize=(10, 3.6 * len(proxies) + 0.6), layout="constrained")
    grid = figure.subplots(len(proxies), 2, squeeze=False)
    forms = list(dict.fromkeys(result.point.form for result in timed))
    for proxy, row in zip(proxies, grid, strict=True):
        for mode, axes in zip((STRONG, "weak"), row, strict=True):
            for number, form in enumerate(forms):
                for part, style in (("primal", "--"), ("gradient", "-")):
                    here = [result for result in timed if (result.proxy, result.point.form) == (proxy, form)]
                    here = [result for result in here if result.mode == mode or result.point.workers == 1]
                    best: dict[int, Interval] = {}
                    for result in here:
                        value, n = result.interval(part), result.point.workers
                        best[n] = min(best.get(n, value), value, key=lambda interval: interval.median)
                    label = here[0].point.title.partition(" ")[0] if here and part == "gradient" else None
                    axes.plot(
                        list(best),
                        [v.median for v in best.values()],
                        style,
                        color=f"C{number}",
                        marker="o",
                        markersize=4,
                        label=label,
                    )
            counts = sorted({result.point.workers for result in timed})
            axes.set(xscale="log", yscale="log", title=f"{proxy}, {mode} scaling", xlabel="workers", ylabel="ms")
            axes.set_xticks(counts, [str(n) for n in counts])
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.grid(alpha=0.3, which="both")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), title="gradient; primal is dashed")
    figure.savefig(path)
