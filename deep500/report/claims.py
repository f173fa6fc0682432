"""What a run's own report claims, derived from its files, so that the rules judge real runs and not only what an author
writes down. The types of claims and their fields are listed in :mod:`deep500.results.rules.view`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.report.figures import Figure
from deep500.report.page import view
from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.ranks import of_rank
from deep500.results.record import Record, full_hash
from deep500.results.rules import CLAIMS

BY = "report"
"""Marks a derived claim: these are derived anew, those of an author stay."""

TOTALS = {"throughput": "rate", "training_time": "cost"}
"""Metrics that are all work over all time, or all time: the means that rule R3 asks for."""


def write_claims(path: Path) -> list[dict[str, Any]]:
    """Write ``claims.json``: what the report of a run claims, and what an author wrote there before.

    Args:
        path: results folder with its statistics and summary.

    Raises:
        ResultsError: the folder cannot be read or written.
    """
    before = read_json(path / CLAIMS).get("claims", []) if (path / CLAIMS).exists() else []
    kept = [claim for claim in before if claim.get("by") != BY]
    claims = [*kept, *({**claim, "by": BY} for claim in derive(Record(path)))]
    write_atomic(path / CLAIMS, to_json({"claims": claims}) + "\n")
    return claims


def derive(record: Record) -> list[dict[str, Any]]:
    """What the report of a run shows: centres and percentiles, totals, one configuration, parts, scaling, plots."""
    shown = view(record)
    claims = list(_quantiles(shown["series"]))
    measured = {metric["name"] for metric in shown["metrics"] if metric["value"] is not None}
    claims += [
        {"type": "aggregate", "kind": kind, "mean": "total", "of": name}
        for name, kind in TOTALS.items()
        if name in measured
    ]
    configuration = full_hash(shown["manifest"]["resolved"])
    quality = any("accuracy" in name or "loss" in name for name in measured)
    headlines = {"speed": bool(shown["headline"]), "quality": quality}
    claims += [
        {"type": "headline", "quantity": quantity, "config_sha256": configuration}
        for quantity, claimed in headlines.items()
        if claimed
    ]
    details = {m["name"]: m["details"] for m in shown["metrics"] if m["value"] is not None and m.get("details")}
    claims += _parts(details) or _breakdown(record, shown["manifest"])
    claims += _rates(details)
    for part in (shown["scaling"], shown["ranks"]):
        claims += [] if part is None else part.claims()
    return claims + plot_claims(figures_of(shown))


def figures_of(shown: Mapping[str, Any]) -> Iterator[Figure]:
    """All plots of a run's page."""
    for figures in shown["figures"].values():
        yield from figures
    for figure in (
        *shown["curves"],
        shown["breakdown"],
        *shown["bounds"],
        *shown["scaling_figures"],
        shown["ranks_figure"],
        *(shown["recomputation"] or {"figures": ()})["figures"],
    ):
        if figure is not None:
            yield figure


def plot_claims(figures: Iterator[Figure] | Sequence[Figure]) -> list[dict[str, Any]]:
    """What was drawn, once per question and kind of mark, with the smallest n."""
    drawn: dict[tuple[str, str], dict[str, Any]] = {}
    for claim in (claim for figure in figures for claim in figure.claims):
        key = (claim["question"], claim["kind"])
        if key not in drawn or claim["n"] < drawn[key]["n"]:
            drawn[key] = claim
    return list(drawn.values())


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


def _parts(details: Mapping[str, Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """What :class:`deep500.metrics.TimingBreakdown` measured, over all seeds."""
    parts: dict[str, float] = {}
    for seed in details.get("timing_breakdown", ()):
        for name, spent in seed.items():
            parts[name] = parts.get(name, 0.0) + spent
    shown = {name.replace("_", " "): spent for name, spent in parts.items() if spent > 0}
    return [{"type": "breakdown", "parts": shown, "wall": sum(parts.values())}] if shown else []


def _rates(details: Mapping[str, Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """What :class:`deep500.metrics.RoofShare`, or else ``FlopRate``, measured: all operations over all seconds."""
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
                    "bound": max(roofs, default=None),
                }
            ]
    return []


def _breakdown(record: Record, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where the time from the first epoch's begin to the last one's end went, over all seeds; none of a resumed run."""
    store, known = record.samples, set(record.samples.names())
    seeds = [seed for seed in manifest["seeds"] if {("epoch", seed), ("step", seed)} <= known]
    if not seeds or manifest.get("resumed"):  # a clock that went on while nothing ran tells nothing
        return []
    parts = dict.fromkeys(("steps", "rest of epochs", "validation", "between epochs"), 0.0)
    wall = 0.0
    for seed in seeds:
        spans = [store.load(name, seed) for name in ("epoch", "validation") if (name, seed) in known]
        ends = max(int((span["start_ns"] + span["duration_ns"]).max()) for span in spans if span.size)
        lasted = (ends - int(spans[0]["start_ns"].min())) / 1e9
        mine = of_rank("step", 0)
        own = mine if (mine, seed) in known else "step"  # which is of the slowest rank each time
        steps, epochs = (float(store.durations(name, seed).sum()) for name in (own, "epoch"))
        validation = sum(float(store.durations("validation", seed).sum()) for _ in spans[1:])
        parts["steps"] += steps
        parts["rest of epochs"] += max(0.0, epochs - steps)
        parts["validation"] += validation
        parts["between epochs"] += max(0.0, lasted - epochs - validation)
        wall += lasted
    return [{"type": "breakdown", "parts": {name: s for name, s in parts.items() if s > 0}, "wall": wall}]
