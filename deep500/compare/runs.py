"""``deep500 compare A B``: two finished runs of one recipe. What differed between them, and did it matter?

The differences come first: recipe, data, environment. Then every series of times that both have. The runs were not
measured in turns, so the machine may have changed in between: with seven launches (seeds) or more on both sides they
are compared; with fewer, the samples that are worth something (one per autocorrelation time), and the result says that
it holds within these launches only. Where the few launches of a run differ among themselves, a difference between the
runs may be one between launches: unresolved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import ResultsError
from deep500.measure import launches
from deep500.measure.comparison import EQUIVALENT, FASTER, MARGIN, SLOWER, UNRESOLVED, holm, verdict
from deep500.measure.fingerprint import VOLATILE, differences
from deep500.measure.launches import LAUNCHES, WITHIN, LaunchEstimate, over_launches
from deep500.measure.quantiles import quantile
from deep500.measure.statistics import Interval
from deep500.results.files import read_json
from deep500.results.record import MANIFEST, SUMMARY
from deep500.results.samples import SampleStore
from deep500.results.stats import STATS
from deep500.results.verify import verify

SAME_OR_FASTER, IS_SLOWER, IS_UNRESOLVED, INVALID = 0, 1, 2, 3
HEADLINE = "step"
LEVEL = 0.975


@dataclass(frozen=True)
class SeriesComparison:
    """One series of times in both runs.

    Attributes:
        series: its name.
        ratio: median of the second over median of the first, with an interval that holds for both medians together.
        p: Holm-corrected p value of Mann and Whitney's test; None with too few samples.
        verdict: what the second is, compared with the first.
        basis: what it holds over: ``"over 12 launches"`` or ``"within one launch"``.
    """

    series: str
    ratio: Interval
    p: float | None
    verdict: str
    basis: str

    def __str__(self) -> str:
        words = {FASTER: "faster", SLOWER: "slower", EQUIVALENT: "equivalent"}.get(self.verdict, "unresolved")
        ends = "" if self.ratio.low is None else f" [{self.ratio.low:.3f}, {self.ratio.high:.3f}]"
        p = "not tested" if self.p is None else f"p {self.p:.2g}"
        return f"{self.series}: {words}, time ratio {self.ratio.median:.3f}{ends} ({p}, {self.basis})"


@dataclass(frozen=True)
class RunComparison:
    """Two runs: what differs, how their times and their metrics compare.

    Attributes:
        changed: what differs in recipe, data, number of ranks and environment, by dotted name.
        series: one comparison per series of times.
        metrics: per metric its values in both runs.
    """

    first: Path
    second: Path
    changed: Mapping[str, tuple[Any, Any]]
    series: tuple[SeriesComparison, ...]
    metrics: Mapping[str, tuple[Any, Any]]

    @property
    def exit_code(self) -> int:
        """0 the second is as fast or faster, 1 slower, 2 unresolved; judged by the steps, else by the first series."""
        head = next(
            (compared for compared in self.series if compared.series == HEADLINE), next(iter(self.series), None)
        )
        if head is None or head.verdict == UNRESOLVED:
            return IS_UNRESOLVED
        return IS_SLOWER if head.verdict == SLOWER else SAME_OR_FASTER

    def __str__(self) -> str:
        lines = [f"first:  {self.first}", f"second: {self.second}", "", "what differs:"]
        lines += [f"  {name}: {_short(a)} -> {_short(b)}" for name, (a, b) in self.changed.items()] or ["  nothing"]
        lines += ["", "times, second compared with first:", *(f"  {compared}" for compared in self.series)]
        lines += ["", "metrics:", *(f"  {name}: {a} -> {b}" for name, (a, b) in self.metrics.items())]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        series = [
            {
                "series": s.series,
                "ratio": s.ratio.median,
                "low": s.ratio.low,
                "high": s.ratio.high,
                "p": s.p,
                "verdict": s.verdict,
                "basis": s.basis,
            }
            for s in self.series
        ]
        return {
            "first": str(self.first),
            "second": str(self.second),
            "changed": dict(self.changed),
            "series": series,
            "metrics": dict(self.metrics),
            "exit_code": self.exit_code,
        }


class InvalidComparison(ResultsError):
    """The runs cannot be compared: one was altered, is unfinished, or is of another recipe."""

    exit_code = INVALID


def compare_runs(first: Path, second: Path, margin: float = MARGIN) -> RunComparison:
    """Compare two finished runs of one recipe.

    Args:
        first, second: results folders; the first is the base.
        margin: the smallest effect of interest.

    Raises:
        InvalidComparison: a folder is unfinished or was altered, or the recipes have different names.
    """
    manifests = [_sound_manifest(path) for path in (first, second)]
    names = [manifest.get("recipe") for manifest in manifests]
    if names[0] != names[1]:
        raise InvalidComparison(f"got runs of {names[0]!r} and {names[1]!r}; expected two of one recipe: choose others")
    keys = ("resolved", "data", "seeds", "backend", "device", "ranks", "environment")
    facts = [
        {**{key: _stable(manifest.get(key)) for key in keys}, "processes": _of_processes(manifest)}
        for manifest in manifests
    ]
    changed = differences(*facts)
    stores = [SampleStore(path) for path in (first, second)]
    work = [manifest.get("series", {}) for manifest in manifests]
    series = _compare_series(first, second, stores, work, margin)
    metrics = [
        {m["name"]: m["value"] for m in read_json(path / SUMMARY).get("metrics", [])} for path in (first, second)
    ]
    both = {name: (metrics[0][name], metrics[1][name]) for name in metrics[0] if name in metrics[1]}
    return RunComparison(first, second, changed, series, both)


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


def _compare_series(
    first: Path, second: Path, stores: list[SampleStore], work: list[dict[str, Any]], margin: float
) -> tuple[SeriesComparison, ...]:
    stats = [read_json(path / STATS)["series"] if (path / STATS).exists() else {} for path in (first, second)]
    shared = [name for name in stats[0] if name in stats[1]]
    values: dict[str, list[np.ndarray]] = {}
    bases: dict[str, tuple[str, bool]] = {}
    for name in shared:
        groups = [kept_launches(store, name, stat[name]) for store, stat in zip(stores, stats, strict=True)]
        each = [declared.get(name, {}).get("samples_each") for declared in work]
        per_sample = None not in each and each[0] != each[1]
        if per_sample:
            groups = [[group / size for group in side] for side, size in zip(groups, each, strict=True)]
        values[name], words, sound = _comparable(groups)
        words += f", per sample of {each[0]} and {each[1]} a {name}" if per_sample else ""
        bases[name] = words, sound
    corrected = holm([_mann_whitney(*values[name]) for name in shared])
    return tuple(_one(name, values[name], p, *bases[name], margin) for name, p in zip(shared, corrected, strict=True))


def _comparable(groups: list[list[np.ndarray]]) -> tuple[list[np.ndarray], str, bool]:
    """Independent values of both runs, what they hold over, and whether they may be compared at all.

    The values are medians of launches if there are enough for an interval, else samples: not where launches differ.
    """
    estimates = [over_launches(side, level=LEVEL) for side in groups]
    fewest = min(len(side) for side in groups)
    if all(estimate.cluster == LAUNCHES for estimate in estimates):
        return (
            [np.array([np.median(group) for group in side]) for side in groups],
            launches.basis(fewest, LAUNCHES),
            True,
        )
    values = [np.concatenate([launches.nearly_independent(group) for group in side]) for side in groups]
    return (
        values,
        launches.basis(fewest, WITHIN) + _that_differ(estimates),
        not any(estimate.differ for estimate in estimates),
    )


def _that_differ(estimates: list[LaunchEstimate]) -> str:
    p = min(
        (estimate.differ_p for estimate in estimates if estimate.differ and estimate.differ_p is not None), default=None
    )
    if p is None:
        return ""
    needed = launches.launches_needed(LEVEL)
    return f": launches of one run differ (Kruskal-Wallis p {p:.2g}), {needed} of each are needed"


def kept_launches(store: SampleStore, series: str, stat: Mapping[str, Any]) -> list[np.ndarray]:
    """Samples of every launch after its warm-up, as ``stats.json`` has cut it."""
    kept = []
    for launch in stat["launches"]:
        samples, cut = store.durations(series, launch["launch"]), launch["cut"]["index"]
        kept.append(samples[cut:] if cut < samples.size else samples)
    return kept


def _mann_whitney(a: np.ndarray, b: np.ndarray) -> float | None:
    if min(a.size, b.size) < 4:
        return None
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(a, b).pvalue)


def _one(
    name: str, values: list[np.ndarray], p: float | None, basis: str, sound: bool, margin: float
) -> SeriesComparison:
    """Both medians with intervals of 97.5 % each give a ratio whose interval holds with 95 % (Bonferroni)."""
    a, b = (quantile(side, level=LEVEL, independent=True) for side in values)
    if a.low is None or a.high is None or b.low is None or b.high is None or not a.low > 0:
        ratio = Interval(b.value / a.value if a.value else math.nan, None, None, min(a.n, b.n))
    else:
        ratio = Interval(b.value / a.value, b.low / a.high, b.high / a.low, min(a.n, b.n))
    noise = 0.0 if sound else None  # what launches of one run differ by is not known
    return SeriesComparison(name, ratio, p, verdict(ratio, p, noise, margin), basis)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
