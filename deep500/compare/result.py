"""`ComparisonResult`: the result of comparing frameworks, as an object, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from deep500.compare.checks import GateResult
from deep500.compare.timing import Timing
from deep500.measure.comparison import rounds_needed
from deep500.measure.statistics import Interval
from deep500.measure.units import amount, unit_for
from deep500.notebooks import folded

SCHEMA = "deep500-comparison-1"


@dataclass
class ComparisonResult:
    """A recipe or a model in several frameworks; truthy when they compute the same.

    Attributes:
        subject: what was compared.
        frameworks: in the order asked for.
        gate: whether they compute the same; where they do not, nothing was timed.
        timings: label -> :class:`Timing`: ``training step``, or ``inference of <n>`` per batch size.
        batch_sizes: label -> samples per repetition; None where that is unknown.
        memory: framework -> ``peak`` and ``before`` in bytes.
        runs: framework -> one dict per seed, see :meth:`deep500.compare.jobs.Training.train`.
        facts: what every worker said of itself: digests, threads, device.
        labels: what must be said wherever a number of this comparison appears, such as ``stand-in data``.
        environment: of this machine.
        path: the results folder, empty if nothing was written.
    """

    subject: str
    frameworks: list[str]
    gate: GateResult
    timings: dict[str, Timing] = field(default_factory=dict)
    batch_sizes: dict[str, int | None] = field(default_factory=dict)
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    path: str = ""

    def __bool__(self) -> bool:
        return bool(self.gate)

    @property
    def exit_code(self) -> int:
        """0 when all compute the same, else 1."""
        return 0 if self else 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"schema": SCHEMA, **asdict(self), "gate": self.gate.as_dict()}

    def _repr_html_(self) -> str:
        return folded(f"comparison of {', '.join(self.frameworks)} on {self.subject}", str(self), opened=True)

    def __str__(self) -> str:
        parts = [_gate(self.gate)]
        for label, timing in self.timings.items():
            parts.append(_table(self, label, timing))
            parts.append(_evidence(timing))
        labels = f" ({', '.join(self.labels)})" if self.labels else ""
        if self.timings:
            cores = next(iter(self.facts.values()))["threads"]["cores"]
            parts.append(f"every framework in a process of its own, in turns, with {cores} thread(s)")
        return "\n\n".join([f"comparison of {', '.join(self.frameworks)} on {self.subject}{labels}", *parts])


def _gate(gate: GateResult) -> str:
    """One line per framework that agrees, every check of one that does not."""
    lines = [f"equivalence (judge: {gate.judge}): {'all compute the same' if gate else 'NOT the same'}"]
    for framework in dict.fromkeys(check.framework for check in gate.checks):
        checks = [check for check in gate.checks if check.framework == framework]
        if all(check.passed for check in checks):
            sizes = [f"{c.name} {c.difference:.0e}" for c in checks if c.difference is not None]
            words = "is the judge" if framework == gate.judge else f"agrees ({', '.join(sizes) or 'by digest'})"
            lines.append(f"  {framework}: {words}")
        else:
            lines += [f"  {check}" for check in checks if not check.passed]
    return "\n".join([*lines, *(f"  note: {note}" for note in gate.notes)])


def quoted(result: ComparisonResult, label: str, timing: Timing) -> list[list[str]]:
    """The table of a timing as rows of text: the names of its columns, then a row for each framework."""
    batch = result.batch_sizes.get(label)
    trained = any(result.runs.values())
    factor, unit = unit_for(min(timing.interval(name).median for name in result.frameworks))
    head = ["framework", f"{label}, {unit} (95% CI)", *(["samples/s (95% CI)"] if batch else []), "peak memory"]
    rows = [head + (["validation accuracy, %", _target_title(result)] if trained else [])]
    for name in result.frameworks:
        interval = timing.interval(name)
        row = [name, _ends(_times(interval, factor))]
        row += [_ends(_inverse(interval, batch))] if batch else []
        row += [_mebibytes(result.memory.get(name))]
        row += [_accuracy(result.runs[name]), _time_to_target(result.runs[name])] if trained else []
        rows.append(row)
    return rows


def _table(result: ComparisonResult, label: str, timing: Timing) -> str:
    rows = quoted(result, label, timing)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)


def _evidence(timing: Timing) -> str:
    low, high = timing.control.low, timing.control.high
    floor = "too few rounds for an interval" if low is None else f"{low:.3f}-{high:.3f}"
    lines = [f"noise floor: the first framework against itself, A/A ratio {timing.control.median:.3f}, 95% CI {floor}"]
    pairs, rounds = len(timing.comparisons), len(next(iter(timing.samples.values())))
    if rounds < rounds_needed(pairs):
        lines.append(
            f"{rounds} rounds cannot show a difference among {pairs} pairs, however large: use --rounds "
            f"{rounds_needed(pairs)} or more"
        )
    return "\n".join([*lines, *map(str, timing.comparisons)])


def _times(interval: Interval, factor: float) -> tuple[float, float | None, float | None]:
    low, high = (None if end is None else end * factor for end in (interval.low, interval.high))
    return interval.median * factor, low, high


def _inverse(interval: Interval, batch: int) -> tuple[float, float | None, float | None]:
    low, high = (None if end is None else batch / end for end in (interval.high, interval.low))
    return batch / interval.median, low, high


def _ends(numbers: tuple[float, float | None, float | None]) -> str:
    middle, low, high = numbers
    ends = "too few rounds" if low is None or high is None else f"{_number(low)}-{_number(high)}"
    return f"{_number(middle)} ({ends})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _mebibytes(memory: dict[str, int] | None) -> str:
    if memory is None:
        return "not measured"
    return f"{amount(memory['peak'], 'B', 3)} ({amount(memory['before'], 'B', 3)} before)"


def _target_title(result: ComparisonResult) -> str:
    target = next((run["target"] for runs in result.runs.values() for run in runs), None)
    return "time to target" if target is None else f"time to {target:g} %"


def _accuracy(runs: Sequence[dict[str, Any]]) -> str:
    return _seeds([run["accuracy"] for run in runs], "")


def _time_to_target(runs: Sequence[dict[str, Any]]) -> str:
    if not runs or runs[0]["target"] is None:
        return "no target"
    reached = [run["time_to_target"] for run in runs if run["time_to_target"] is not None]
    missed = len(runs) - len(reached)
    return _seeds(reached, " s") + (f", {missed} of {len(runs)} missed it" if missed else "")


def _seeds(values: Sequence[float | None], unit: str) -> str:
    """Median and range: an interval of the median would need six seeds and be hardly narrower."""
    known = [value for value in values if value is not None]
    if not known:
        return "never" if not values else "not measured"
    text = f"{float(np.median(known)):.4g}{unit}"
    return text if len(known) == 1 else f"{text} ({min(known):.4g}-{max(known):.4g}, {len(known)} seeds)"
