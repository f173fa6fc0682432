"""Profiles as one self-contained page: an icicle of each framework's step, and the network coloured by time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from deep500.measure.units import unit_for
from deep500.networks.execution.step_profile import BACKWARD, FORWARD, KernelPlace
from deep500.pages.rendering import format_time
from deep500.profiling.profile import FrameworkProfile, Profile, covered
from deep500.profiling.table import profile_table
from deep500.report.rendering import render_template
from deep500.results.files import write_atomic

_COLOURS = {FORWARD: "c0", BACKWARD: "c1", "": "c7"}
_ROW, _LANE, _NAMES, _COLUMN, _LANES = 20, 7, 250, 92, 12


@dataclass
class IciclePiece:
    """A piece of an icicle: its name, seconds and colour, and the pieces that it consists of."""

    name: str
    seconds: float = 0.0
    colour: str = ""
    parts: dict[str, IciclePiece] = field(default_factory=dict)

    def add(self, path: Iterable[str], seconds: float, colour: str) -> None:
        """Add time to a piece at the end of a path of names, and to all around it."""
        self.seconds += seconds
        names = list(path)
        if names:
            inner = self.parts.setdefault(names[0], IciclePiece(names[0], 0.0, colour))
            inner.add(names[1:], seconds, colour)


@dataclass(frozen=True)
class Bar:
    """A drawn piece: percent from the left, percent of width, label, text to show, colour."""

    left: float
    width: float
    name: str
    text: str
    colour: str


def icicle(part: FrameworkProfile, names: Iterable[str]) -> IciclePiece:
    """The time of a step by phase, group of nodes (what their names begin with) and node, and what no node explains."""
    step = IciclePiece(part.framework)
    for phase in (FORWARD, BACKWARD):
        for name in names:
            cell = part.cells.get(KernelPlace(name, phase))
            if cell is not None:
                step.add([phase, re.split(r"[./]", name.strip("./"))[0], name], cell.seconds, _COLOURS[phase])
    for name, seconds in part.outside.items():
        step.add(["no node", name], seconds, _COLOURS[""])
    return step


def bars(step: IciclePiece) -> list[list[Bar]]:
    """The pieces of an icicle row by row, each below the one that it belongs to.

    Example:
        >>> step = IciclePiece("x"); step.add(["forward", "a"], 1.0, "c0"); step.add(["forward", "b"], 3.0, "c0")
        >>> [[(bar.left, bar.width) for bar in row] for row in bars(step)]
        [[(0.0, 100.0)], [(0.0, 100.0)], [(0.0, 25.0), (25.0, 75.0)]]
    """
    rows: list[list[Bar]] = []

    def draw(piece: IciclePiece, left: float, depth: int) -> None:
        width = 100 * piece.seconds / (step.seconds or 1.0)
        if len(rows) <= depth:
            rows.append([])
        text = f"{piece.name}: {format_time(piece.seconds)}, {width:.1f} %"
        rows[depth].append(Bar(left, width, piece.name, text, piece.colour))
        for inner in piece.parts.values():
            draw(inner, left, depth + 1)
            left += 100 * inner.seconds / (step.seconds or 1.0)

    draw(step, 0.0, 0)
    return rows


@dataclass(frozen=True)
class Drawing:
    """The network from top to bottom: a size, lines between nodes, dots, names and coloured cells, in pixels."""

    width: int
    height: int
    edges: list[str]
    dots: list[tuple[int, int, str]]
    cells: list[tuple[int, int, str, float, str]]
    heads: list[tuple[int, str]]


def drawing(profile: Profile) -> Drawing:
    """Nodes one below the other in the network's order, what skips some at their left; a cell for each framework.

    A cell is the darker the larger its share of the step, on the scale of a square root.
    """
    place = {row.name: number for number, row in enumerate(profile.rows)}
    left, edges = _LANE * _LANES + 20, []
    for row in profile.rows:
        for name in row.reads:
            top, bottom = _middle(place[name]), _middle(place[row.name])
            bend = left - (
                0 if place[row.name] - place[name] == 1 else _LANE * min(place[row.name] - place[name], _LANES)
            )
            edges.append(f"M{left} {top}C{bend} {top} {bend} {bottom} {left} {bottom}")
    dots = [(left, _middle(number), f"{row.name} ({row.operator})") for number, row in enumerate(profile.rows)]
    start, cells = left + _NAMES, []
    factor, unit = unit_for(max(part.step.seconds for part in profile.frameworks) / 10)
    for column, part in enumerate(profile.frameworks):
        for number, row in enumerate(profile.rows):
            times = [part.cells.get(KernelPlace(row.name, phase)) for phase in (FORWARD, BACKWARD)]
            spent = sum(cell.seconds for cell in times if cell is not None)
            text = f"{factor * spent:.3g}" if spent else "^" if row.name in part.fused else ""
            share = min(1.0, spent / part.step.seconds)
            cells.append((start + column * _COLUMN, number * _ROW + _ROW, text, share**0.5, row.name))
    heads = [(start + column * _COLUMN, f"{p.framework}, {unit}") for column, p in enumerate(profile.frameworks)]
    size = start + len(profile.frameworks) * _COLUMN, _ROW * (len(profile.rows) + 1) + 4
    return Drawing(*size, edges, dots, cells, heads)


def heaviest(profile: Profile) -> list[str]:
    """The node that takes the most time, a line for each framework."""
    lines = []
    for part in profile.frameworks:
        spent = []
        for row in profile.rows:
            cells = [part.cells.get(KernelPlace(row.name, phase)) for phase in (FORWARD, BACKWARD)]
            spent.append(sum(cell.seconds for cell in cells if cell is not None))
        most = max(spent, default=0.0)
        if most:
            row, share = profile.rows[spent.index(most)], 100 * most / part.step.seconds
            lines.append(
                f"{part.framework}: {row.name} ({row.operator}) takes the most time of all nodes, {format_time(most)}, "
                f"{share:.3g} % of the profiled step."
            )
    return lines


def _middle(number: int) -> int:
    return number * _ROW + _ROW + _ROW // 2


def write_page(profile: Profile, path: str | os.PathLike[str]) -> Path:
    """Write the page; returns its path. It loads nothing from anywhere.

    Raises:
        ResultsError: it cannot be written.
    """
    names = [row.name for row in profile.rows]
    steps = [icicle(part, names) for part in profile.frameworks]
    longest = max(step.seconds for step in steps)
    shown = [
        {
            "part": part,
            "rows": bars(step),
            "share": 100 * step.seconds / longest,
            "at_once": sum(k.seconds for k in part.step.kernels) / (covered(part.step.kernels) or 1.0),
        }
        for part, step in zip(profile.frameworks, steps, strict=True)
    ]
    page = render_template(
        "profile.html.j2",
        profile=profile,
        shown=shown,
        drawing=drawing(profile),
        table=profile_table(profile),
        answered=heaviest(profile),
    )
    target = Path(path)
    write_atomic(target, page)
    return target
