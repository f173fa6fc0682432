"""The lines that a run prints: the results folder first, progress on the way, metrics with verdicts last."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from deep500.events import Event
from deep500.guard import BOLD, GREEN, RED, paint
from deep500.pages.rendering import format_number
from deep500.progress import progress
from deep500.recipe.options import Options
from deep500.report.page import headline_line
from deep500.results import MetricResult, RecipeResult
from deep500.results.files import read_json, to_json
from deep500.results.outcomes import outcome
from deep500.results.record import MANIFEST
from deep500.results.rules import FAIL, FLAGGED, MISSING, NOT_APPLICABLE, PASS, RULES, RULES_FILE
from deep500.results.verdict import PASSED, repetition_sentence, splits_remark
from deep500.training.listeners import ProgressBar


class Console:
    """Prints results and progress to stdout, and warnings to stderr; of several ranks rank 0 does."""

    def __init__(self, options: Options, rank: int = 0) -> None:
        self.silent = rank != 0
        self.chatty = not (options.quiet or options.json or self.silent)
        self.options = options

    def say(self, text: str) -> None:
        """A line, unless ``--quiet`` or ``--json``."""
        if self.chatty:
            self.force(text)

    def force(self, text: str) -> None:
        """A line in any case."""
        if not self.silent:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def warn(self, text: str) -> None:
        """A warning on stderr; also with ``--quiet``."""
        if not self.silent:
            sys.stderr.write(f"deep500: warning: {text}\n")
            sys.stderr.flush()

    def shown(self) -> AbstractContextManager[None]:
        """Around a run: with ``--quiet`` and ``--json`` nothing is shown of its waits either."""
        return nullcontext() if self.chatty else progress("", quiet=True)

    def progress(self, seed: int, labels: Sequence[str]) -> list[Event]:
        """Listeners that show the progress: a bar on a terminal, else a line per epoch."""
        if not self.chatty:
            return []
        if sys.stderr.isatty():
            return [ProgressBar()]
        return [EpochLines(self, seed, labels)]

    def stopped(self, path: Path, seed: int) -> None:
        """The end of a process that leaves a run unfinished, by ``--stop-after``."""
        if self.options.json:
            self.force(to_json({"path": str(path), "stopped_before": seed}))
        self.say(f"stopped before seed {seed}; go on with: --resume {path}")

    def verdict(self, result: RecipeResult, summary: dict[str, Any]) -> None:
        """The end of a run."""
        if self.options.json:
            self.force(to_json({**summary, "path": result.path, "report": result.report}))
            return
        self.say("")
        for line in metric_table(result.metrics, result.labels):
            self.force(line)
        time = headline_line(Path(result.path)) if self.chatty else None
        if time is not None:
            self.force(time + _in_brackets(result.labels))
        if summary.get("repetition"):
            self.force(repetition_sentence(summary["repetition"]) + _in_brackets(result.labels))
        for line in rules_lines(Path(result.path)) if self.chatty else ():
            self.force(line)
        if self.chatty and (remark := splits_sentence(Path(result.path))):
            self.force(f"data:    {remark}")
        others = [label for label in result.labels if label not in result.verdict]
        colour = GREEN if result.verdict == PASSED else BOLD if result else RED
        self.force(f"verdict: {paint(result.verdict, colour)}{_in_brackets(others)}")
        self.say(f"report:  {result.report}")


class EpochLines(Event):
    """One line per epoch."""

    def __init__(self, console: Console, seed: int, labels: Sequence[str]) -> None:
        self.console, self.seed, self.labels = console, seed, labels

    def after_epoch(self, run: Any) -> None:
        """Print losses, accuracies and the rate of the epoch."""
        record = run.record
        if record is None:
            return
        facts = [f"epoch {record.epoch + 1}/{run.epochs}"]
        three_splits = run.trainer is not None and run.trainer.test_sampler is not None
        qualities = [] if run.trainer is None else run.trainer.task.qualities
        for half, called in (("train", "train"), ("test", "validation" if three_splits else "test")):
            for name, unit in (("loss", ""), *((quality.name, quality.unit) for quality in qualities)):
                value = record.get(f"{half}_{name}")
                if value is not None:
                    facts.append(f"{called} {name.replace('_', ' ')} {format_number(float(value))} {unit}".rstrip())
        if record.train_seconds:
            rate = (record.train_samples or 0) / record.train_seconds
            sample = "sample" if run.trainer is None else run.trainer.task.sample
            facts.append(f"{record.train_seconds:.2f} s, {rate:.0f} {sample}s/s")
        self.console.say(f"seed {self.seed}, " + ", ".join(facts) + _in_brackets(self.labels))


def metric_table(metrics: Sequence[MetricResult], labels: Sequence[str]) -> list[str]:
    """The metrics as aligned lines: value with its basis, target, verdict; labels stand beside every value."""
    rows = [("metric", "value", "target", "verdict")]
    for metric in metrics:
        word = {"lower": "<=", "higher": ">="}.get(metric.direction, "?")
        target = "none" if metric.target is None else f"{word} {format_number(metric.target)} {metric.unit}".rstrip()
        rows.append((metric.name, outcome(metric.as_dict()).text + _in_brackets(labels), target, metric.label))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def rules_lines(path: Path) -> list[str]:
    """How many rules hold, and each that is broken with what to do; none without ``rules.json``."""
    if not (path / RULES_FILE).exists():
        return []
    rules = read_json(path / RULES_FILE)["rules"]
    flagged = [name for name in RULES if name in rules and rules[name]["status"] in FLAGGED]
    names = {
        status: [name for name in RULES if name in rules and rules[name]["status"] == status]
        for status in (PASS, FAIL, MISSING, NOT_APPLICABLE)
    }
    parts = [f"{len(names[PASS])} hold", f"{len(names[FAIL])} broken{_named(names[FAIL])}"]
    parts += [f"{len(names[MISSING])} without what they need{_named(names[MISSING])}"] if names[MISSING] else []
    return [
        f"rules:   {', '.join(parts)}, {len(names[NOT_APPLICABLE])} not applicable",
        *(f"  {name}: {rules[name]['reason']}; to do: {rules[name]['fix']}" for name in flagged),
    ]


def splits_sentence(path: Path) -> str:
    """The remark beside a verdict about the data that qualities are of; empty where names say it."""
    manifest = path / MANIFEST
    return splits_remark(read_json(manifest)) if manifest.exists() else ""


def _named(rules: Sequence[str]) -> str:
    return f" ({', '.join(rules)})" if rules else ""


def _in_brackets(labels: Sequence[str]) -> str:
    return f" [{', '.join(labels)}]" if labels else ""
