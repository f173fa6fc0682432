"""The recipe's results as text and for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from deep500.measure.statistics import Interval
from recipes.studies.enzyme_microbenchmarks.measuring import ENZYME, HAND, PRIMAL, REF, MeasuredBenchmark
from recipes.studies.enzyme_microbenchmarks.problems import ALL, BENCHMARKS, STYLES
from recipes.studies.enzyme_microbenchmarks.summary import Summary

PUBLISHED = {"conference": 4.2, "preprint": 4.5}
"""Geometric means of Ref/Enzyme in the abstracts of Moses and Churavy (NeurIPS 2020; arXiv 2010.01709)."""


def tables(rows: Sequence[MeasuredBenchmark]) -> str:
    """Ratios of the published layouts, the geometric mean beside the published ones, other styles, all times."""
    summary = Summary(rows)
    parts = [_ratios(summary), *_means(summary), _styles(summary), _times(summary), *_wrong(rows)]
    return "\n\n".join(part for part in parts if part)


def _ratios(summary: Summary) -> str:
    """Every benchmark: quotients of times, each a geometric mean over sizes."""
    names = [name for name in BENCHMARKS if name in summary.names]
    if not names:
        return ""
    others = [variant for variant in summary.variants if variant not in (PRIMAL, ENZYME)]
    lines = [["geometric means over sizes", "Enzyme/primal", *(f"{name}/Enzyme" for name in others), "differ by", "FD"]]
    for name in [*names, ""]:
        chosen = [name] if name else names
        quotients = [(ENZYME, PRIMAL), *((variant, ENZYME) for variant in others)]
        cells = [_quotient(summary, chosen, a, b) for a, b in quotients]
        checks = (
            [f"{summary.worst(name, key):.0e}" for key in ("difference", "finite_difference")] if name else ["", ""]
        )
        lines.append([BENCHMARKS[name].title if name else "all", *cells, *checks])
    return "\n".join(_aligned(lines))


def _quotient(summary: Summary, names: Sequence[str], a: str, b: str) -> str:
    """An interval, and at how many sizes there is one, unless at all."""
    ratio = summary.ratio(names, a, b)
    if ratio is None:
        return summary.why(names, (a, b))
    count, most = summary.count(names, a, b)
    return _cell(ratio) + ("" if count == most else f" ({count} of {most})")


def _means(summary: Summary) -> list[str]:
    """The headline, what it leaves out, and how far styles move it."""
    names = [name for name in BENCHMARKS if name in summary.names]
    mean, (count, most) = summary.ratio(names, REF, ENZYME), summary.count(names, REF, ENZYME)
    published = ", ".join(f"{value}x ({where})" for where, value in PUBLISHED.items())
    lines = [
        f"geometric mean of Ref/Enzyme over {len(names)} of {len(BENCHMARKS)} benchmarks, {count} of {most} sizes: "
        f"{_cell(mean) if mean else 'none'}; published: {published}"
    ]
    lines += [f"  without: {text}" for text in summary.absences()]
    extremes = summary.extremes()
    if extremes:
        lines.append(
            f"  over all choices of style: from {extremes[0]:.2f} (least for every benchmark) to {extremes[1]:.2f}"
        )
    return ["\n".join(lines)]


def _styles(summary: Summary) -> str:
    """Other styles beside the published layout; what the whole mean becomes with each."""
    names = [name for name in STYLES if name in summary.names]
    if not names:
        return ""
    lines = [["sensitivity: style", "Enzyme/primal", "Ref/Enzyme", "published layout", "mean with it"]]
    for name in names:
        style = STYLES[name]
        cells = [_quotient(summary, [name], ENZYME, PRIMAL), _quotient(summary, [name], REF, ENZYME)]
        instead = summary.instead(name)
        layout = _quotient(summary, [style.benchmark], REF, ENZYME) if style.benchmark in summary.names else ""
        lines.append([f"{style.title}: {style.style}", *cells, layout, _cell(instead) if instead else ""])
    return "\n".join(_aligned(lines))


def _times(summary: Summary) -> str:
    """Milliseconds at every size: medians over launches of medians over rounds."""
    lines = [["ms", *summary.variants, "MiB, Enzyme", "MiB, Ref", "Ref/Enzyme"]]
    for name in ALL:
        for size in summary.sizes(name):
            cells = []
            for variant in summary.variants:
                seconds = summary.seconds(name, size, variant)
                cells.append(f"{1e3 * seconds.median:.3g}" if seconds else summary.reason(name, size, variant))
            memory = [summary.memory(name, size, variant) for variant in (ENZYME, REF)]
            ratio = summary.ratio([name], REF, ENZYME, size)
            benchmark = ALL[name]
            title = f"{benchmark.title}, {benchmark.style}" if benchmark.style else benchmark.title
            lines.append([f"{title} ({size})", *cells, *memory, _cell(ratio) if ratio else ""])
    return "\n".join(_aligned(lines))


def _wrong(rows: Sequence[MeasuredBenchmark]) -> list[str]:
    lines = [f"WRONG: {ALL[row.name].title} ({row.size}): {line}" for row in rows for line in row.wrong]
    return ["\n".join(lines)] if lines else []


def _cell(value: Interval) -> str:
    return f"{value.median:.3g}" + ("" if value.low is None else f" [{value.low:.3g}, {value.high:.3g}]")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    filled = [i for i in range(len(rows[0])) if any(row[i] for row in rows[1:])]
    widths = {i: max(len(row[i]) for row in rows) for i in filled}
    padded = ([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in filled[1:])] for row in rows)
    return ["  ".join(row).rstrip() for row in padded]


def as_json(rows: Sequence[MeasuredBenchmark], about: dict[str, Any]) -> dict[str, Any]:
    """All that is printed, and every sample."""
    summary = Summary(rows)
    names = [name for name in BENCHMARKS if name in summary.names]

    def listed(chosen: Sequence[str], a: str, b: str) -> list[float | None] | None:
        ratio = summary.ratio(chosen, a, b)
        return None if ratio is None else list(ratio)

    pairs = [(ENZYME, PRIMAL), *((variant, ENZYME) for variant in summary.variants if variant not in (PRIMAL, ENZYME))]
    return {
        "about": about,
        "published": PUBLISHED,
        "geometric_mean": listed(names, REF, ENZYME),
        "by_hand": listed(names, HAND, ENZYME),
        "styles": summary.extremes(),
        "ratios": {name: {f"{a}/{b}": listed([name], a, b) for a, b in pairs} for name in ALL if name in summary.names},
        "rows": [asdict(row) for row in rows],
    }
