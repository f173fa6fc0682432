"""Agreement of the files of one run: samples with the curve, clocks with clocks, the run with its ledger.

Nothing here can be computed from one file alone; whoever changes one must change all that it agrees with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deep500.results.ledger import broken_at, entry_of
from deep500.results.ranks import of_rank
from deep500.results.record import configuration_hash
from deep500.results.rules import RunView

SLACK_NS = 1_000
"""Rounding of seconds to whole nanoseconds, many times over."""

CLOCKS_APART, CLOCKS_SLACK = 0.1, 0.1
"""Two clocks may differ by a tenth and a tenth of a second before they are said to disagree: one may be set."""

ABSENT = ("epoch", "complete", "qualities")
"""Fields of an epoch that its line counts from 1, leaves out, or holds one by one."""


def sample_problems(run: RunView) -> list[str]:
    """Samples that are not those of the epochs in the curve: too few, too long, one after the other, or twice."""
    if not run.curve or "step" not in (run.manifest.get("series") or {}):
        return []
    known, problems = set(run.samples.names()), []
    seeds = list(dict.fromkeys(line["seed"] for line in run.curve))
    for series in ("step", "epoch", "validation"):
        strange = sorted(launch for name, launch in known if name == series and launch not in seeds)
        problems += [f"samples of {series}, launch {launch}: no such seed in metrics.jsonl" for launch in strange]
    for seed in seeds:
        if ("step", seed) not in known or ("epoch", seed) not in known:
            problems.append(f"samples of seed {seed}: its steps or epochs are missing")
            continue
        problems += _of_seed(run, seed, [line for line in run.curve if line["seed"] == seed])
    return [*problems, *_twice(run, sorted(known))]


def _of_seed(run: RunView, seed: int, lines: list[dict[str, Any]]) -> Iterator[str]:
    steps, epochs = run.samples.load("step", seed), run.samples.load("epoch", seed)
    mine = of_rank("step", 0)
    of_first = run.samples.load(mine, seed) if (mine, seed) in run.samples.names() else None
    if [line["epoch"] for line in lines] != list(range(1, len(lines) + 1)):
        yield f"metrics.jsonl: epochs of seed {seed} are not 1 to {len(lines)}"
        return
    if len(epochs) != len(lines):
        yield f"samples of seed {seed}: {len(epochs)} epochs, metrics.jsonl has {len(lines)}"
        return
    sizes = [_batches(run, line) for line in lines]
    if None not in sizes and sum(size or 0 for size in sizes) != len(steps):
        yield f"samples of seed {seed}: {len(steps)} steps; {len(lines)} epochs have {sum(size or 0 for size in sizes)}"
        return
    if len(steps) % len(lines) and None in sizes:
        yield f"samples of seed {seed}: {len(steps)} steps are not the same number in each of {len(lines)} epochs"
        return
    for name, field in (("epoch", "train_seconds"), ("validation", "test_seconds")):
        yield from _same_seconds(run, seed, name, [line.get(field) for line in lines])
    counts = [size or len(steps) // len(lines) for size in sizes]
    own_steps = _own_steps(steps, of_first, counts, [bool(line.get("ranks")) for line in lines])
    for line, part, epoch in zip(lines, np.split(own_steps, np.cumsum(counts)[:-1]), epochs, strict=True):
        yield from _of_epoch(f"seed {seed}, epoch {line['epoch']}", part, epoch, line)
    if not run.manifest.get("resumed"):
        yield from _clocks(f"seed {seed}", epochs, lines)
    if len(own_steps) > 1 and (np.diff(own_steps["start_ns"]) < 0).any() and not run.manifest.get("resumed"):
        yield f"seed {seed}: steps begin before those that came earlier"


def _own_steps(steps: np.ndarray, of_first: np.ndarray | None, counts: list[int], ranks: list[bool]) -> np.ndarray:
    """Rank 0's own steps: a series of its own in epochs that several ranks trained, all steps in others."""
    if of_first is None:
        return steps
    parts, at = [], 0
    for part, several in zip(np.split(steps, np.cumsum(counts)[:-1]), ranks, strict=True):
        parts.append(of_first[at : at + len(part)] if several else part)
        at += len(part) * several
    return np.concatenate(parts)


