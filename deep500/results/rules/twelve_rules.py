"""R1-R12: the rules of Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems" (SC 2015)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from deep500.measure.fingerprint import fingerprint
from deep500.measure.launches import DIFFER, LAUNCHES, launches_needed
from deep500.measure.quantiles import samples_needed
from deep500.results.outcomes import interval_over_seeds
from deep500.results.ranks import is_of_rank
from deep500.results.rules.claim_types import close
from deep500.results.rules.view import RuleFinding, RunView, failed, missing, not_applicable, passed

# fmt: off
REQUIRED = (
    "cpu", "cores", "usable_cores", "memory_bytes", "os", "python", "versions", "threads", "variables", "git",
    "hardware", "kernel", "process",
)
# fmt: on
"""Facts that the environment in the manifest must hold, and not as null."""

EMPTY = ("git", "cpu", "usable_cores", "memory_bytes")
"""Which of these may be null: there may be no repository, and systems that do not tell."""

SPEEDUP = re.compile(r"speed[-_ ]?ups?|times[-_ ]faster", re.IGNORECASE)
"""Names of metrics that are speedups, whatever else they are called."""

BEYOND = 1.05
"""How far a speedup may exceed the number of processes, or a rate its bound, before it needs an explanation."""


def r1_base_of_speedups(run: RunView) -> RuleFinding:
    """A speedup names its base (best serial run, one parallel process) and the base's absolute time."""
    claims = run.claims("speedup")
    fix = "give base kind and seconds, and say what ran where the kind is other"
    for claim in claims:
        base = claim.get("base") or {}
        if not base.get("kind") or not base.get("seconds") or (base["kind"] == "other" and not base.get("text")):
            return failed(f"speedup {claim['value']} has no base with a kind and a time", fix)
        seconds = claim.get("seconds")
        if seconds is not None and not close(claim["value"], base["seconds"] / seconds, 0.02):
            return failed(
                f"a speedup of {claim['value']:.4g} from {base['seconds']:.4g} s to {seconds:.4g} s", "divide the times"
            )
    named = [m["name"] for m in run.summary.get("metrics", []) if SPEEDUP.search(str(m["name"]))]
    if named and not claims:
        return missing(f"metric {named[0]} is a speedup over nothing", f"claim it: {fix}")
    return passed(f"{len(claims)} speedups name their base") if claims else not_applicable("no speedup is claimed")


def r2_all_of_the_suite(run: RunView) -> RuleFinding:
    """All that was declared ran, or has a reason: benchmarks, seeds, metrics, series, and cores that were there."""
    suite = run.manifest.get("suite", {})
    silent = sorted(set(suite.get("declared", [])) - set(suite.get("ran", [])) - _reasoned(suite))
    silent += _not_run(run) if run.is_finished else []
    if silent:
        return failed(f"not run, and no reason given: {', '.join(silent[:6])}", "run them, or say why not")
    used, there = run.manifest.get("cores_used"), run.manifest.get("environment", {}).get("usable_cores")
    if used and there and used < there and not run.manifest.get("partial_machine_reason"):
        return failed(f"{used} of {there} cores were used, and no reason given", "use all, or say why not")
    if not run.is_of_recipe and not suite:
        return not_applicable("no recipe and no suite")
    if run.is_finished and not run.has("seeds.json"):
        return missing("no seeds.json, which says what ran", "keep the files as the run left them")
    return passed("everything declared ran, or has a reason")


def _reasoned(suite: Mapping[str, Any]) -> set[str]:
    return {name for name, why in suite.get("skipped", {}).items() if why}


def _not_run(run: RunView) -> list[str]:
    """Return what the recipe asks for and the files do not have: seeds, metrics, series."""
    resolved = run.manifest.get("resolved", {})
    asked = dict.fromkeys([*run.manifest.get("seeds", []), *resolved.get("seeds", [])])
    trained = {line["seed"] for line in run.curve}
    silent = [f"seed {seed}" for seed in asked if seed not in trained]
    shown = {metric["name"] for metric in run.summary.get("metrics", [])}
    silent += [metric["name"] for metric in resolved.get("metrics", []) if metric["name"] not in shown]
    validated = any(line.get("test_seconds") is not None for line in run.curve)
    series = [name for name in run.manifest.get("series", {}) if name != "validation" or validated]
    return silent + [f"series {name}" for name in series if name not in run.series]


