"""Results as tables, in Markdown, which reads as text too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deep500.measure.statistics import Interval
from recipes.studies.data_latency.measuring import LatencyCase, LoaderResult

HEAD = (
    "loader",
    "workers",
    "first batch, ms",
    "cold, ms",
    "median, ms",
    "p99, ms",
    "images/s per core",
    "CPU s per 1,000",
    "peak, MB",
    "same with any workers",
    "resumes",
    "CPU, ours/its",
)


def cell(interval: Interval | None, factor: float = 1.0, digits: int = 3) -> str:
    """A median with its interval; ``*`` where there is none."""
    if interval is None:
        return "not measured"
    text = f"{factor * interval.median:.{digits}g}"
    if interval.low is None or interval.high is None:
        return f"{text} *"
    return f"{text} ({factor * interval.low:.{digits}g}-{factor * interval.high:.{digits}g})"


def rate(interval: Interval | None) -> str:
    """As :func:`cell`, of whole numbers."""
    if interval is None:
        return "not measured"
    ends = "*" if interval.low is None else f"({interval.low:.0f}-{interval.high:.0f})"
    return f"{interval.median:.0f} {ends}"


def row(result: LoaderResult) -> list[str]:
    """The cells of a loader; the reason where it was not measured."""
    if result.missing:
        return [result.system, "", f"not measured: {result.missing}", *[""] * (len(HEAD) - 3)]
    memory = "not measured"
    if result.peak is not None and result.before is not None:
        memory = f"{result.peak / 1e6:.0f} (+{(result.peak - result.before) / 1e6:.0f})"
    times = [cell(result.first, 1e3), cell(result.cold, 1e3), cell(result.median, 1e3), cell(result.p99, 1e3)]
    words = {True: "yes", False: "no", None: "not asked"}
    return [
        result.system,
        str(result.workers),
        *times,
        rate(result.rate),
        cell(result.cpu),
        memory,
        words[result.deterministic],
        words[result.resumable],
        "" if result.ratio is None else cell(result.ratio),
    ]


def table(results: Sequence[LoaderResult]) -> str:
    """A table of results of one case."""
    rows = [list(HEAD), ["---"] * len(HEAD), *map(row, sorted(results, key=lambda r: r.workers))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def tables(results: Sequence[LoaderResult], control: Mapping[tuple[LatencyCase, int], Interval]) -> str:
    """All cases, with the control of each: Deep500 against itself."""
    parts = []
    for case in dict.fromkeys(result.case for result in results):
        again = "; ".join(f"{n} workers {cell(value)}" for (other, n), value in control.items() if other == case)
        chosen = [result for result in results if result.case == case]
        parts.append(f"### {case}\n\n{table(chosen)}\n" + (f"\nDeep500 over itself: {again}\n" if again else ""))
    return "\n".join(parts)


def wrong(results: Sequence[LoaderResult]) -> list[str]:
    """A line for everything that must not be."""
    return [f"WRONG: {r.case}, {r.system}, {r.workers} workers: {r.wrong}" for r in results if r.wrong]


def data(results: Sequence[LoaderResult]) -> list[dict[str, Any]]:
    """Results as JSON."""
    rows = []
    for result in results:
        entries = {**vars(result), "case": str(result.case)}
        rows.append({key: vars(v) if isinstance(v, Interval) else v for key, v in entries.items()})
    return rows