def _batches(run: RunView, line: Mapping[str, Any]) -> int | None:
    """Steps of an epoch: as the epoch's line has it, which must be what its samples make with this batch size."""
    recorded = (line.get("clock") or {}).get("steps")
    return recorded if isinstance(recorded, int) else run.manifest.get("batches")


def own_sampler(run: RunView) -> bool:
    """Return whether training data were sampled by a user's class, whose epochs may differ in length."""
    sampler = (run.manifest.get("resolved", {}).get("recipe") or {}).get("train_sampler")
    return isinstance(sampler, str) and not sampler.startswith("deep500.")


def curve_problems(run: RunView) -> list[str]:
    """Epochs whose steps are not the samples that they trained on, divided by the size of a batch."""
    size = (run.manifest.get("resolved", {}).get("recipe") or {}).get("batch_size")
    batches, length = run.manifest.get("batches"), run.manifest.get("data", {}).get("train", {}).get("length")
    of_tokens = (run.manifest.get("task") or {}).get("sample") == "token"  # of which an item of the data has many
    problems = []
    for line in run.curve:
        steps, samples = (line.get("clock") or {}).get("steps"), line.get("train_samples")
        place = f"metrics.jsonl: seed {line['seed']}, epoch {line['epoch']}"
        if None not in (steps, batches) and steps != batches and not own_sampler(run):
            problems.append(f"{place}: {steps} steps; the run has {batches} batches")
        samples = None if of_tokens else samples
        counted = isinstance(size, int) and isinstance(steps, int) and isinstance(samples, int)
        if counted and not (steps - 1) * size < samples <= steps * size:  # type: ignore[operator]
            problems.append(f"{place}: {samples} samples in {steps} steps of at most {size}")
        if None not in (samples, length) and samples > length:
            problems.append(f"{place}: {samples} samples of a data set of {length}")
        wall = (line.get("clock") or {}).get("wall_seconds")
        spent = (line.get("train_seconds") or 0.0) + (line.get("test_seconds") or 0.0)
        spent += sum(check["took"] for check in line.get("checks", ()))
        if wall is not None and spent > wall * (1 + 1e-9) + 1e-6:
            problems.append(f"{place}: training and validation took {spent:.6g} s of the {wall:.6g} s that passed")
    return problems


def _same_seconds(run: RunView, seed: int, series: str, seconds: list[Any]) -> Iterator[str]:
    known = [value for value in seconds if value is not None]
    if not known:
        return
    if (series, seed) not in run.samples.names():
        yield f"samples of seed {seed}: no {series}, which metrics.jsonl has"
        return
    taken = run.samples.load(series, seed)["duration_ns"]
    wrong = len(taken) != len(known) or bool((np.abs(taken - 1e9 * np.array(known)) > SLACK_NS).any())
    if wrong:
        yield f"samples of seed {seed}: {series} has other times than metrics.jsonl"


def _of_epoch(place: str, steps: np.ndarray, epoch: Any, line: Mapping[str, Any]) -> Iterator[str]:
    if not len(steps):
        yield f"{place}: no steps"
        return
    ends = steps["start_ns"] + steps["duration_ns"]
    if steps["duration_ns"].sum() > epoch["duration_ns"] + SLACK_NS:
        yield (
            f"{place}: its steps add up to {steps['duration_ns'].sum() / 1e9:.6g} s, "
            f"the epoch took {epoch['duration_ns'] / 1e9:.6g} s"
        )
    if (ends[:-1] > steps["start_ns"][1:]).any():
        yield f"{place}: a step ends after the next one has begun"
    wall = (line.get("clock") or {}).get("wall_seconds")
    last = epoch["start_ns"] + (epoch["duration_ns"] if wall is None else wall * 1e9 + SLACK_NS)
    if steps["start_ns"][0] < epoch["start_ns"] or (wall is not None and ends[-1] > last):
        yield f"{place}: its steps lie outside of the epoch, by their clock"


