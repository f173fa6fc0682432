"""The claims of a run, derived from its files: rules judge what is shown, and ``verify`` finds what was taken out.

The plots are claimed by the page that draws them, see :mod:`deep500.report.claims`. Types of claims and their fields
are in :mod:`deep500.results.rules.claim_types`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deep500.results.files import read_json
from deep500.results.ranks import Ranks, is_of_rank, of_rank
from deep500.results.record import SCALING, Record, configuration_hash
from deep500.results.stats import STATS

if TYPE_CHECKING:
    from deep500.results.scaling import Scaling

BY = "report"
"""Marks a derived claim: these are derived anew, those of an author stay."""

TOTALS = {"throughput": "rate", "training_time": "cost"}
"""Metrics that are all work over all time, or all time: the means that rule R3 asks for."""

ROOF_DTYPE = "float32"
"""In what the roofs of :class:`deep500.metrics.RoofShare` are measured."""


def scaling_of(path: Path) -> Scaling | None:
    """The table over numbers of processes; None without one, as in most folders, which then load no code for it."""
    if not (path / SCALING).exists():
        return None
    from deep500.results.scaling import Scaling

    return Scaling.read(path)


def derive(record: Record) -> list[dict[str, Any]]:
    """Centres and percentiles, totals, one configuration, parts of the time, rates, scaling: all but the plots."""
    manifest, summary = record.manifest(), record.summary() or {"metrics": []}
    stats = read_json(record.path / STATS)["series"] if (record.path / STATS).exists() else {}
    series = {name: stat for name, stat in stats.items() if not is_of_rank(name)}
    claims = list(_quantiles(series))
    measured = {metric["name"] for metric in summary["metrics"] if metric["value"] is not None}
    claims += [
        {"type": "aggregate", "kind": kind, "mean": "total", "of": name}
        for name, kind in TOTALS.items()
        if name in measured
    ]
    quality = any("accuracy" in name or "loss" in name for name in measured)
    claims += [
        {"type": "headline", "quantity": quantity, "config_sha256": configuration_hash(manifest)}
        for quantity, claimed in {"speed": headline_series(series) is not None, "quality": quality}.items()
        if claimed
    ]
    details = {m["name"]: m["details"] for m in summary["metrics"] if m["value"] is not None and m.get("details")}
    claims += _parts(details, record) or breakdown(record, manifest)
    claims += _rates(details, manifest)
    for part in (scaling_of(record.path), Ranks.read(record.path)):
        claims += [] if part is None else part.claims()
    return claims


def headline_series(series: Mapping[str, Any]) -> str | None:
    """The series whose median stands beside the verdict: the steps, else the first; None where it has no median."""
    name = "step" if "step" in series else next(iter(series), None)
    has = name is not None and any(estimate["q"] == 0.5 for estimate in series[name]["estimates"])
    return name if has else None


def _quantiles(series: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of every series that has an interval; a quantile without one is shown as an observation, and claims nothing."""
    for name, stat in series.items():
        for estimate in stat["estimates"]:
            if estimate["ci"]["low"] is None:
                continue
            if estimate["q"] == 0.5:
                yield {"type": "centre", "series": name, "statistic": "median", "interval": "rank"}
            else:
                yield {"type": "percentile", "series": name, "q": estimate["q"], "value": estimate["value"]}


def _parts(details: Mapping[str, Sequence[Mapping[str, float]]], record: Record) -> list[dict[str, Any]]:
    """Sum up what :class:`deep500.metrics.TimingBreakdown` measured over all seeds; the wall time is the recorder's."""
    parts: dict[str, float] = {}
    for seed in details.get("timing_breakdown", ()):
        for name, spent in seed.items():
            parts[name] = parts.get(name, 0.0) + spent
    shown = {name.replace("_", " "): spent for name, spent in parts.items() if spent > 0}
    return [{"type": "breakdown", "of": "run", "parts": shown, "wall": wall_of_run(record)}] if shown else []


def wall_of_run(record: Record) -> float | None:
    """Seconds of training all seeds, by the clock; None where one was resumed, or where it was not recorded."""
    seconds = [seed.get("wall_seconds") for seed in record.seeds().values()]
    known = [float(value) for value in seconds if value is not None]
    return sum(known) if known and len(known) == len(seconds) else None


def _rates(details: Mapping[str, Sequence[Mapping[str, float]]], manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rates that ``RoofShare``, or else ``FlopRate``, measured: all operations over all seconds."""
    for metric in ("roof_share", "flop_rate"):
        seeds = [seed for seed in details.get(metric, ()) if "FLOP_per_sample" in seed]
        if seeds:
            counted = sum(seed["FLOP_per_sample"] * seed["samples"] for seed in seeds)
            seconds = sum(seed["seconds"] for seed in seeds)
            roofs = [seed["roof_FLOP/s"] for seed in seeds if "roof_FLOP/s" in seed]
            return [
                {
                    "type": "rate",
                    "name": "training",
                    "flops": counted / seconds,
                    "counted_flops": counted,
                    "seconds": seconds,
                    "dtype": computed_in(manifest),
                    "bound": max(roofs, default=None),
                    "peak_dtype": ROOF_DTYPE if roofs else None,
                }
            ]
    return []


def computed_in(manifest: Mapping[str, Any]) -> str | None:
    """The data type of a run's operations: float32 of a GPU is ``tf32`` where its manifest says so."""
    dtype: str | None = manifest.get("dtype")
    numerics = manifest.get("numerics") or {}
    return "tf32" if dtype == "float32" and numerics.get("float32") == "tf32" else dtype


def breakdown(record: Record, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Part the time from the first epoch's begin to the last one's end, over all seeds; nothing of a resumed run.

    The whole is what passed between two readings of the clock; the parts are times of their own. Where a task acted to
    make its data, its steps are parted into collecting, the network's answers there, and updates.
    """
    store, known = record.samples, set(record.samples.names())
    seeds = [seed for seed in manifest["seeds"] if {("epoch", seed), ("step", seed)} <= known]
    if not seeds or manifest.get("resumed"):  # a clock that went on while nothing ran tells nothing
        return []
    parts = dict.fromkeys(("steps", "collection", "inference", "rest of epochs", "validation", "between epochs"), 0.0)
    wall = 0.0
    for seed in seeds:
        spans = [store.load(name, seed) for name in ("epoch", "validation") if (name, seed) in known]
        ends = max(int((span["start_ns"] + span["duration_ns"]).max()) for span in spans if span.size)
        lasted = (ends - int(spans[0]["start_ns"].min())) / 1e9
        mine = of_rank("step", 0)
        series = mine if (mine, seed) in known else "step"  # which is of the slowest rank each time
        steps, epochs = (float(store.durations(name, seed).sum()) for name in (series, "epoch"))
        validation = sum(float(store.durations("validation", seed).sum()) for _ in spans[1:])
        acted = [line["acting"] for line in record.epochs(seed) if line.get("acting")]
        for name in ("collection", "inference"):  # within steps, in their loading
            parts[name] += sum(epoch[f"{name}_seconds"] for epoch in acted)
        parts["steps"] += steps
        parts["rest of epochs"] += max(0.0, epochs - steps)
        parts["validation"] += validation
        parts["between epochs"] += max(0.0, lasted - epochs - validation)
        wall += lasted
    within = parts["collection"] + parts["inference"]
    if within:
        parts = {"updates": max(0.0, parts.pop("steps") - within), **parts}
    shown = {name: seconds for name, seconds in parts.items() if seconds > 0}
    return [{"type": "breakdown", "of": "epochs", "parts": shown, "wall": wall}]
