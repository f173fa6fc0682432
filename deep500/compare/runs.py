"""``deep500 compare A B``: two finished runs of one recipe. What differed between them, and did it matter?

The differences come first: recipe, data, environment. Then every series of times that both have. What differs between
launches is part of each interval (:mod:`deep500.measure.launch_comparison`): with few of them there is no verdict
unless it is known how far launches lie apart, declared or from earlier runs beside these
(:mod:`deep500.compare.history`). Runs that were taken apart cannot show what the machine changed in between; the two
sides of ``deep500 run A --against B`` were taken in turns and are compared launch by launch.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.differences import as_lines, short
from deep500.compare.history import floor_from_earlier
from deep500.compare.quality import QualityComparison, compare_qualities
from deep500.errors import ResultsError
from deep500.measure.comparison import EQUIVALENT, FASTER, MARGIN, SLOWER, UNRESOLVED, holm, verdict
from deep500.measure.fingerprint import VOLATILE, differences
from deep500.measure.launch_comparison import FEWEST_ALONE, Floor, LaunchComparison, compare_launches
from deep500.measure.launches import over_launches
from deep500.measure.pairs import control_bias
from deep500.measure.sequential import FEWEST, anytime_p, anytime_pairs, anytime_ratio, depends
from deep500.measure.statistics import Interval
from deep500.measure.steady import SteadyState
from deep500.notebooks import folded
from deep500.recipe.options import TURNS
from deep500.results.files import read_json, read_lines
from deep500.results.quiet import disturbed, lower_series
from deep500.results.record import MANIFEST, METRICS, SUMMARY
from deep500.results.samples import SampleStore
from deep500.results.stats import STATS, compute, share_a_process
from deep500.results.verify import verify

SAME_OR_FASTER, IS_WORSE, IS_UNRESOLVED, INVALID = 0, 1, 2, 3
HEADLINE = "step"

SIGNS = "a bet on the signs of pairs, valid at every look"
"""The test of pairs that took turns."""

COMPARED = ("resolved", "recipe_sha256", "data", "seeds", "backend", "device", "ranks", "environment")
"""Parts of the manifest whose differences are shown."""


@dataclass(frozen=True)
class SeriesComparison:
    """One series of times in both runs.

    Attributes:
        series: its name.
        ratio: reported median of the second over that of the first (in turns: the median of the pairs' ratios).
        p: Holm-corrected p value of the test that belongs to the interval; None without one.
        verdict: what the second is, compared with the first.
        basis: what it holds over: ``"over 12 launches"`` or ``"12 pairs of launches in turns"``.
        reason: why there can be no verdict; empty if nothing but the figures stands against one.
        test: what the p value belongs to; empty without one.
        medians: of the first and the second, in seconds (in turns: over the launches of the pairs).
        samples: of data in one time of each; where they are not alike, ratio and medians are those of one sample.
    """

    series: str
    ratio: Interval
    p: float | None
    verdict: str
    basis: str
    reason: str = ""
    test: str = ""
    medians: tuple[float, float] = (math.nan, math.nan)
    samples: tuple[float, float] = (1.0, 1.0)

    @property
    def by_sample(self) -> bool:
        """Whether the times of both are of different work, so that those of one sample are compared."""
        return self.samples[0] != self.samples[1]

    def __str__(self) -> str:
        return self.sentence(self.reason)

    def sentence(self, reason: str) -> str:
        """Say what was found, with a reason beside it."""
        words = {FASTER: "faster", SLOWER: "slower", EQUIVALENT: "equivalent"}.get(self.verdict, "unresolved")
        why = f" ({reason})" if reason else ""
        ends = "" if self.ratio.low is None else f" [{self.ratio.low:.3f}, {self.ratio.high:.3f}]"
        p = "not tested" if self.p is None else f"p {self.p:.2g}"
        return f"{self.series}: {words}{why}, time ratio {self.ratio.median:.3f}{ends} ({p}, {self.basis})"


@dataclass(frozen=True)
class RunComparison:
    """Two runs: what differs, how their times and their metrics compare.

    Attributes:
        changed: what differs in recipe, data, number of ranks and environment, by dotted name.
        series: one comparison per series of times.
        qualities: one comparison per metric of quality, which decides before times do.
        metrics: per metric its values in both runs.
        units: of the metrics.
        remarks: what a reader must know of the comparison as a whole, such as what it cannot know.
    """

    first: Path
    second: Path
    changed: Mapping[str, tuple[Any, Any]]
    series: tuple[SeriesComparison, ...]
    qualities: tuple[QualityComparison, ...]
    metrics: Mapping[str, tuple[Any, Any]]
    remarks: tuple[str, ...] = ()
    units: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 the second is as fast or faster, 1 slower or worse, 2 unresolved.

        Quality decides first: where it is lost, the times do not matter; where it looks lost and too few seeds can
        tell, nothing is resolved. Of the times those of the steps are judged, else the first series.
        """
        if any(quality.is_lost for quality in self.qualities):
            return IS_WORSE
        if any(quality.is_open for quality in self.qualities):
            return IS_UNRESOLVED
        head = next(
            (compared for compared in self.series if compared.series == HEADLINE), next(iter(self.series), None)
        )
        if head is None or head.verdict == UNRESOLVED:
            return IS_UNRESOLVED
        return IS_WORSE if head.verdict == SLOWER else SAME_OR_FASTER

    def __str__(self) -> str:
        lines = [f"first:  {self.first}", f"second: {self.second}"]
        reasons = {compared.reason for compared in self.series}
        shared = reasons.pop() if len(reasons) == 1 and len(self.series) > 1 else ""
        sentences = [compared.sentence("" if shared else compared.reason) for compared in self.series]
        if self.qualities:
            lines += ["", "quality, second compared with first:", *(f"  {quality}" for quality in self.qualities)]
        lines += ["", "times, second compared with first:", *(f"  {sentence}" for sentence in sentences)]
        lines += [f"  none is judged: {shared}"] if shared else []
        lines += [f"  {remark}" for remark in self.remarks]
        judged = {quality.metric for quality in self.qualities}
        rest = [f"  {n}: {short(a)} -> {short(b)}" for n, (a, b) in self.metrics.items() if n not in judged]
        lines += ["", "metrics:", *rest] if rest else []
        lines += ["", "what differs:", *as_lines(self.changed)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return folded(f"{self.second.name} against {self.first.name}", str(self), opened=True)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        series = [
            {
                "series": s.series,
                "unit": "time of the second over that of the first",
                "ratio": s.ratio.median,
                "low": s.ratio.low,
                "high": s.ratio.high,
                "p": s.p,
                "test": s.test,
                "times": {
                    "first": s.medians[0],
                    "second": s.medians[1],
                    "unit": "s per sample" if s.by_sample else "s",
                },
                "verdict": s.verdict,
                "basis": s.basis,
                "reason": s.reason,
            }
            for s in self.series
        ]
        return {
            "first": str(self.first),
            "second": str(self.second),
            "changed": dict(self.changed),
            "qualities": [quality.as_dict() for quality in self.qualities],
            "series": series,
            "metrics": {
                name: {"first": first, "second": second, "unit": self.units.get(name, "")}
                for name, (first, second) in self.metrics.items()
            },
            "remarks": list(self.remarks),
            "exit_code": self.exit_code,
        }


class InvalidComparison(ResultsError):
    """The runs cannot be compared: one was altered, is unfinished, or is of another recipe."""

    exit_code = INVALID


def compare_runs(
    first: Path, second: Path, margin: float = MARGIN, floor: Floor | None = None, control: Path | None = None
) -> RunComparison:
    """Compare two finished runs of one recipe, or the sides of one ``deep500 run A --against B``.

    Args:
        first, second: results folders; the first is the base.
        margin: the smallest effect of interest.
        floor: how far launches of the same work lie apart; measured from earlier runs if not declared.
        control: of runs in turns, the folder of the first one's second self (A/A).

    Raises:
        InvalidComparison: a folder is unfinished or was altered, or the recipes have different names.
    """
    manifests = [_sound_manifest(path) for path in (first, second)]
    names = [manifest.get("recipe") for manifest in manifests]
    in_turns = _in_turns(manifests)
    if names[0] != names[1] and not in_turns:
        raise InvalidComparison(f"got runs of {names[0]!r} and {names[1]!r}; expected two of one recipe: choose others")
    facts = [
        {**{key: _stable(manifest.get(key)) for key in COMPARED}, "processes": _of_processes(manifest)}
        for manifest in manifests
    ]
    runs = [FinishedRun(path, manifest) for path, manifest in zip((first, second), manifests, strict=True)]
    shared = [name for name in runs[0].stats if name in runs[1].stats]
    if in_turns:
        again = [] if control is None else [FinishedRun(control, _sound_manifest(control))]
        series = _compare_turns([*runs, *again], shared, margin)
    else:
        series = _compare_apart(runs, shared, margin, floor)
    remarks = (
        [*_scatter_remark(runs), *_remarks_in_turns(runs, shared)]
        if in_turns
        else [_taken_apart(manifests, any(run.share_a_process() for run in runs))]
    )
    summaries = [read_json(path / SUMMARY) for path in (first, second)]
    metrics = [{m["name"]: m["value"] for m in summary.get("metrics", [])} for summary in summaries]
    qualities = compare_qualities(manifests, summaries)
    both = {name: (metrics[0][name], metrics[1][name]) for name in metrics[0] if name in metrics[1]}
    units = {m["name"]: str(m.get("unit") or "") for m in summaries[1].get("metrics", [])}
    return RunComparison(first, second, differences(*facts), series, qualities, both, tuple(remarks), units)


def _of_processes(manifest: Mapping[str, Any]) -> dict[str, Any]:
    known = manifest.get("processes") or {}
    return {name: known.get(name) for name in ("transport", "library", "scheme")}


def _stable(value: Any) -> Any:
    return {k: v for k, v in value.items() if k != VOLATILE} if isinstance(value, dict) else value


def _sound_manifest(path: Path) -> dict[str, Any]:
    try:
        problems = verify(path)
    except ResultsError as error:
        raise InvalidComparison(str(error)) from error
    if problems:
        raise InvalidComparison(f"{path}: got a run that was altered ({problems[0]}); expected it as it was sealed")
    return read_json(path / MANIFEST)


class FinishedRun:
    """The times of one finished run, as its figures report them."""

    def __init__(self, path: Path, manifest: Mapping[str, Any], stats: Mapping[str, Any] | None = None) -> None:
        self.path, self.manifest = path, manifest
        known = read_json(path / STATS)["series"] if stats is None and (path / STATS).exists() else {}
        self.stats: Mapping[str, Any] = known if stats is None else stats

    def launches(self, series: str) -> list[np.ndarray]:
        """Samples of every launch after its warm-up, in seconds."""
        return kept_launches(SampleStore(self.path), series, self.stats[series])

    def by_launch(self, series: str) -> dict[int, float]:
        """The median of every launch, by its number."""
        return {launch["launch"]: launch["median"] for launch in self.stats[series]["launches"]}

    def median(self, series: str) -> float:
        """The median that the run reports."""
        reported = (estimate["value"] for estimate in self.stats[series]["estimates"] if estimate["q"] == 0.5)
        value = next(reported, None)
        return over_launches(self.launches(series)).estimate.value if value is None else float(value)

    def unsteady(self, series: str) -> list[str]:
        """The state of every launch that is not steady, in words."""
        states = [launch["cut"]["state"] for launch in self.stats[series]["launches"]]
        return [state for state in states if not SteadyState(0, state).is_steady]

    def disturbed(self, series: str) -> list[str]:
        """Return what disturbed its measurement, in words; empty on a quiet machine, or where that is not known."""
        return list(self.stats[series].get("disturbed", ()))

    def samples_each(self, series: str) -> float | None:
        """Return the number of samples of data in one time; None where that is not declared."""
        declared: float | None = (self.manifest.get("series") or {}).get(series, {}).get("samples_each")
        return declared

    def share_a_process(self) -> bool:
        """Return whether two of its launches ran in one process."""
        return share_a_process(read_lines(self.path / METRICS))

    def processes(self, series: str) -> int:
        """Return how many processes its launches surely ran in."""
        known = read_lines(self.path / METRICS)
        return len({(line.get("clock") or {}).get("process") for line in known} - {None}) or 1


def _compare_apart(
    runs: Sequence[FinishedRun], shared: Sequence[str], margin: float, floor: Floor | None
) -> tuple[SeriesComparison, ...]:
    by_series = {name: _apart(name, runs, floor) for name in shared}
    tested = _corrected({name: compared.p for name, compared in by_series.items()})
    comparisons = []
    for name, compared in by_series.items():
        p = tested[name]
        word, sizes = verdict(compared.ratio, p, 0.0, margin), _work(name, runs)[0]
        first, second = (run.median(name) / size for run, size in zip(runs, sizes, strict=True))
        about = compared.basis, compared.reason, compared.test
        work = sizes[0], sizes[1]
        comparisons.append(SeriesComparison(name, compared.ratio, p, word, *about, (first, second), work))
    return tuple(comparisons)


def _corrected(p_values: Mapping[str, float | None]) -> dict[str, float | None]:
    """Correct the series for each other (Holm), but not the steps, which decide, as was known before any was measured:
    how many other series a run recorded changes no verdict on them."""
    rest = [name for name in p_values if name != HEADLINE]
    return {**p_values, **dict(zip(rest, holm([p_values[name] for name in rest]), strict=True))}


def _apart(name: str, runs: Sequence[FinishedRun], floor: Floor | None) -> LaunchComparison:
    """One series of two runs that were taken one after the other."""
    work, unit = _work(name, runs)
    groups = [[launch / size for launch in run.launches(name)] for run, size in zip(runs, work, strict=True)]
    medians = [run.median(name) / size for run, size in zip(runs, work, strict=True)]
    fewest = min(map(len, groups))
    known = floor or floor_from_earlier([run.path for run in runs], name, fewest)
    processes = [run.processes(name) if floor else 1 for run in runs]  # earlier runs are measured as wholes
    shared = any(run.share_a_process() for run in runs)
    result = compare_launches(
        groups[0], groups[1], known, (medians[0], medians[1]), (processes[0], processes[1]), shared=shared
    )
    few = (
        ""
        if known or (fewest >= FEWEST_ALONE and not shared)
        else f": repeat with --repeat {FEWEST_ALONE}, or take turns with --against"
    )
    reason = _observed(name, runs) or (result.reason and result.reason + few)
    if reason:
        ratio = Interval(result.ratio.median, None, None, fewest)
        return LaunchComparison(ratio, None, result.basis + unit, reason)
    return LaunchComparison(result.ratio, result.p, result.basis + unit, test=result.test)


def _work(name: str, runs: Sequence[FinishedRun]) -> tuple[list[float], str]:
    """Return what times are divided by so that they are of the same work, and how to say so."""
    sizes = [run.samples_each(name) for run in runs]
    if None in sizes or sizes[0] == sizes[1]:
        return [1.0, 1.0], ""
    return [float(size) for size in sizes if size is not None], f", per sample of {sizes[0]} and {sizes[1]} a {name}"


def _observed(name: str, runs: Sequence[FinishedRun]) -> str:
    """Return why the times of a run are observations, which have no verdict: not steady, or a busy machine."""
    words = []
    for place, run in zip(("first", "second"), runs, strict=True):
        words += [f"the {place} is not steady: {state}" for state in run.unsteady(name)[:1]]
        words += [f"the {place} was measured on a busy machine: {what}" for what in run.disturbed(name)[:1]]
    return ", ".join(words)


def look_at(paths: Sequence[Path], apart: Sequence[int], margin: float = MARGIN) -> tuple[SeriesComparison, ...]:
    """Compare launches that took turns while their runs are not finished yet.

    Args:
        paths: results folders of the base, of the run that is judged, and perhaps of the control.
        apart: seeds that were not trained in turns.
        margin: the smallest effect of interest.
    """
    runs = []
    for path in paths:
        manifest = read_json(path / MANIFEST)
        curve = read_lines(path / METRICS)
        stats = compute(SampleStore(path), manifest.get("series", {}), curve)
        stats = lower_series(stats, disturbed(curve, manifest))
        runs.append(FinishedRun(path, {**manifest, TURNS: {"apart": list(apart)}}, stats["series"]))
    shared = [name for name in runs[0].stats if name in runs[1].stats]
    return _compare_turns(runs, shared, margin)


def _compare_turns(runs: Sequence[FinishedRun], shared: Sequence[str], margin: float) -> tuple[SeriesComparison, ...]:
    times, units, work = [{} for _ in runs], {}, {}  # type: ignore[var-annotated]
    apart = {seed for run in runs for seed in run.manifest[TURNS].get("apart", ())}
    for name in shared:
        (first, second), units[name] = _work(name, runs[:2])
        work[name] = first, second
        for run, size, side in zip(runs, (first, second, first), times, strict=False):
            side[name] = {seed: median / size for seed, median in run.by_launch(name).items() if seed not in apart}
    busy = any(run.disturbed(name) for run in runs for name in shared)
    compared = compare_pairs(times[0], times[1], margin, times[2] if len(times) > 2 else None, busy)
    bases = {series.series: series.basis + units[series.series] for series in compared}
    return tuple(dataclasses.replace(s, basis=bases[s.series], samples=work[s.series]) for s in compared)


def compare_pairs(
    first: Mapping[str, Mapping[int, float]],
    second: Mapping[str, Mapping[int, float]],
    margin: float = MARGIN,
    control: Mapping[str, Mapping[int, float]] | None = None,
    busy: bool = False,
) -> tuple[SeriesComparison, ...]:
    """Compare launches that took turns: per series the ratios of the launches with the same number.

    The steps decide, and are not corrected for the other series (:func:`_corrected`). All hold at every look
    (:mod:`deep500.measure.sequential`); where pairs depend on each other, or are too few to tell, there is no verdict.

    Args:
        first, second: per series the median of each launch by its number.
        margin: the smallest effect of interest.
        control: the first's second self in the same turns: what it is off by is no difference (A/A).
        busy: whether others used the machine: then an interval must leave 1 out by more than the margin.

    Example:
        >>> times = {number: 1.0 + 0.01 * number for number in range(12)}
        >>> print(compare_pairs({"step": times}, {"step": {n: 1.1 * t for n, t in times.items()}})[0])
        step: slower, time ratio 1.100 [1.100, 1.100] (p 0.0018, over 12 pairs of launches in turns)
    """
    sides = {name: _pairs(first[name], second[name]) for name in first if name in second}
    sides = {name: pairs for name, pairs in sides.items() if pairs[0]}
    logs = {name: np.log(b) - np.log(a) for name, (a, b) in sides.items()}
    tested = _corrected({name: anytime_p(ratios) for name, ratios in logs.items()})
    comparisons = []
    for name, (a, b) in sides.items():
        again = None if control is None else anytime_ratio(*_pairs(first[name], control[name]))
        noise = 0.0 if again is None else control_bias(again)
        if busy and noise is not None:
            noise = max(noise, math.log1p(margin))
        ratio, p, reason = anytime_ratio(a, b), tested[name], depends(logs[name])
        basis = f"over {len(a)} pair{'s' * (len(a) > 1)} of launches in turns"
        if again is not None:
            ends = "" if again.low is None else f" [{again.low:.3f}, {again.high:.3f}]"
            basis += f"; A/A control {again.median:.3f}{ends}"
        word = verdict(ratio, p, noise, margin) if not reason else UNRESOLVED
        medians = float(np.median(a)), float(np.median(b))
        comparisons.append(SeriesComparison(name, ratio, p, word, basis, reason, SIGNS, medians))
    return tuple(comparisons)


def _pairs(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[list[float], list[float]]:
    both = [number for number in first if number in second]
    return [first[number] for number in both], [second[number] for number in both]


def _in_turns(manifests: Sequence[Mapping[str, Any]]) -> bool:
    ids = [(manifest.get(TURNS) or {}).get("id") for manifest in manifests]
    return ids[0] is not None and ids[0] == ids[1]


def _scatter_remark(runs: Sequence[FinishedRun]) -> list[str]:
    """Say how many pairs would show a difference of the size that this comparison may have missed."""
    if any(HEADLINE not in run.stats for run in runs):
        return []
    first, second = _pairs(runs[0].by_launch(HEADLINE), runs[1].by_launch(HEADLINE))
    logs = np.log(second) - np.log(first)
    if logs.size < FEWEST or not np.isfinite(logs).all():
        return []
    sd = float(np.std(logs, ddof=1))
    needed = ", ".join(f"{effect:.0%} takes {anytime_pairs(effect, sd)} pairs" for effect in (0.05, 0.03, 0.02))
    return [f"step: pairs lie {100 * sd:.2g} % apart; to find a difference four times in five, {needed}"]


def _remarks_in_turns(runs: Sequence[FinishedRun], shared: Sequence[str]) -> list[str]:
    """Say how many launches were not steady, and what disturbed them, which random turns spread over both sides."""
    busy = list(dict.fromkeys(what for run in runs for name in shared for what in run.disturbed(name)))
    odd = {name: [state for run in runs for state in run.unsteady(name)] for name in shared}
    unsteady = [
        f"{name}: {len(states)} of {sum(len(run.stats[name]['launches']) for run in runs)} launches were not steady "
        f"({', '.join(dict.fromkeys(states))}); turns in random order spread that over both sides"
        for name, states in odd.items()
        if states
    ]
    if busy:
        wide = f"which makes intervals wide; words take one beyond 1 by {MARGIN:.0%}"
        unsteady.append(f"the machine was busy ({'; '.join(busy)}), {wide}")
    return unsteady


def _taken_apart(manifests: Sequence[Mapping[str, Any]], shared: bool) -> str:
    """Say what runs that were not taken in turns cannot show."""
    begun = [manifest.get("started") for manifest in manifests]
    apart = ""
    if all(isinstance(moment, str) for moment in begun):
        a, b = (datetime.datetime.fromisoformat(str(moment)) for moment in begun)
        apart = f" (begun {abs(b - a)} h apart)"
    process = ", nor what differs between processes (the launches of a run share one)" if shared else ""
    return (
        f"taken apart{apart}: what the machine changed in between is in no interval{process}; "
        "deep500 run A --against B sees it"
    )


def kept_launches(store: SampleStore, series: str, stat: Mapping[str, Any]) -> list[np.ndarray]:
    """Samples of every launch after its warm-up, which ``stats.json`` cut, in the order in which they were taken."""
    steady = []
    order = {number: place for place, (_, number) in enumerate(store.names())}
    for launch in sorted(stat["launches"], key=lambda launch: order.get(launch["launch"], 0)):
        samples, cut = store.durations(series, launch["launch"]), launch["cut"]["index"]
        steady.append(samples[cut:] if cut < samples.size else samples)
    return steady
