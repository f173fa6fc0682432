"""Series of launches against each other: each was timed on its own, by one clock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from deep500.results.relations.declaring import relates, short
from deep500.results.rules.view import RunView

FEWEST = 20
"""Samples below which two series may be alike by chance."""

ALIKE = 0.1
"""Two launches whose ratio varies by less than this part of what one of them varies by are one, with a jitter."""

EQUAL, EQUAL_SHARE = 4, 0.1
"""Samples that may be equal, beside eight times what chance makes equal, and the share of all that must be."""

DATA = 3.0
"""Unless epochs of one launch are nearly as alike, within this factor: then it is the data that make steps long."""


def spread(values: np.ndarray) -> float:
    """The median distance from the median, which a few slow steps do not change.

    Example:
        >>> spread(np.array([1.0, 2.0, 3.0, 100.0, 2.0]))
        1.0
    """
    return float(np.median(np.abs(values - np.median(values))))


def grain(times: np.ndarray) -> int:
    """The step of the clock in nanoseconds: the greatest common divisor of the times.

    Example:
        >>> grain(np.array([3000, 5000, 8000])), grain(np.array([3000, 5003]))
        (1000, 1)
    """
    return int(np.gcd.reduce(times)) or 1


@relates("launches against each other", "samples:step", "metrics.jsonl:seed")
def _twins(run: RunView) -> Iterator[str]:
    """Changes from step to step are compared: a machine that grows slow does so for all launches."""
    names = [launch for name, launch in run.samples.names() if name == "step"]
    logs = {launch: np.log(np.maximum(1, run.samples.load("step", launch)["duration_ns"])) for launch in names}
    for (launch, first), (other, second) in combinations(logs.items(), 2):
        if len(first) != len(second) or len(first) < FEWEST:
            continue
        varies, apart = min(spread(np.diff(first)), spread(np.diff(second))), spread(np.diff(first - second))
        if apart < ALIKE * varies and _of_epochs(run, launch, first) > DATA * apart:
            yield (
                f"samples of step: launch {other} is launch {launch} with a jitter of {apart:.2g} of a step; "
                f"its steps vary by {varies:.2g}"
            )


def _of_epochs(run: RunView, launch: int, logs: np.ndarray) -> float:
    """How far a launch's own epochs are apart, step by step; infinitely where there are not two of the same length."""
    counts = [line["clock"]["steps"] for line in run.curve if line["seed"] == launch]
    if len(counts) < 2 or len(set(counts)) > 1 or sum(counts) != len(logs):
        return np.inf
    return spread(np.diff(logs[: counts[0]] - logs[counts[0] : 2 * counts[0]]))


@relates("clock of the samples against itself", "samples:step")
def _grains(run: RunView) -> Iterator[str]:
    grains = {}
    for name, launch in run.samples.names():
        steps = run.samples.load(name, launch)
        if name == "step" and len(steps) >= FEWEST and np.ptp(steps["duration_ns"]):
            grains[f"durations of launch {launch}"] = grain(steps["duration_ns"])
            grains[f"starts of launch {launch}"] = grain(np.diff(steps["start_ns"]))
    finest, coarsest = (
        min(grains, key=grains.__getitem__, default=None),
        max(grains, key=grains.__getitem__, default=None),
    )
    if finest is not None and coarsest is not None and grains[coarsest] >= 10 * grains[finest]:
        yield (
            f"samples of step: {coarsest} are multiples of {grains[coarsest]} ns, {finest} of {grains[finest]} ns; "
            "one clock has one step"
        )


@relates("samples against each other", "samples:step")
def _equals(run: RunView) -> Iterator[str]:
    """A clock that is fine beside what it measures hardly shows a duration twice."""
    for name, launch in run.samples.names():
        steps = run.samples.load(name, launch)["duration_ns"]
        ticks = float(np.median(steps) - steps.min()) / grain(steps) if len(steps) else 0.0
        if name != "step" or len(steps) < FEWEST or not ticks:
            continue
        again, chance = len(steps) - len(np.unique(steps)), len(steps) ** 2 / (2 * ticks)
        if again > max(EQUAL + 8 * chance, EQUAL_SHARE * len(steps)):
            yield (
                f"samples of step: {again} of {len(steps)} durations of launch {launch} were there before; "
                f"by a clock of {grain(steps)} ns it is about {chance:.2g}"
            )


@relates("processes of seeds against resumptions", "metrics.jsonl:clock.process", "manifest.json:resumed")
def _processes(run: RunView) -> Iterator[str]:
    """Who claims launches that are processes has begun as many."""
    processes = list(dict.fromkeys(line["clock"]["process"] for line in run.curve))
    begun = 1 + len(run.manifest["resumed"])
    if len(processes) > begun:
        yield f"metrics.jsonl: epochs of {len(processes)} processes; manifest.json tells of {begun}"
    if not all(isinstance(process, str) and re.fullmatch(r"\d+-\d+", process) for process in processes):
        yield f"metrics.jsonl: {short(processes)} are no processes"
