"""Losses, accuracies and counts of the curve: what no data set of that size, and no loss, could give."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from deep500.results.relations.declaring import differs, relates, short
from deep500.results.rules.view import RunView

CURVE = "metrics.jsonl:"


def _halves(run: RunView) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Every judgement of labels: where it stands, what holds it, and its prefix."""
    for line in run.curve:
        place = f"metrics.jsonl: seed {line['seed']}, epoch {line['epoch']}"
        yield place, line, "train_"
        if line.get("test_samples") is not None:
            yield place, line, "test_"
    for seed, entry in run.seeds.items():
        if entry.get("final"):
            yield f"seeds.json: final of seed {seed}", entry["final"], "test_"


def _classifies(run: RunView) -> bool:
    """Whether every sample has one label that counts: the share of right ones is a count of them."""
    recipe = run.manifest["resolved"]["recipe"]
    plain = not any(recipe.get(key) for key in ("augmentation", "gradient_modifier", "network_transformations"))
    return plain and recipe["task"] is None and "ignore_index" not in run.manifest["task"]


def whole(share: float, samples: float) -> bool:
    """Whether a percentage of so many samples is a whole number of them.

    Example:
        >>> whole(75.0, 4), whole(75.1, 4)
        (True, False)
    """
    count = share * samples / 100
    return 0 <= share <= 100 and abs(count - round(count)) <= 1e-6 * max(1.0, count)


@relates("task of the recipe", "manifest.json:task.name", "manifest.json:task.sample")
def _task(run: RunView) -> Iterator[str]:
    task, recipe = run.manifest["task"], run.manifest["resolved"]["recipe"]
    if recipe["task"] is None and (task["name"], task["sample"]) != ("classification", "sample"):
        yield f"manifest.json: task {short(task['name'])} of {short(task['sample'])}s; the recipe classifies samples"


@relates(
    "accuracies against numbers of samples",
    CURVE + "test_accuracy",
    CURVE + "train_accuracy",
    CURVE + "test_samples",
    "seeds.json:*.final.test_accuracy",
    "seeds.json:*.final.test_samples",
)
def _fractions(run: RunView) -> Iterator[str]:
    for place, facts, half in _halves(run) if _classifies(run) else ():
        accuracy, samples = facts.get(f"{half}accuracy"), facts[f"{half}samples"]
        if accuracy is not None and samples is not None and not whole(accuracy, samples):
            yield f"{place}: {half}accuracy {accuracy!r} is no whole number of {samples} samples"


@relates(
    "top k against each other and numbers of samples",
    "seeds.json:*.values",
    "seeds.json:*.final.test_accuracy",
    "manifest.json:data.test.length",
)
def _top(run: RunView) -> Iterator[str]:
    data = run.manifest["data"]
    samples = (data.get("test") or data["validation"])["length"]
    for seed, entry in run.seeds.items() if _classifies(run) and not run.manifest["dry_run"] else ():
        lines = [line for line in run.curve if str(line["seed"]) == seed]
        first = (entry.get("final") or lines[-1]).get("test_accuracy")
        known = {1: first}
        for facts in run.manifest["resolved"]["metrics"]:
            if facts.get("class") == "deep500.metrics.quality:TopKAccuracy":
                value = entry["values"][facts["name"]]
                known[int(facts["name"].split("_")[1])] = value
                if value is not None and not whole(value, samples):
                    got = f"{facts['name']} of seed {seed}, {value!r},"
                    yield f"seeds.json: {got} is no whole number of {samples} samples"
        order = [(k, value) for k, value in sorted(known.items()) if value is not None]
        for (k, few), (more, many) in pairwise(order):
            if many < few - 1e-9:
                yield f"seeds.json: of seed {seed} top {more} is {many:.6g} %, below top {k} with {few:.6g} %"


