"""The page of a comparison of frameworks: the answer in a sentence, times, training, and what shows that they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.result import ComparisonResult, quoted
from deep500.compare.timing import Timing
from deep500.measure.comparison import EQUIVALENT, FASTER, SLOWER, Comparison, rounds_needed
from deep500.measure.units import unit_for
from deep500.report.curves import bar_figure
from deep500.report.figures import Figure
from deep500.report.plot import Axis, Plot
from deep500.report.rendering import render_template
from deep500.results.files import write_atomic

PAGE = "comparison.html"


def write_page(result: ComparisonResult, folder: Path) -> Path:
    """Write the page into the comparison's folder; returns its path.

    Raises:
        ResultsError: the folder cannot be written.
    """
    write_atomic(folder / PAGE, page(result))
    return folder / PAGE


def page(result: ComparisonResult) -> str:
    """The page as text, complete in itself.

    Example:
        >>> from deep500.compare.checks import Check, GateResult
        >>> gate = GateResult("reference", [Check("pytorch", "outputs", 1e-7, 1e-5, True)])
        >>> "2 frameworks compute the same" in page(ComparisonResult("mlp", ["reference", "pytorch"], gate))
        True
    """
    figures = [time_figure(result, label) for label in result.timings]
    return render_template(
        "comparison.html.j2",
        result=result,
        about={"labels": list(result.labels)},
        answer=answer(result),
        timings=[(label, time_rows(result, label), timing) for label, timing in result.timings.items()],
        figures=[*figures, *memory_figure(result)],
        learning=[*accuracy_figure(result), *step_figures(result)],
        checks=check_rows(result),
        frameworks=list(dict.fromkeys(check.framework for check in result.gate.checks)),
        table=str(result),
        needed={label: rounds_needed(len(timing.comparisons)) for label, timing in result.timings.items()},
    )


def answer(result: ComparisonResult) -> list[str]:
    """The answer in a sentence or two: do they compute the same, and which is faster?"""
    names, gate = result.frameworks, result.gate
    if not gate:
        wrong = [name for name in names if gate.first(name) is not None]
        first = next((str(gate.first(name)) for name in wrong), "nothing was compared")
        verb = "does" if len(wrong) == 1 else "do"
        return [f"{', '.join(wrong) or 'They'} {verb} not compute the same, so nothing was timed. {first}."]
    lines = [f"All {len(names)} frameworks compute the same, judged by {gate.judge}."]
    return lines + [f"{label.capitalize()}: {_fastest(names, timing)}." for label, timing in result.timings.items()]


def _fastest(names: Sequence[str], timing: Timing) -> str:
    """Who beats each other one with evidence; else who is beaten by nobody, and whom somebody beats."""
    winners = [pair.first if pair.verdict == FASTER else pair.second for pair in timing.comparisons if _decided(pair)]
    losers = [pair.second if pair.verdict == FASTER else pair.first for pair in timing.comparisons if _decided(pair)]
    slower = [name for name in names if name in losers]
    medians = {name: timing.interval(name).median for name in names}
    front = sorted((name for name in names if name not in losers), key=medians.__getitem__)
    winner = next((name for name in front if winners.count(name) == len(names) - 1), None)
    if winner is not None:
        second = min((name for name in names if name != winner), key=medians.__getitem__)
        pair = next(c for c in timing.comparisons if {c.first, c.second} == {winner, second})
        ratio, low, high = pair.ratio.median, pair.ratio.low, pair.ratio.high
        if pair.first != winner:
            ratio, low, high = 1 / ratio, None if high is None else 1 / high, None if low is None else 1 / low
        ends = "" if low is None or high is None else f" [{low:.3f}, {high:.3f}]"
        return f"{winner} is faster than every other one, {ratio:.3f}{ends} of the time of {second}, the next"
    if len(front) < 2:  # one that nobody beats, but that does not beat each other one; or beaten in a ring
        sentence = "none is faster than all others"
    else:
        same = all(c.verdict == EQUIVALENT for c in timing.comparisons if {c.first, c.second} <= set(front))
        sentence = f"{', '.join(front)} {'take the same time' if same else 'are not told apart by these rounds'}"
    return sentence + (f"; slower than another: {', '.join(slower)}" if slower else "")


def _decided(pair: Comparison) -> bool:
    return pair.verdict in (FASTER, SLOWER)


def time_figure(result: ComparisonResult, label: str) -> Figure:
    """Median times of the frameworks as bars, with their intervals."""
    timing = result.timings[label]
    intervals = {name: timing.interval(name) for name in result.frameworks}
    factor, unit = unit_for(max(interval.median for interval in intervals.values()))
    times = {name: factor * interval.median for name, interval in intervals.items()}
    ends = {
        name: (None if i.low is None else factor * i.low, None if i.high is None else factor * i.high)
        for name, i in intervals.items()
    }
    rounds = min(len(timing.samples[name]) for name in result.frameworks)
    whole = None not in [end for pair in ends.values() for end in pair]
    caption = f"median of {rounds} rounds in turns" + (", lines: 95 % intervals" if whole else "; observation")
    return bar_figure(times, f"{unit} for a {label}", f"How long does a {label} take?", caption, n=rounds, ends=ends)


def memory_figure(result: ComparisonResult) -> list[Figure]:
    """Peaks of the processes' memory as bars; nothing where it was not measured."""
    peaks = {name: memory["peak"] / 1e6 for name, memory in result.memory.items()}
    caption = "peak of each process, the framework itself included; observation"
    return [bar_figure(peaks, "MB", "How much memory does each take?", caption)] if peaks else []