def _clocks(place: str, epochs: np.ndarray, lines: list[dict[str, Any]]) -> Iterator[str]:
    """The clock that times, and the clock of the calendar, between the beginnings of the epochs."""
    began = [(line.get("clock") or {}).get("began") for line in lines]
    if len(lines) < 2 or None in began:
        return
    by_clock, by_calendar = np.diff(epochs["start_ns"]) / 1e9, np.diff(np.array(began, np.float64))
    if (np.abs(by_clock - by_calendar) > CLOCKS_APART * np.abs(by_calendar) + CLOCKS_SLACK).any() or (
        np.abs(by_clock.sum() - by_calendar.sum()) > CLOCKS_APART * abs(by_calendar.sum()) + CLOCKS_SLACK
    ):
        yield (
            f"{place}: {by_clock.sum():.4g} s between its first and its last epoch by the clock of the samples, "
            f"{by_calendar.sum():.4g} s by the calendar"
        )


def _twice(run: RunView, known: list[tuple[str, int]]) -> Iterator[str]:
    """Launches whose samples are those of another: nothing that is timed lasts equally long twice, over and over."""
    seen: dict[tuple[str, bytes], int] = {}
    for series, launch in known:
        taken = run.samples.load(series, launch)["duration_ns"]
        if len(taken) >= 3 and len(np.unique(taken)) > 1:
            other = seen.setdefault((series, taken.tobytes()), launch)
            if other != launch:
                yield f"samples of {series}: launch {launch} is launch {other}, to the nanosecond"


def checkpoint_problems(run: RunView) -> list[str]:
    """Curves that are not those which the newest checkpoints hold."""
    problems = []
    for seed in dict.fromkeys(line["seed"] for line in run.curve):
        state = run.newest_checkpoint(seed)
        if state is None:
            continue
        recorded = (state["values"].get("statistics") or {}).get("epochs", [])
        lines = {line["epoch"]: line for line in run.curve if line["seed"] == seed}
        for epoch in recorded:
            line = lines.get(epoch["epoch"] + 1, {})
            known = {**epoch, **(epoch.get("qualities") or {})}
            names = [name for name in known if name not in ABSENT and line.get(name) != known[name]]
            if names or not line:
                what = f"{names[0]} is {line.get(names[0])}" if names else "no such line"
                problems.append(
                    f"metrics.jsonl: seed {seed}, epoch {epoch['epoch'] + 1}: {what}; its checkpoint has another"
                )
    return problems


def without_checkpoint(run: RunView) -> list[int]:
    """Seeds of the curve of which no checkpoint tells, since it is gone, or too large to be read for a comparison."""
    return [seed for seed in dict.fromkeys(line["seed"] for line in run.curve) if run.newest_file(seed) is None]


def ledger_problems(run: RunView) -> list[str]:
    """A ledger that is broken, or that knows nothing of this run, or something else."""
    if not run.ledger or not run.is_of_recipe:
        return []
    place = broken_at(run.ledger)
    if place is not None:
        return [f"ledger.jsonl: entry {place} is not what was written, or one before it is missing"]
    name = run.path.absolute().name
    noted = run.summary.get("ledger")
    entry = entry_of(run.ledger, name, (noted or {}).get("entry"), configuration_hash(run.manifest))
    if entry is None:
        return [f"ledger.jsonl: no entry of {name}"]
    problems = []
    for what, value in (
        ("configuration_sha256", configuration_hash(run.manifest)),
        ("environment_sha256", run.manifest.get("environment_sha256")),
        ("argv", run.manifest.get("argv")),
    ):
        if what in entry and entry[what] != value:
            problems.append(f"ledger.jsonl: {what} of {name} is not that of its manifest.json")
    if noted is not None:
        problems += _of_state(run, noted, entry["number"])
    return problems


def _of_state(run: RunView, noted: Mapping[str, Any], number: int) -> Iterator[str]:
    entries = noted.get("entries")
    if noted.get("entry") != number:
        yield f"summary.json: entry {noted.get('entry')} of the ledger; it is entry {number}"
    if not isinstance(entries, int) or not number < entries <= len(run.ledger):
        yield f"summary.json: {entries} entries in the ledger, which has {len(run.ledger)}: some were taken out"
    elif run.ledger[entries - 1]["hash"] != noted.get("head"):
        yield "summary.json: the ledger had another head when the run ended: entries were exchanged since"