@relates(
    "losses against accuracies",
    CURVE + "test_loss",
    CURVE + "test_accuracy",
    "seeds.json:*.final.test_loss",
    "seeds.json:*.final.test_accuracy",
)
def _losses(run: RunView) -> Iterator[str]:
    """A sample that is taken for another class has a probability of at most a half, so a cross entropy of ln 2."""
    if not _classifies(run) or run.manifest["resolved"]["recipe"]["loss"] != "cross_entropy":
        return
    for place, facts, half in _halves(run):
        loss, accuracy = facts.get(f"{half}loss"), facts.get(f"{half}accuracy")
        if loss is None or accuracy is None or not math.isfinite(loss):
            continue
        least = (1 - accuracy / 100) * math.log(2)
        if loss < least * (1 - 1e-3) - 1e-6:
            yield f"{place}: {half}loss {loss:.6g} at an accuracy of {accuracy:.6g} %; it is {least:.6g} or more"


@relates(
    "quality of the end against its epochs", "seeds.json:*.final", "seeds.json:*.stopped_by", CURVE + "test_samples"
)
def _ends(run: RunView) -> Iterator[str]:
    tested = {bool(entry.get("final")) for entry in run.seeds.values()}
    if tested != {run.manifest["data"].get("test") is not None} and not run.manifest["dry_run"]:
        yield "seeds.json: what test data said in the end is not there for every seed, or there are no such data"
    for seed, entry in run.seeds.items():
        absent = {"values", "stopped_by", "wall_seconds"} - entry.keys()
        if absent:
            yield f"seeds.json: seed {seed} has no {', '.join(sorted(absent))}"
    for line in run.curve:
        place = f"metrics.jsonl: seed {line['seed']}, epoch {line['epoch']}"
        samples = [name for name in ("train_samples", "test_samples") if (line.get(name) or 0) % 1]
        if samples or (line["test_seconds"] is None) != (line["test_samples"] is None):
            yield f"{place}: samples and seconds of validation do not go together"
        for check in line.get("checks") or ():
            steps, seconds = line["epoch"] * line["clock"]["steps"], line["train_seconds"] * (1 + 1e-9)
            if check["step"] > steps or check["seconds"] > seconds:
                yield f"{place}: a check after step {check['step']} and {check['seconds']:.6g} s lies beyond the epoch"


@relates(
    "matrix of what is taken for what against the accuracy",
    "exhibits.json:exhibits",
    "seeds.json:*.final.test_accuracy",
)
def _matrix(run: RunView) -> Iterator[str]:
    shown = run._json("exhibits.json")
    entry = run.seeds.get(str(shown.get("seed")), {})
    facts = entry.get("final") or ([x for x in run.curve if x["seed"] == shown.get("seed")] or [{}])[-1]
    for exhibit in shown.get("exhibits", []) if _classifies(run) and not run.manifest["dry_run"] else ():
        values = exhibit.get("values")
        if exhibit["kind"] != "matrix" or exhibit["rows"] != exhibit["columns"] or facts.get("test_samples") is None:
            continue
        total, right = sum(map(sum, values)), sum(row[number] for number, row in enumerate(values))
        if total != facts["test_samples"] or any(cell < 0 or cell % 1 for row in values for cell in row):
            yield f"exhibits.json: {total:g} samples; {facts['test_samples']} were tested"
        elif differs(100 * right / total, facts["test_accuracy"], 1e-9, 1e-9):
            got = f"{100 * right / total:.6g} % are right"
            yield f"exhibits.json: {got}; the accuracy is {short(facts['test_accuracy'])} %"


@relates(
    "labels of the data against their number and the rows of the matrix",
    "manifest.json:data.*.label_counts",
    "exhibits.json:exhibits",
)
def _labels(run: RunView) -> Iterator[str]:
    data = run.manifest["data"]
    for name, half in data.items() if _classifies(run) else ():
        counts = half["label_counts"]
        if counts is not None and (sum(counts) != half["length"] or len(counts) != half["classes"]):
            got = f"{sum(counts)} labels of {len(counts)} classes"
            yield f"manifest.json: {got} for {half['length']} samples of {name} data"
    counts = (data.get("test") or data["validation"])["label_counts"] or [] if _classifies(run) else []
    for exhibit in run._json("exhibits.json").get("exhibits", []) if counts and not run.manifest["dry_run"] else ():
        if exhibit["kind"] == "matrix" and exhibit["rows"] == exhibit["columns"]:
            for label, row, expected in zip(exhibit["rows"], exhibit["values"], counts, strict=True):
                if sum(row) != expected:
                    yield f"exhibits.json: {sum(row):g} samples of class {label}; the data have {expected}"
