"""The page of ``deep500 bits``: where two sides part, by how much, and what becomes of it within the step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from deep500.compare.bits import BitsVerdict, Parting
from deep500.report.figures import Figure
from deep500.report.plot import Axis, Plot
from deep500.report.rendering import render_template
from deep500.results.files import write_atomic, writing

PAGE = "bits.html"
MOST_ROWS = 40


def write_page(verdict: BitsVerdict, folder: Path, sides: str) -> Path:
    """Write the page into a folder, which is made if absent; returns its path.

    Args:
        verdict: what came out.
        folder: where to.
        sides: what was compared, in words.

    Raises:
        ResultsError: the folder cannot be written.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / PAGE, page(verdict, sides))
    return folder / PAGE


def page(verdict: BitsVerdict, sides: str) -> str:
    """The page as text, complete in itself.

    Example:
        >>> "The same bits" in page(BitsVerdict(None, 8, "8 steps", []), "two runs")
        True
    """
    parting = verdict.parting
    differing = [(place, where, far) for place, (where, far) in enumerate(verdict.growth, 1) if far is not None]
    equal = (
        f"{len(verdict.growth) - len(differing)} of {len(verdict.growth)} things that were compared in that step agree."
    )
    return render_template(
        "findings.html.j2",
        question="have two sides the same bits?",
        word="PASSED" if parting is None else "FAILED",
        lines=[answer(verdict), sides, *([] if parting is None else [equal]), *verdict.notes],
        heading="What follows from it",
        figures=growth_figure(verdict),
        tables=[
            ("Where they part", ["fact", "value"], [] if parting is None else facts(parting)),
            (
                "What differs, in the order of the step" + (", the first" if len(differing) > MOST_ROWS else ""),
                ["place", "what", "largest difference over largest value"],
                differing[:MOST_ROWS],
            ),
        ],
    )


def answer(verdict: BitsVerdict) -> str:
    """Return the answer in a sentence."""
    if verdict.parting is None:
        return f"The same bits: {verdict.compared}"
    step = "" if verdict.parting.step is None else f" in step {verdict.parting.step}"
    return f"They part{step}: {verdict.parting.where}"


def facts(parting: Parting) -> list[tuple[str, str]]:
    """Rows of the first table."""
    far = "not defined" if parting.ulps is None else f"{parting.ulps}"
    rows = {
        "step": parting.step,
        "rank": parting.rank,
        "place": parting.where,
        "element that differs most": list(parting.index),
        "on the first side": parting.first,
        "on the second side": parting.second,
        "units in the last place between them": far,
        "elements that differ": f"{parting.elements} of {parting.of}",
    }
    return [(name, str(value)) for name, value in rows.items() if value is not None]


def growth_figure(verdict: BitsVerdict) -> list[Figure]:
    """Differences within the step, in its order; nothing where none is finite."""
    far = np.array([value or 0.0 for _, value in verdict.growth], np.float64)
    shown = np.flatnonzero((far > 0) & np.isfinite(far))
    if not shown.size:
        return []
    plot = Plot(
        Axis.around([1, len(far)], "place in the step", whole=True),
        Axis.around(far[shown], "difference / largest value", log=True),
        f"differences of {shown.size} of {len(far)} things, in the order of the step, largest {far[shown].max():.2g}",
    )
    plot.points(shown + 1, far[shown], 0, 4)
    caption = (
        f"{len(far) - shown.size} of {len(far)} are equal, or differ by nothing finite, and have no place; observations"
    )
    return [Figure.from_plot("How far apart is what follows?", plot, caption, int(shown.size))]