def r3_means_of_costs(run: RunView) -> RuleFinding:
    """The arithmetic mean is for costs; rates are total work over total time, or a harmonic mean."""
    claims = [c for c in run.claims("aggregate") if c["kind"] in ("cost", "rate")]
    for claim in claims:
        if claim["kind"] == "rate" and claim.get("mean") not in ("total", "harmonic"):
            return failed(f"a {claim.get('mean')} mean of rates", "divide all work by all time")
        if claim["kind"] == "cost" and claim.get("mean") not in ("arithmetic", "total"):
            return failed(f"a {claim.get('mean')} mean of costs", "use the arithmetic mean")
    return passed(f"{len(claims)} means fit their kind") if claims else not_applicable("no mean of costs or rates")


def r4_no_mean_of_ratios(run: RunView) -> RuleFinding:
    """Ratios are not averaged: average the costs, or say why a geometric mean is the last resort."""
    claims = [c for c in run.claims("aggregate") if c["kind"] == "ratio"]
    for claim in claims:
        if claim.get("mean") != "geometric" or not claim.get("note"):
            return failed(f"a {claim.get('mean')} mean of ratios without a reason", "average the costs behind them")
    return passed("geometric means have their reason") if claims else not_applicable("no mean of ratios")


def r5_intervals(run: RunView) -> RuleFinding:
    """Every figure has an interval that says what it holds over, or is deterministic, or is called an observation."""
    if run.manifest.get("deterministic"):
        return passed("declared deterministic")
    results = [
        (f"{series} q{estimate['q']:g}", estimate["ci"]["low"] is not None)
        for series, estimate in _estimates(run)
        if estimate.get("standing") != "observation"
    ]
    metrics = [m for m in run.summary.get("metrics", []) if m.get("standing") != "observation"]
    results += [(m["name"], interval_over_seeds(m) is not None) for m in metrics]
    bare = [name for name, has_interval in results if not has_interval]
    if bare:
        return failed(f"no interval: {', '.join(bare[:6])}", "measure more, or call it an observation")
    pooled = [
        f"{series} q{estimate['q']:g}"
        for series, estimate in _estimates(run)
        if _claims_too_much(run, series, estimate)
    ]
    if pooled:
        fix = f"measure {launches_needed()} launches or more, or say that it holds within those measured"
        return failed(f"launches pooled, and called a result of all launches: {', '.join(pooled[:6])}", fix)
    twins = _twins(run)
    if twins:
        fix = "train every seed: one run counted several times is one value"
        return failed(f"seeds {twins[0]} and {twins[1]} have the same losses to the last digit", fix)
    if run.is_finished and run.manifest.get("series") and not run.series:
        return missing("no statistics of the series that the manifest declares", "keep stats.json and its samples")
    if not results:
        return passed("there are observations only, and they are called so")
    return passed(f"{len(results)} results have intervals")


def _twins(run: RunView) -> tuple[Any, Any] | None:
    """Two seeds whose whole training was the same; None where there are none."""
    curves: dict[Any, list[Any]] = {}
    for line in run.curve:
        curves.setdefault(line["seed"], []).append((line.get("train_loss"), line.get("test_loss")))
    seen: dict[tuple[Any, ...], Any] = {}
    for seed, losses in curves.items():
        if any(value is not None for pair in losses for value in pair):
            first = seen.setdefault(tuple(losses), seed)
            if first != seed:
                return first, seed
    return None


def _claims_too_much(run: RunView, series: str, estimate: Mapping[str, Any]) -> bool:
    """Return whether an interval within launches passes as one over them, or as a result although launches differ."""
    standing = estimate.get("standing", "result")
    if standing == "observation" or estimate["ci"].get("cluster") == LAUNCHES:
        return False
    p = run.series[series].get("between_launches", {}).get("kruskal_p")
    return standing == "result" or (p is not None and p < DIFFER)


def r6_normality(run: RunView) -> RuleFinding:
    """Mean and t intervals only of samples that may be normal."""
    claims = [c for c in run.claims("centre") if c.get("interval") == "t"]
    for claim in claims:
        normality = run.series.get(claim.get("series", ""), {}).get("normality")
        if normality is None or normality["p"] < 0.01:
            p = "not tested" if normality is None else f"Shapiro-Wilk p {normality['p']:.2g}"
            return failed(f"a t interval of {claim.get('series')!r} ({p})", "use the rank interval")
    return passed("t intervals of samples that may be normal") if claims else not_applicable("no t interval is claimed")


