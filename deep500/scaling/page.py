"""Scaling tables as text and as one self-contained page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deep500.measure.statistics import Interval
from deep500.measure.units import unit_for
from deep500.pages.rendering import render_page
from deep500.report.bounds import scaling_figures
from deep500.results.files import write_atomic
from deep500.results.scaling import PREDICTED, Scaling, ScalingPoint

HEAD = ("scheme", "ranks", "batch", "time per step", "95 % interval", "speedup", "efficiency", "quality", "what")


def rows(scaling: Scaling, why: Mapping[tuple[str, int], str] | None = None) -> list[tuple[str, ...]]:
    """The table's cells, the base first; what is not there says why."""
    base = scaling.base
    first = (
        "(base)",
        str(base.ranks),
        str(base.global_batch),
        *_time(base.seconds, base.seconds.median),
        "1",
        "100 %",
        "",
        base.text,
    )
    lines = [first, *(_row(scaling, entry) for entry in scaling.entries)]
    lacking: dict[str, list[str]] = {}
    for (name, ranks), reason in (why or {}).items():
        lacking.setdefault(name, []).append(f"{ranks:,}: {reason}")
    return lines + [(name, "-", "", "", "", "", "", "", "; ".join(reasons)) for name, reasons in lacking.items()]


def _row(scaling: Scaling, entry: ScalingPoint) -> tuple[str, ...]:
    share = scaling.efficiency(entry)
    alone = "modelled" if entry.kind == PREDICTED and not scaling.disturbed else "observation"
    interval = f"{100 * share.median:.3g} %"
    if share.low is not None and share.high is not None:
        interval += f" [{100 * share.low:.3g}, {100 * share.high:.3g}]"
    quality = "" if entry.quality is None else f"{entry.quality:.4g}"
    if entry.quality_low is not None:
        quality += f", at least {entry.quality_low:.4g}"
    return (
        entry.scheme,
        f"{entry.ranks:,}",
        f"{entry.global_batch:,}",
        *_time(entry.seconds, scaling.base.seconds.median, alone),
        f"{share.median * entry.ranks:.4g}",
        interval,
        quality,
        entry.kind,
    )


def _time(seconds: Interval, like: float, alone: str = "observation") -> tuple[str, str]:
    factor, unit = unit_for(like)
    ends = (
        alone
        if seconds.low is None or seconds.high is None
        else (f"{factor * seconds.low:.4g} to {factor * seconds.high:.4g}")
    )
    return f"{factor * seconds.median:.4g} {unit}", ends


def text(scaling: Scaling, why: Mapping[tuple[str, int], str] | None = None) -> str:
    """The table with aligned columns, its bounds below."""
    cells = [HEAD, *rows(scaling, why)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEAD) - 1)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in cells]
    factor, unit = unit_for(scaling.base.seconds.median)
    for bound in scaling.bounds:
        pairs = zip(bound.ranks, bound.seconds, strict=True)
        points = ", ".join(f"{factor * seconds:.3g} {unit} on {ranks:,}" for ranks, seconds in pairs)
        lines.append(f"bound: {bound.name}: {points} ranks")
    return "\n".join([heading(scaling), *lines])


def heading(scaling: Scaling) -> str:
    """The mode, and the labels that every number of the table has."""
    return f"{scaling.mode} scaling" + (f" [{', '.join(scaling.labels)}]" if scaling.labels else "")


def write_page(
    path: Path, title: str, about: Sequence[str], tables: Sequence[tuple[Scaling, Mapping[tuple[str, int], str]]]
) -> Path:
    """One page with plots and tables; it loads nothing from anywhere. Raises ResultsError if it cannot be written."""
    shown = [(heading(scaling), scaling_figures(scaling), rows(scaling, why)) for scaling, why in tables]
    write_atomic(path, render_page("scaling.html.j2", title=title, about=about, tables=shown, head=HEAD))
    return path
