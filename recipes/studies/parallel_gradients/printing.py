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
    Timed,
    base_of,
    efficiency,
)

EFFICIENCY = 0.9
"""Least parallel efficiency of the gradient over the primal's, on two workers."""


def tables(checked: Sequence[Checked], timed: Sequence[Timed]) -> str:
    """What was checked, what gradients cost, how they scale, and the bars."""
    blocks = [_aligned(checks(checked))] if checked else []
    if timed:
        blocks += [_aligned(overheads(timed)), _aligned(scaling(timed)), bars(timed)]
    wrong = [f"WRONG: {line}" for each in checked for line in each.wrong]
    return "\n\n".join("\n".join(block) for block in [*blocks, wrong] if block)


def checks(checked: Sequence[Checked]) -> list[list[str]]:
    """Relative errors."""
    rows = [["checked", "form", "against serial", "forward mode", "differences", "constants"]]
    for each in checked:
        errors = (f"{error:.0e}" for error in (each.difference, each.dot, each.finite_difference))
        rows.append([each.proxy, each.point.title, *errors, "unchanged" if each.is_unchanged else "CHANGED"])
    return rows


def overheads(timed: Sequence[Timed]) -> list[list[str]]:
    """Milliseconds on one worker, and gradient over primal."""
    rows = [["one worker", "form", "primal ms", "gradient ms", "gradient/primal", "by processors' time"]]
    for each in timed:
        if each.point.workers == 1:
            parts = [_cell(each.interval(part)) for part in ("primal", "gradient")]
            rows.append([each.proxy, each.point.title, *parts, _cell(each.overhead()), _cell(each.overhead(ALL))])
    return rows


def scaling(timed: Sequence[Timed]) -> list[list[str]]:
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
    for each in timed:
        if each.point.workers == 1:
            continue
        base = base_of(each, timed)
        parts = [efficiency(each, base, part) for part in ("primal", "gradient")]
        own = [_cell(paired_ratio(part, [1.0] * len(part))) for part in parts]
        relative = [_cell(relative_efficiency(each, base, clock)) for clock in ("", BUSIEST, ALL)]
        rows.append([each.proxy, each.mode, each.point.title, _cell(each.overhead()), *own, *relative])
    return rows


def relative_efficiency(timed: Timed, base: Timed, clock: str = "") -> Interval:
    """The gradient's parallel efficiency over the primal's."""
    gradient, primal = (efficiency(timed, base, part, clock) for part in ("gradient", "primal"))
    return paired_ratio(gradient, primal)


def bars(timed: Sequence[Timed]) -> list[str]:
    """What should hold, and whether it does."""
    worst = max(timed, key=lambda each: each.overhead().median)
    found = [
        f"gradient/primal: worst {_cell(worst.overhead())} ({worst.proxy}, {worst.mode}, {worst.point.title}); bar "
        f"{WORST_PUBLISHED} (published worst): {_met(worst.overhead().median <= WORST_PUBLISHED)}"
    ]
    two = [each for each in timed if each.point.workers == 2 and each.mode == STRONG]
    for clock, what in (("", "wall clock"), (BUSIEST, "busiest worker's time"), (ALL, "processors' time")):
        if two:
            least = min(two, key=lambda each: relative_efficiency(each, base_of(each, timed), clock).median)
            value = relative_efficiency(least, base_of(least, timed), clock)
            found.append(
                f"gradient's efficiency over primal's on two workers, {what}: least {_cell(value)} ({least.proxy}, "
                f"{least.point.title}); bar {EFFICIENCY}: {_met(value.median >= EFFICIENCY)}"
            )
    return found


def _met(holds: bool) -> str:
    return "met" if holds else "missed"


def _cell(value: Interval) -> str:
    return f"{value.median:.3g}" + ("" if value.low is None else f" [{value.low:.3g}, {value.high:.3g}]")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def as_json(checked: Sequence[Checked], timed: Sequence[Timed], about: dict[str, Any]) -> dict[str, Any]:
    """Everything, every sample too."""
    return {
        "about": about,
        "checked": [{**asdict(each), "wrong": each.wrong} for each in checked],
        "timed": [asdict(each) for each in timed],
        "bars": bars(timed) if timed else [],
    }


def plot(timed: Sequence[Timed], path: Path) -> None:
    """Seconds against workers, log-log, for each proxy and mode; the ending says which kind of file."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    proxies = list(dict.fromkeys(each.proxy for each in timed))
    figure = Figure(figsize=(10, 3.6 * len(proxies) + 0.6), layout="constrained")
    grid = figure.subplots(len(proxies), 2, squeeze=False)
    forms = list(dict.fromkeys(each.point.form for each in timed))
    for proxy, row in zip(proxies, grid, strict=True):
        for mode, axes in zip((STRONG, "weak"), row, strict=True):
            for number, form in enumerate(forms):
                for part, style in (("primal", "--"), ("gradient", "-")):
                    here = [each for each in timed if (each.proxy, each.point.form) == (proxy, form)]
                    here = [each for each in here if each.mode == mode or each.point.workers == 1]
                    best: dict[int, Interval] = {}
                    for each in here:
                        value, n = each.interval(part), each.point.workers
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
            counts = sorted({each.point.workers for each in timed})
            axes.set(xscale="log", yscale="log", title=f"{proxy}, {mode} scaling", xlabel="workers", ylabel="ms")
            axes.set_xticks(counts, [str(n) for n in counts])
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.grid(alpha=0.3, which="both")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), title="gradient; primal is dashed")
    figure.savefig(path)