def r7_sound_comparisons(run: RunView) -> RuleFinding:
    """Faster and slower need a corrected p value, and an interval of the ratio of times on their side of 1."""
    claims = run.claims("comparison")
    for claim in claims:
        verdict, effect, p = claim["verdict"], claim.get("effect"), claim.get("p")
        fix = "test in pairs, and say what follows"
        if verdict in ("faster", "slower") and (p is None or p >= 0.05 or not effect or effect[0] <= 1 <= effect[1]):
            return failed(f"'{verdict}' with p {p} and effect {effect}", fix)
        if effect and verdict in ("faster", "slower") and (effect[1] < 1) != (verdict == "faster"):
            return failed(f"'{verdict}' with {effect[0]:.4g} to {effect[1]:.4g} times the time", fix)
        if verdict == "equivalent" and (not effect or not claim.get("margin") or not _within(effect, claim["margin"])):
            return failed(f"'equivalent' with effect {effect} and margin {claim.get('margin')}", fix)
        if verdict in ("faster", "slower") and len(claims) > 1 and not claim.get("corrected"):
            return failed(f"{len(claims)} comparisons without correction", "correct by Holm's method")
        ratio = _ratio(run, claim.get("series", []))
        if ratio is not None and effect and not effect[0] <= ratio <= effect[1]:
            return failed(
                f"effect {effect}, the medians of the samples have the ratio {ratio:.4g}", "compare what was measured"
            )
    return passed(f"{len(claims)} comparisons are tested") if claims else not_applicable("nothing is compared")


def _within(effect: list[float], margin: float) -> bool:
    return 1 - margin <= effect[0] and effect[1] <= 1 + margin


def _ratio(run: RunView, series: list[str]) -> float | None:
    """Of the medians of two series of this folder; None where they are not in it."""
    both = [run.series.get(name, {}).get("estimates", []) for name in series]
    medians = [estimate["value"] for estimates in both for estimate in estimates if estimate["q"] == 0.5]
    return medians[0] / medians[1] if len(medians) == 2 and medians[1] else None


def r8_is_the_centre_enough(run: RunView) -> RuleFinding:
    """The tail is reported where latency matters, from as many samples as the quantile needs."""
    claims = run.claims("percentile")
    for claim in claims:
        stat = run.series.get(claim["series"], {})
        n, q = stat.get("n", 0), claim["q"]
        if n < samples_needed(q):
            return failed(f"p{100 * q:g} from {n} samples", f"take {samples_needed(q)} or more")
        known = {estimate["q"]: estimate["value"] for estimate in stat.get("estimates", [])}
        if q in known and not close(claim["value"], known[q]):
            return failed(f"p{100 * q:g} of {claim['value']:.4g}; the samples have {known[q]:.4g}", "tell that")
    declared = _latencies(run)
    latency = {series for series in declared if run.series.get(series, {}).get("n")}
    if declared and not latency and not claims:
        return not_applicable(f"no sample of {', '.join(sorted(declared))}: the run ended before one was recorded")
    reported = {series for series, estimate in _estimates(run) if estimate["q"] >= 0.9}
    silent = sorted(latency - reported)
    if silent:
        return failed(f"latency {', '.join(silent)} without a tail", "add a target at q=0.99 to its plan")
    return passed("tails are reported") if claims or latency else not_applicable("no latency, and no tail is claimed")


def _latencies(run: RunView) -> set[str]:
    """Series of which every sample is a wait: declared so, or the time of one step, batch or query."""
    declared = run.manifest.get("series", {})
    latencies = {name for name, facts in declared.items() if facts.get("latency") or facts.get("samples_each")}
    return {name for name in latencies | ({"step"} & declared.keys()) if not is_of_rank(name)}


def r9_documented(run: RunView) -> RuleFinding:
    """Hardware, software, settings, data and seeds are in the manifest, and the hash is that of the environment."""
    environment = run.manifest.get("environment") or {}
    lacking = [name for name in REQUIRED if name not in EMPTY and environment.get(name) in (None, "", {}, [])]
    lacking += [name for name in EMPTY if name not in environment]
    lacking += [name for name in ("seeds", "resolved", "data", "environment_sha256") if not run.manifest.get(name)]
    if lacking:
        return failed(f"the manifest does not say: {', '.join(lacking)}", "record it with full_environment()")
    if fingerprint(environment) != run.manifest["environment_sha256"]:
        return failed("environment_sha256 is of another environment", "keep the manifest as the run wrote it")
    return passed(f"all of {len(REQUIRED) + 4} parts of the setup are recorded")


