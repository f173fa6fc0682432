"""The report's view of recomputation: memory over time, ways beside each other, profile, tree of regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from deep500.measure.statistics import Interval
from deep500.measure.units import amount, unit_for
from deep500.report.figures import MOST_POINTS, Figure
from deep500.report.plot import Axis, Plot
from deep500.report.rendering import render_template
from deep500.results.files import write_atomic
from deep500.results.recomputation import MEASURED as MEASURED_CURVES
from deep500.results.recomputation import Choice, RecomputationRecord
from deep500.transformations.recomputation.counting import MemoryCurve
from deep500.transformations.recomputation.profiler import HEADINGS

PREDICTED, MEASURED = 4, 8
"""Sizes of points."""


def recomputation_view(record: RecomputationRecord | None) -> dict[str, Any] | None:
    """Collect what the template needs; None where nothing was planned."""
    if record is None:
        return None
    groups = [(HEADINGS[name], list(lines)) for name, lines in groupby(record.profile.lines, lambda line: line.group)]
    unit = record.time_unit
    return {
        "record": record,
        "sentence": sentence(record),
        "figures": [figure for figure in (memory_figure(record), front_figure(record)) if figure is not None],
        "rows": [choice_row(choice, record.choices[0], unit) for choice in record.choices],
        "groups": [
            (
                heading,
                [
                    [
                        line.place,
                        f"{line.instances}",
                        amount(line.time, unit),
                        signed(line.memory),
                        amount(line.peak, "B"),
                        amount(line.step, unit),
                    ]
                    for line in lines
                ],
            )
            for heading, lines in groups
        ],
        "profile": f"{amount(record.profile.peak, 'B')} at most, {amount(record.profile.step, unit)}",
        "tree": [
            (row, amount(row.tape, "B"), amount(row.snapshot, "B"), amount(row.time, unit)) for row in record.regions
        ],
    }


def signed(size: int) -> str:
    """A change in bytes.

    Example:
        >>> signed(-1500), signed(0)
        ('-1.5 kB', '0 B')
    """
    return ("+" if size > 0 else "") + amount(size, "B")


def sentence(record: RecomputationRecord) -> str:
    """The plan in one sentence."""
    full, planned = (curve.peak for _, curve in record.curves[:2])
    inner = [row for row in record.regions if row.innermost]
    text = (
        f"{record.network}, batch {record.batch}: a step holds {amount(full, 'B')} without recomputation and "
        f"{amount(planned, 'B')} ({_share(planned, full)}) with the plan, {record.source}; "
        f"{sum(row.again > 0 for row in inner)} of {len(inner)} innermost regions run again, within "
        f"{amount(record.budget, 'B')}."
    )
    if record.time_unit != "s":
        text += " Work, in the plot and in the tables of regions, is counted operations."
    return text


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3g} %"


def choice_row(choice: Choice, base: Choice, unit: str) -> list[str]:
    """Cells: regions, predicted and measured peak, their ratio, predicted and measured time, note."""
    off = ""
    if choice.predicted_peak and choice.measured_peak is not None:
        off = f"{100 * (choice.measured_peak / choice.predicted_peak - 1):+.2f} %"
    return [
        choice.label,
        "" if choice.regions is None else str(choice.regions),
        _with_share(choice.predicted_peak, base.predicted_peak, "not predicted"),
        _with_share(choice.measured_peak, base.measured_peak, "not measured"),
        off,
        "not predicted"
        if choice.predicted_time is None or not base.predicted_time
        else f"{choice.predicted_time / base.predicted_time:.3f}",
        "not measured" if choice.ratio is None else _interval(choice.ratio),
        "not measured" if choice.measured_time is None else amount(choice.measured_time.median, "s"),
        choice.note,
    ]


def _with_share(part: int | None, whole: int | None, absent: str) -> str:
    return absent if part is None else amount(part, "B") + (f" ({_share(part, whole)})" if whole else "")


def _interval(ratio: Interval) -> str:
    middle, low, high = ratio
    return f"{middle:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")


def memory_figure(record: RecomputationRecord) -> Figure:
    """Bytes held over one step, without and with the plan; dashed: the budget."""
    curves = [curve for _, curve in record.curves]
    base = "s" if record.source == MEASURED_CURVES else record.time_unit
    across, unit = unit_for(max(curve.at[-1] for curve in curves), base)
    up, size = unit_for(max(curve.peak for curve in curves), "B")
    name = f"time within the step ({unit})" if base == "s" else f"work done within the step ({unit})"
    peaks = ", ".join(f"{label} {amount(curve.peak, 'B')}" for label, curve in record.curves)
    plot = Plot(
        Axis(0, 1.02 * across * max(c.at[-1] for c in curves), name),
        Axis(0, 1.08 * up * max(c.peak for c in curves), f"held ({size})"),
        f"memory over one step; highest: {peaks}",
    )
    for colour, curve in enumerate(curves):
        at, amounts = _thinned(curve)
        plot.line(across * at, up * amounts, colour, stairs=True)
    plot.rule(y=up * record.budget)
    plot.legend([label for label, _ in record.curves])
    turn = curves[0].turn
    caption = f"highest: {peaks}; dashed: budget {amount(record.budget, 'B')}; {record.source}"
    caption += ", under a profiler, which slows the step" if record.source == MEASURED_CURVES else ""
    caption += "" if turn is None else f"; without recomputation the backward pass begins at {across * turn:.3g} {unit}"
    return Figure.from_plot("When is how much memory held?", plot, caption, len(curves[0].held))


def _thinned(curve: MemoryCurve) -> tuple[np.ndarray, np.ndarray]:
    """The outline: of about as many neighbours as there are too many, the one that holds most."""
    every = -(-len(curve.held) // MOST_POINTS)
    starts = np.arange(0, len(curve.held), every)
    amounts = np.maximum.reduceat(np.array(curve.held), starts)
    return np.array([*np.array(curve.at)[starts], curve.at[-1]]), np.array([*amounts, amounts[-1]])


def front_figure(record: RecomputationRecord) -> Figure | None:
    """Time over memory, relative to the step without recomputation; None where there is nothing to compare."""
    base, families = record.choices[0], list(dict.fromkeys(choice.family for choice in record.choices[1:]))
    places = [
        (colour, *place)
        for colour, family in enumerate(families)
        for choice in record.choices[1:]
        if choice.family == family
        for place in _places(choice, base)
    ]
    if len(record.choices) < 3 or not places:
        return None
    # the step without recomputation, at 100 % and 1, is always within the axes
    x, y = ([1.0 if i == 2 else 100.0, *(place[i] for place in places)] for i in (1, 2))
    plot = Plot(
        Axis.around(x, "peak memory (% of that without recomputation)"),
        Axis.around(y, "time per step (ratio)"),
        f"time over memory of {len(record.choices) - 1} ways to recompute",
    )
    for colour, at, ratio, kind in places:
        plot.points([at], [ratio], colour, kind)
    plot.rule(y=1.0)
    plot.legend(families)
    measured = [c.ratio.n for c in record.choices[1:] if c.ratio is not None]
    caption = "small: predicted" + ("; large: measured" if measured else "; nothing was measured")
    return Figure.from_plot("What does less memory cost?", plot, caption, min(measured, default=1))


def _places(choice: Choice, base: Choice) -> list[tuple[float, float, int]]:
    """Return where a choice stands: as predicted, and as measured."""
    points = []
    if choice.predicted_peak is not None and choice.predicted_time is not None:
        if base.predicted_peak and base.predicted_time:
            at = (100 * choice.predicted_peak / base.predicted_peak, choice.predicted_time / base.predicted_time)
            points.append((*at, PREDICTED))
    if choice.measured_peak is not None and base.measured_peak and choice.ratio is not None:
        points.append((100 * choice.measured_peak / base.measured_peak, choice.ratio.median, MEASURED))
    return points


def write_page(path: Path, title: str, about: Sequence[str], records: Mapping[str, RecomputationRecord]) -> Path:
    """Write one page that loads nothing from anywhere; returns its path. Raises ResultsError if that fails.

    Args:
        path: of the file.
        title: of the page.
        about: lines below it, such as the machine.
        records: by the name of their part of the page.
    """
    parts = [(name, recomputation_view(record)) for name, record in records.items()]
    write_atomic(path, render_template("recomputation_page.html.j2", title=title, about=about, parts=parts))
    return path
