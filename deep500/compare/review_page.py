"""The page of a review: what agrees, what does not, and curves of the package beside those trained again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.compare.reproduction import Answer
from deep500.report.curves import MOST_PLOTTED, columns, is_number
from deep500.report.figures import Figure
from deep500.report.plot import Axis, Plot
from deep500.report.rendering import render_template
from deep500.results.files import read_lines, write_atomic
from deep500.results.record import METRICS

Line = Mapping[str, Any]


def write_page(answers: Sequence[Answer], path: Path, folder: Path, again: Path | None) -> Path:
    """Write the page; returns its path.

    Args:
        answers: of the review.
        path: where to.
        folder: the run in the package.
        again: the run that was made here, None without one.

    Raises:
        ResultsError: it cannot be written there.
    """
    curves = [] if again is None else [read_lines(run / METRICS) for run in (folder, again)]
    write_atomic(path, page(answers, folder.name, curves))
    return path


def page(answers: Sequence[Answer], name: str, curves: Sequence[Sequence[Line]] = ()) -> str:
    """The page as text, complete in itself.

    Args:
        answers: of the review.
        name: of the run.
        curves: the epochs of the package's run and of the one made here; none if it was not run again.

    Example:
        >>> "1 of 1 agree" in page([Answer(True, "the seal")], "a-run")
        True
    """
    judged = [answer for answer in answers if answer.agrees is not None]
    wrong = [answer for answer in judged if not answer.agrees]
    ran = "trained again here" if curves else "not run again: whether its numbers come out here nobody has seen"
    about = [f"{name}, {ran}.", *(f"It differs: {answer.what}." for answer in wrong[:3])]
    return render_template(
        "findings.html.j2",
        question="does a package say what follows from it?",
        word="FAILED" if wrong else "PASSED",
        lines=[f"{len(judged) - len(wrong)} of {len(judged)} agree", *about],
        heading="Trained again",
        figures=curve_figures(*curves) if curves else [],
        tables=[
            (title, ["looked at"], [(answer.what,) for answer in answers if answer.agrees is agrees])
            for title, agrees in (("What differs", False), ("What agrees", True), ("Seen, and not judged", None))
        ],
    )


def curve_figures(package: Sequence[Line], again: Sequence[Line]) -> list[Figure]:
    """Each number that epochs were judged by, of the package and of the run made here, and where they part."""
    figures = []
    names = [
        name for name in columns(package) if name.startswith("test_") and not name.endswith(("samples", "seconds"))
    ]
    for name in names:
        sides = [
            {
                (line["seed"], line["epoch"]): line[name]
                for line in lines
                if is_number(line.get(name)) and abs(line[name]) <= MOST_PLOTTED
            }
            for lines in (package, again)
        ]
        parted = [place for place in {**sides[0], **sides[1]} if sides[0].get(place) != sides[1].get(place)]
        label = name.removeprefix("test_").replace("_", " ")
        values = [value for side in sides for value in side.values()]
        if not values:
            continue
        first = min((epoch for _, epoch in parted), default=None)
        where = "every epoch has the same number" if first is None else f"the first that differs is epoch {first}"
        plot = Plot(
            Axis.around([epoch for side in sides for _, epoch in side], "epoch", whole=True),
            Axis.around(values, label),
            f"{label} over epochs, of the package and trained again: {where}",
        )
        for colour, side in enumerate(sides):
            for seed in dict.fromkeys(seed for seed, _ in side):
                at = sorted(epoch for number, epoch in side if number == seed)
                plot.line(at, [side[seed, epoch] for epoch in at], colour, "thin" if colour else "")
                plot.points(at, [side[seed, epoch] for epoch in at], colour, 3)
        if first is not None:
            plot.rule(x=first)
        plot.legend(["package", "again"])
        figures.append(Figure.from_plot(f"Does the {label} come again?", plot, f"{where}; observations", len(values)))
    return figures