def r10_parallel_times(run: RunView) -> RuleFinding:
    """Times of several processes say how they were synchronised and summarised, and are not pooled if ranks differ."""
    claims = run.claims("parallel")
    if not claims:
        ranks = run.manifest.get("ranks", 1)
        return (
            not_applicable("one process")
            if ranks == 1
            else failed(
                f"{ranks} processes, and nothing said of their times", "say how they were synchronised and summarised"
            )
        )
    for claim in claims:
        if claim.get("sync") not in ("barrier", "window", "none") or claim.get("summary") is None:
            return failed("no synchronisation or summary named", "say sync and summary")
        if claim["summary"] == "pooled" and (claim.get("rank_p") is None or claim["rank_p"] < DIFFER):
            return failed(f"pooled although ranks differ (p {claim.get('rank_p')})", "take the maximum over ranks")
    return passed("synchronisation and summary are named")


def r11_bounds(run: RunView) -> RuleFinding:
    """Speedups and rates stand beside what is possible, in the same data type, and are not beyond it."""
    rates, scaling, speedups = run.claims("rate"), run.claims("scaling"), run.claims("speedup")
    for claim in rates:
        if not claim.get("bound"):
            return failed(f"{claim['flops']:.4g} FLOP/s without a bound", "measure the roofs")
        if not claim.get("peak_dtype") or not claim.get("dtype"):
            return missing("the data type of the bound, or of the work", "say dtype and peak_dtype")
        if claim["flops"] > BEYOND * claim["bound"]:
            return failed(f"{claim['flops'] / claim['bound']:.0%} of the bound", "check the count of operations")
    for claim in scaling:
        if not claim.get("bounds"):
            return failed("scaling without ideal, Amdahl's or a measured bound", "add the bounds")
        beyond = _beyond_linear(claim)
        if beyond and not claim.get("note"):
            fix = "look for work that was left out; if it is the caches, say so in a note"
            return failed(f"{beyond[1]:.3g} times as fast on {beyond[0]:.3g} times the processes", fix)
    for claim in speedups:
        p = claim.get("processes")
        if p and claim["value"] > BEYOND * p and not claim.get("note"):
            return failed(f"a speedup of {claim['value']:.3g} on {p} processes", "check the base; else say why (note)")
    shown = rates or scaling
    return passed("bounds are shown") if shown else not_applicable("no rate and no scaling is claimed")


def _beyond_linear(claim: Mapping[str, Any]) -> tuple[float, float] | None:
    """Processes and throughput, each as a multiple of the smallest row's, where the second exceeds the first."""
    rows = sorted(claim["rows"], key=lambda row: row["processes"])
    for row in rows[1:]:
        work = (row.get("global_batch") or 1) / (rows[0].get("global_batch") or 1)
        processes = row["processes"] / rows[0]["processes"]
        speed = work * rows[0]["seconds"] / row["seconds"]
        if speed > BEYOND * processes:
            return processes, speed
    return None


def r12_plots(run: RunView) -> RuleFinding:
    """Lines only between points that can be interpolated, bars from 0, captions that say n and level."""
    claims = run.claims("plot")
    for claim in claims:
        if claim["kind"] == "line" and claim.get("x") != "ordered":
            return failed("a line between categories", "draw points or bars")
        if claim["kind"] == "bar":
            axis = claim.get("axis")
            if not claim.get("from_zero") or (axis and not axis[0] <= 0 <= axis[1]):
                where = f", the axis from {axis[0]:g} to {axis[1]:g}" if axis else ""
                return failed(f"bars that do not begin at 0{where}", "begin at 0, or draw points")
            if not axis:
                return missing("bars whose axis is not said", "say its limits: axis: [low, high]")
        if claim.get("level") is None and claim.get("n") is None:
            return failed(f"a {claim['kind']} plot that says neither n nor level", "say both in the caption")
    return passed(f"{len(claims)} plots can be read") if claims else not_applicable("no plots are declared")


def _estimates(run: RunView) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((series, estimate) for series, stat in run.series.items() for estimate in stat["estimates"])
