"""``deep500 report DIR [DIR ...]``: one page for one run or several, with the first compared to each of the others."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.claims import ABOUT, run_claims
from deep500.compare.differences import in_groups
from deep500.compare.page import PAGE
from deep500.compare.quality import WORSE
from deep500.compare.runs import (
    HEADLINE,
    InvalidComparison,
    RunComparison,
    SeriesComparison,
    compare_runs,
    kept_launches,
)
from deep500.errors import ResultsError
from deep500.measure.comparison import FASTER, MARGIN, SLOWER, UNRESOLVED
from deep500.measure.launches import (
    LAUNCHES,
    SHARED,
    WITHIN,
    basis,
    launches_differ,
    launches_needed,
    over_launches,
    own_quantile,
)
from deep500.measure.quantiles import Estimate
from deep500.progress import progress
from deep500.report.claims import plot_claims
from deep500.report.figures import Figure
from deep500.report.page import metric_row, render, render_views, view
from deep500.report.plot import BOTTOM, TOP, Axis, Plot, place_names, room_for
from deep500.results.command import add_json, say_written
from deep500.results.files import read_json, write_atomic
from deep500.results.layout import check_layout
from deep500.results.record import Record
from deep500.results.rules import NOT_APPLICABLE, RULES, check, summary_of
from deep500.results.samples import SampleStore
from deep500.results.stats import STATS

QUANTILES = tuple(round(0.05 * k, 2) for k in range(1, 20))
MEDIAN = QUANTILES.index(0.5)
ENOUGH = 40
"""Series with fewer samples in either run have no plot of quantile differences."""

MOST_PLOTS = 8
PAIRWISE = 0.975
"""Level of each of two intervals that hold together with 95 % (Bonferroni)."""


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``report``; returns what executes it."""
    add = parser.add_argument
    add("folders", type=Path, nargs="+", metavar="folder", help="results folder; the first is the base")
    add("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help="(./report.html)")
    add_json(parser)
    return _report


def _report(args: argparse.Namespace) -> int:
    with progress("writing the page", quiet=args.json):
        write_atomic(args.out, render_runs(args.folders))
    say_written(args, args.out)
    return 0


def render_runs(folders: Sequence[Path]) -> str:
    """The page about these runs as text; each is compared with the first.

    Runs that cannot be compared (another recipe, altered, unfinished) are shown, and the page says why not.

    Raises:
        ResultsError: a folder is none of a run, or is named twice.
    """
    for folder in folders:
        if (folder / PAGE).is_file():
            raise ResultsError(
                f"got {folder}, a comparison of frameworks; expected a run's folder: open {folder / PAGE}"
            )
    records = [Record.open(folder) for folder in folders]
    for folder in folders:
        check_layout(folder)
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise ResultsError(f"got {', '.join(map(str, folders))}; expected different runs: name each of them once")
    if len(records) == 1:
        return render(records[0])
    names = _names(records)
    views = [view(record, name) for record, name in zip(records, names, strict=True)]
    pairs = [_pair(folders[0], folder, views[0], other) for folder, other in zip(folders[1:], views[1:], strict=True)]
    return render_views(views, {"base": names[0], "pairs": pairs})


def _names(records: Sequence[Record]) -> list[str]:
    """Names that the runs were given, where no two have one name; else the shortest ends of the paths that differ."""
    titles = [record.titles()["name"] for record in records]
    parts = [record.path.resolve().parts for record in records]
    ends = ["/".join(part) for part in parts]
    for length in range(1, max(map(len, parts))):
        ends = ["/".join(part[-length:]) for part in parts]
        if len(set(ends)) == len(ends):
            break
    names = [name or end for name, end in zip(titles, ends, strict=True)]
    return names if len(set(names)) == len(names) else ends


def _pair(first: Path, second: Path, base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Collect what the template shows of one comparison."""
    labels = list(dict.fromkeys([*base["labels"], *other["labels"]]))
    about = {"name": other["name"], "labels": labels, "error": ""}
    try:
        comparison = compare_runs(first, second)
    except InvalidComparison as error:
        return {**about, "error": str(error)}
    head, figures = _headline(comparison), _figures(comparison, other["name"])
    medians = {s.series: [_median(shown["series"], s.series) for shown in (base, other)] for s in comparison.series}
    claims = [*run_claims(comparison.series, medians), *plot_claims(figures)]
    metrics = [{m["name"]: metric_row(m) for m in shown["summary"]["metrics"]} for shown in (base, other)]
    return {
        **about,
        "word": _word(comparison, head),
        "qualities": comparison.qualities,
        "unlike": _unlike(base, other),
        "sentence": _sentence(comparison, base["name"], other["name"]),
        "rules": {
            name: (finding, summary_of(RULES[name]))
            for name, finding in check(second, claims, ABOUT).items()
            if finding.status != NOT_APPLICABLE
        },
        "changed": in_groups(comparison.changed, 200),
        "series": comparison.series,
        "medians": medians,
        "metrics": {name: (metrics[0][name], metrics[1][name]) for name in comparison.metrics},
        "figures": figures,
    }


def _unlike(base: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Series whose samples hold different amounts of work, in words."""
    declared = [shown["manifest"].get("series") or {} for shown in (base, other)]
    work = [
        (name, *(side[name].get("samples_each") for side in declared)) for name in declared[0] if name in declared[1]
    ]
    words = (
        "their times are of different work. Ratios, their plot and the verdict are of one sample; medians and all "
        "other plots show times as they are."
    )
    return [
        f"One {name} is {before} samples in {base['name']} and {after} in {other['name']}: {words}"
        for name, before, after in work
        if before != after
    ]


def _median(series: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """The estimate of a series' median: a ratio stands beside the absolute times that it is made of (rule R1)."""
    return next((estimate for estimate in series.get(name, {}).get("estimates", []) if estimate["q"] == 0.5), None)


def _headline(comparison: RunComparison) -> SeriesComparison | None:
    """The series by which runs are judged: the steps, else the first."""
    return next(
        (series for series in comparison.series if series.series == HEADLINE), next(iter(comparison.series), None)
    )


def _word(comparison: RunComparison, head: SeriesComparison | None) -> str:
    """The word over a comparison: whether quality was lost, or may be, else what became of the times."""
    if any(quality.is_lost for quality in comparison.qualities):
        return WORSE
    if any(quality.is_open for quality in comparison.qualities):
        return UNRESOLVED
    return head.verdict if head else UNRESOLVED


def _sentence(comparison: RunComparison, base: str, other: str) -> str:
    """The verdict on quality where it is lost or may be, then that on the headline series, in words."""
    lost = [str(quality) for quality in comparison.qualities if quality.is_lost or quality.is_open]
    return " ".join([*(f"Quality of {other}: {text}." for text in lost), _of_times(comparison, base, other)])


def _of_times(comparison: RunComparison, base: str, other: str) -> str:
    """The verdict on the headline series in words; the word itself comes from :func:`verdict` alone."""
    head = _headline(comparison)
    if head is None:
        return f"{other} and {base} have no series of times in common: nothing is said about speed."
    size = f"time ratio {head.ratio.median:.3f}"
    if head.ratio.low is not None and head.ratio.high is not None:
        size += f" [{head.ratio.low:.3f}, {head.ratio.high:.3f}], 95 % CI"
    else:
        size += ", observation"
    known = {
        FASTER: f"{other} is faster than {base}",
        SLOWER: f"{other} is slower than {base}",
        UNRESOLVED: f"Unresolved: {other} may be faster or slower than {base}",
    }
    words = known.get(head.verdict, f"{other} and {base} are equivalent")
    p = "not tested" if head.p is None else f"p {head.p:.2g}"
    why = f"; {head.reason}" if head.reason else ""
    remarks = "".join(f" {remark[0].upper()}{remark[1:]}." for remark in comparison.remarks)
    return f"{words} ({head.series}: {size}; {p}; {head.basis}{why}).{remarks}"


def _figures(comparison: RunComparison, other: str) -> list[Figure]:
    figures = [_ratios(comparison, other)] if comparison.series else []
    stores = [SampleStore(path) for path in (comparison.first, comparison.second)]
    stats = (
        [read_json(path / STATS)["series"] for path in (comparison.first, comparison.second)]
        if comparison.series
        else []
    )
    for compared in comparison.series[:MOST_PLOTS]:
        samples = [
            kept_launches(store, compared.series, stat[compared.series])
            for store, stat in zip(stores, stats, strict=True)
        ]
        if all(sum(map(len, side)) >= ENOUGH and min(launch.min() for launch in side) > 0 for side in samples):
            shared = any(
                (_median(stat, compared.series) or {"ci": {}})["ci"].get("cluster") == SHARED for stat in stats
            )
            figures.append(quantile_differences(compared.series, samples[0], samples[1], shared))
    return figures


def _ratios(comparison: RunComparison, other: str) -> Figure:
    """Every series' ratio with its interval, beside 1 and the smallest difference of interest."""
    rows = [
        [
            None if end is None else 100 * (end - 1)
            for end in (compared.ratio.median, compared.ratio.low, compared.ratio.high)
        ]
        for compared in comparison.series
    ]
    ends = [v for row in rows for v in row if v is not None and math.isfinite(v)]
    titles = [compared.series + ", by sample" * compared.by_sample for compared in comparison.series]
    names = place_names(titles)
    text = ", ".join(
        f"{title} {100 * (compared.ratio.median - 1):+.3g} %"
        for title, compared in zip(titles, comparison.series, strict=True)
    )
    plot = Plot(
        Axis.around([*ends, 0, 100 * MARGIN, -100 * MARGIN], "change of the median time (%)"),
        Axis(-len(rows) + 0.5, 0.5, "", labels=names),
        f"time of {other} compared with the first run: {text}",
        height=TOP + BOTTOM + 34 * max(2, len(rows)),
        left=room_for(names),
    )
    plot.shade(-100 * MARGIN, 100 * MARGIN)
    plot.rule(x=0.0)
    for place, (middle, low, high) in enumerate(rows):
        if low is not None and high is not None:
            plot.line([low, high], [-place, -place], place, "thick")
        if middle is not None and math.isfinite(middle):
            plot.points([middle], [-place], place, 9)
    n = min(series.ratio.n for series in comparison.series)
    return Figure.from_plot(
        "Is it faster, and by how much?",
        plot,
        f"left of 0 is faster; n = {n} or more; line: 95 % "
        f"interval, grey: differences up to {100 * MARGIN:g} %, which do not matter",
        n,
        0.95,
    )


def quantile_differences(
    series: str, first: Sequence[np.ndarray], second: Sequence[np.ndarray], shared: bool = False
) -> Figure:
    """By how much every quantile of the second differs: a difference of the medians may hide one of the tails.

    Quantiles are those that tables report: of launches, where both runs have enough of them. The band holds over these,
    else within those that were measured; there is none where few launches differ among themselves.

    Args:
        series: its name.
        first, second: positive samples of every launch in the order in which they were taken, after the warm-up.
        shared: whether launches of a run share a process, so that nothing holds over launches.
    """
    differ = [launches_differ(side) for side in (first, second)]
    pairs_of_estimates = [
        [over_launches(side, q, PAIRWISE, p, shared=shared) for side, p in zip((first, second), differ, strict=True)]
        for q in QUANTILES
    ]
    over = not shared and min(len(first), len(second)) >= launches_needed()
    fits = [
        all(estimate.standing != "observation" and (estimate.cluster == LAUNCHES) >= over for estimate in pair)
        for pair in pairs_of_estimates
    ]
    pairs = [(a.estimate, b.estimate) for a, b in pairs_of_estimates]
    middle = [
        100 * (_of_launches(second, q, b.value, over) / _of_launches(first, q, a.value, over) - 1)
        for q, (a, b) in zip(QUANTILES, pairs, strict=True)
    ]
    percent = [100 * q for q in QUANTILES]
    bands = _bands(pairs, fits)
    ends = [end for _, low, high in bands for end in (*low, *high)]
    faster = any(end < 0 for _, _, high in bands for end in high)
    slower = any(end > 0 for _, low, _ in bands for end in low)
    crossing = "cross: some are faster, others slower" if faster and slower else "do not cross"
    plot = Plot(
        Axis(0, 100, "quantile (%)", whole=True),
        Axis.around([*middle, *ends, 0.0], "difference (%)"),
        f"difference of the quantiles of {series}: {middle[0]:+.3g} % at 5 %, {middle[MEDIAN]:+.3g} % at the "
        f"median, {middle[-1]:+.3g} % at 95 %; beyond the intervals they {crossing}",
    )
    plot.rule(y=0.0)
    for at, low, high in bands:
        plot.band(at, low, high)
    plot.line(percent, middle)
    plot.points(percent, middle, 0, 5)
    sizes = [sum(map(len, side)) for side in (first, second)]
    holds = basis(min(len(first), len(second)), LAUNCHES if over else WITHIN)
    band = (
        f"band: 95 % intervals {holds}, beyond which quantiles {crossing}"
        if bands
        else (f"no band: no interval that could be trusted {holds}")
    )
    return Figure.from_plot(
        f"{series}: is it faster for the quick ones and for the slow ones?",
        plot,
        f"below 0 is faster; n = {sizes[0]} and {sizes[1]}, n_eff of the medians "
        f"{pairs[MEDIAN][0].n_eff:.4g} and {pairs[MEDIAN][1].n_eff:.4g}; {band}",
        min(sizes),
        0.95,
    )


def _of_launches(launches: Sequence[np.ndarray], q: float, pooled: float, over: bool) -> float:
    """Median of the launches' own quantiles, where tables take it and all have one; else that of all samples."""
    values = [own_quantile(launch, q) for launch in launches] if over else [None]
    known = [value for value in values if value is not None]
    return float(np.median(known)) if len(known) == len(values) else pooled


def _bands(
    pairs: Sequence[tuple[Estimate, Estimate]], fits: Sequence[bool]
) -> list[tuple[list[float], list[float], list[float]]]:
    """Stretches of neighbouring quantiles that have an interval in both runs: where, low and high end, in percent."""
    pieces: list[tuple[list[float], list[float], list[float]]] = []
    joined = False
    for q, (a, b), fit in zip(QUANTILES, pairs, fits, strict=True):
        # both ends are divided by those of the first run, which must be positive for a ratio to mean anything
        if not fit or a.low is None or a.high is None or b.low is None or b.high is None or a.low <= 0:
            joined = False
            continue
        if not joined:
            pieces.append(([], [], []))
        joined = True
        for values, value in zip(
            pieces[-1], (100 * q, 100 * (b.low / a.high - 1), 100 * (b.high / a.low - 1)), strict=True
        ):
            values.append(value)
    return [piece for piece in pieces if len(piece[0]) > 1]
