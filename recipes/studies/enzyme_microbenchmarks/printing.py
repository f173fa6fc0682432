"""The recipe's results: intervals and ratios of what was measured, as tables, for JSON and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.measure.statistics import Interval, median_interval, paired_ratio
from recipes.studies.enzyme_microbenchmarks.measuring import BY_TORCH, ENZYME, OWN, PRIMAL, REF, Measured

PUBLISHED = {"conference": 4.2, "preprint": 4.5}
"""Geometric means of Ref/Enzyme in the abstracts of Moses and Churavy (NeurIPS 2020; arXiv 2010.01709)."""

RATIOS = {"Enzyme/primal": (ENZYME, PRIMAL), "Ref/Enzyme": (REF, ENZYME), "Enzyme/own": (ENZYME, OWN)}


def intervals(measured: Measured) -> dict[str, Interval]:
    """Milliseconds of every variant that there is."""
    return {name: median_interval([1e3 * s for s in seconds]) for name, seconds in measured.seconds.items()}


def ratio(measured: Measured, name: str) -> Interval | None:
    """One of RATIOS, from pairs of the same round; None if one of the two is absent."""
    a, b = RATIOS[name]
    if a not in measured.seconds or b not in measured.seconds:
        return None
    return paired_ratio(measured.seconds[a], measured.seconds[b])


def geometric_mean(all_measured: Sequence[Measured]) -> Interval | None:
    """Of Ref/Enzyme over the benchmarks that have both: of every round, then their median with its interval."""
    pairs = [(f.seconds[REF], f.seconds[ENZYME]) for f in all_measured if ratio(f, "Ref/Enzyme") is not None]
    if not pairs:
        return None
    logs = np.log(np.array(pairs)).transpose(1, 0, 2)
    return median_interval(np.exp((logs[0] - logs[1]).mean(axis=0)))


def tables(all_measured: Sequence[Measured]) -> str:
    """Times, ratios with checks, and the geometric mean beside the published ones."""
    times, ratios = (
        [["ms", PRIMAL, ENZYME, REF, OWN, ""]],
        [["", *RATIOS, "MiB, Enzyme", "MiB, Ref", "differ by", "FD"]],
    )
    for measured in all_measured:
        here, problem = intervals(measured), measured.problem
        cells = [_cell(here.get(name), measured.absent.get(name, "")) for name in (PRIMAL, ENZYME, REF, OWN)]
        own = "PyTorch" if problem.name in BY_TORCH else "C++ by hand"
        times.append([f"{problem.title} ({problem.size})", *cells, f"own: {own}"])
        memory = [f"{measured.memory[name]:.0f}" if name in measured.memory else "" for name in (ENZYME, REF)]
        checks = [f"{measured.difference:.0e}", f"{measured.finite_difference:.0e}"]
        ratios.append(
            [problem.title, *(_cell(ratio(measured, name), _why(measured, name)) for name in RATIOS), *memory, *checks]
        )
    return "\n".join([*_aligned(times), "", *_aligned(ratios), "", *mean_lines(all_measured)])


def mean_lines(all_measured: Sequence[Measured]) -> list[str]:
    """The geometric mean of Ref/Enzyme, what was published, and what is wrong."""
    mean = geometric_mean(all_measured)
    count = sum(ratio(f, "Ref/Enzyme") is not None for f in all_measured)
    published = ", ".join(f"{value}x ({where})" for where, value in PUBLISHED.items())
    line = (
        f"geometric mean of Ref/Enzyme over {count} of {len(all_measured)}: {_cell(mean, 'none')}; "
        f"published: {published}"
    )
    return [line, *(f"WRONG: {line}" for measured in all_measured for line in measured.wrong)]


def _why(measured: Measured, name: str) -> str:
    return next((measured.absent[variant] for variant in RATIOS[name] if variant in measured.absent), "")


def _cell(value: Interval | None, otherwise: str) -> str:
    if value is None:
        return otherwise
    return f"{value.median:.3g}" + ("" if value.low is None else f" [{value.low:.3g}, {value.high:.3g}]")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    padded = ([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows)
    return ["  ".join(row).rstrip() for row in padded]


def as_json(all_measured: Sequence[Measured], about: dict[str, Any]) -> dict[str, Any]:
    """All that is printed, and every sample."""
    rows = [
        {
            "benchmark": f.problem.name,
            "size": f.problem.size,
            "seconds": f.seconds,
            "memory_mib": f.memory,
            "absent": f.absent,
            "difference": f.difference,
            "finite_difference": f.finite_difference,
            "wrong": f.wrong,
            "milliseconds": {name: list(interval) for name, interval in intervals(f).items()},
            "ratios": {name: None if (quotient := ratio(f, name)) is None else list(quotient) for name in RATIOS},
        }
        for f in all_measured
    ]
    mean = geometric_mean(all_measured)
    return {
        "about": about,
        "published": PUBLISHED,
        "geometric_mean": None if mean is None else list(mean),
        "rows": rows,
    }


def plot(all_measured: Sequence[Measured], path: Path) -> None:
    """Ref/Enzyme of every benchmark with its interval, on a logarithmic axis; the ending says which kind of file."""
    from matplotlib.figure import Figure

    here = [(f.problem.title, quotient) for f in all_measured if (quotient := ratio(f, "Ref/Enzyme")) is not None]
    figure = Figure(figsize=(7, 0.45 * len(here) + 1.8), layout="constrained")
    axes = figure.subplots()
    middle = [quotient.median for _, quotient in here]
    low, high = ([getattr(quotient, end) or quotient.median for _, quotient in here] for end in ("low", "high"))
    errors = np.array([np.subtract(middle, low), np.subtract(high, middle)])
    gains = np.subtract(middle, 1)
    axes.barh([title for title, _ in here], gains, left=1, xerr=errors, color="#4878a8", capsize=3)
    mean = geometric_mean(all_measured)
    if mean is not None:
        axes.axvline(mean.median, color="#b04030", label=f"geometric mean {mean.median:.2f}")
    for (where, value), style in zip(PUBLISHED.items(), ("--", ":"), strict=True):
        axes.axvline(value, color="black", linestyle=style, linewidth=1, label=f"published, {where}: {value}")
    axes.set(xscale="log", xlabel="Ref/Enzyme: gain by optimising before differentiating")
    axes.set_xticks(ticks := [0.5, 1, 2, 5, 10, 20, 50], [f"{tick:g}" for tick in ticks])
    axes.set_xlim(min(0.7, *low) * 0.9, max(5, *high) * 1.2)
    axes.invert_yaxis()
    figure.legend(fontsize="small", loc="outside lower center", ncols=3)
    figure.savefig(path)