def accuracy_figure(result: ComparisonResult) -> list[Figure]:
    """Validation accuracy over epochs: a thin line for each seed, a colour for each framework."""
    curves = {name: [run["accuracies"] for run in runs if run.get("accuracies")] for name, runs in result.runs.items()}
    return _lines(
        curves, "epoch", "accuracy (%)", "Do they learn alike?", "each seed of each framework; observations", 1
    )


def step_figures(result: ComparisonResult) -> list[Figure]:
    """Loss of the first steps on the same batches: lines that lie on each other where frameworks agree."""
    curves = {name: [curve["loss"]] for name, curve in result.gate.curves.items() if curve.get("loss")}
    question = "Do the first steps on the same batches agree?"
    return _lines(curves, "step", "loss", question, "loss from the same weights; observations", 1)


def _lines(
    curves: Mapping[str, Sequence[Sequence[float]]], x: str, y: str, question: str, caption: str, first: int
) -> list[Figure]:
    curves = {name: [line for line in lines if np.isfinite(line).all()] for name, lines in curves.items()}
    every = [line for lines in curves.values() for line in lines]
    longest = max(map(len, every), default=0)
    if longest < 2:
        return []
    about = f"{question} {y} over {longest} of {x}, {', '.join(curves)}"
    plot = Plot(Axis.around([first, first + longest - 1], x, whole=True), Axis.around(np.concatenate(every), y), about)
    for colour, lines in enumerate(curves.values()):
        for line in lines:
            plot.line(np.arange(first, first + len(line)), line, colour, "thin" if len(lines) > 1 else "")
    plot.legend(list(curves))
    return [Figure.from_plot(question, plot, caption, len(every))]


def time_rows(result: ComparisonResult, label: str) -> list[dict[str, str]]:
    """A row for each framework: what the command's table says, by the names of its columns."""
    head, *rows = quoted(result, label, result.timings[label])
    return [dict(zip(head, row, strict=True)) for row in rows]


def check_rows(result: ComparisonResult) -> list[dict[str, Any]]:
    """A row for each thing that was compared: its tolerance, and by framework what it differs by."""
    frameworks = list(dict.fromkeys(check.framework for check in result.gate.checks))
    rows = []
    for name in dict.fromkeys(check.name for check in result.gate.checks):
        by = {check.framework: check for check in result.gate.checks if check.name == name}
        tolerance = next((check.tolerance for check in by.values() if check.tolerance is not None), None)
        rows.append({"name": name, "tolerance": tolerance, "cells": [by.get(framework) for framework in frameworks]})
    return rows
