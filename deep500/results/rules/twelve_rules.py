"""R1-R12: the rules of Hoefler and Belli, "Scientific Benchmarking of Parallel Computing Systems" (SC 2015)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deep500.measure.launches import DIFFER, LAUNCHES, launches_needed
from deep500.measure.quantiles import samples_needed
from deep500.results.rules.view import Finding, RunView, failed, not_applicable, passed

# fmt: off
REQUIRED = (
    "cpu", "cores", "usable_cores", "memory_bytes", "os", "python", "versions", "threads", "variables", "git",
    "hardware", "kernel", "process",
)
# fmt: on
"""What the environment in the manifest must hold."""


def r1_base_of_speedups(run: RunView) -> Finding:
    """A speedup names its base (best serial run, one parallel process) and the base's absolute time."""
    claims = run.claims("speedup")
    for claim in claims:
        base = claim.get("base") or {}
        if base.get("kind") not in ("serial-best", "parallel-1", "other") or not base.get("seconds"):
            return failed(
                f"speedup {claim.get('value')} has no base with a kind and a time", "give base kind and seconds"
            )
    return passed(f"{len(claims)} speedups name their base") if claims else not_applicable("no speedup is claimed")


def r2_all_of_the_suite(run: RunView) -> Finding:
    """Benchmarks that were declared and not run, and cores that were there and not used, have a reason."""
    suite = run.manifest.get("suite", {})
    skipped = set(suite.get("declared", [])) - set(suite.get("ran", []))
    reasons = suite.get("skipped", {})
    silent = sorted(name for name in skipped if not reasons.get(name))
    if silent:
        return failed(f"not run, and no reason given: {', '.join(silent)}", "run them, or say why not")
    used, there = run.manifest.get("cores_used"), run.manifest.get("environment", {}).get("usable_cores")
    if used and there and used < there and not run.manifest.get("partial_machine_reason"):
        return failed(f"{used} of {there} cores were used, and no reason given", "use all, or say why not")
    return passed("everything declared ran, or has a reason")


def r3_means_of_costs(run: RunView) -> Finding:
    """The arithmetic mean is for costs; rates are total work over total time, or a harmonic mean."""
    claims = [c for c in run.claims("aggregate") if c.get("kind") in ("cost", "rate")]
    for claim in claims:
        if claim["kind"] == "rate" and claim.get("mean") not in ("total", "harmonic"):
            return failed(f"a {claim.get('mean')} mean of rates", "divide all work by all time")
        if claim["kind"] == "cost" and claim.get("mean") not in ("arithmetic", "total"):
            return failed(f"a {claim.get('mean')} mean of costs", "use the arithmetic mean")
    return passed(f"{len(claims)} means fit their kind") if claims else not_applicable("no mean of costs or rates")


def r4_no_mean_of_ratios(run: RunView) -> Finding:
    """Ratios are not averaged: average the costs, or say why a geometric mean is the last resort."""
    claims = [c for c in run.claims("aggregate") if c.get("kind") == "ratio"]
    for claim in claims:
        if claim.get("mean") != "geometric" or not claim.get("note"):
            return failed(f"a {claim.get('mean')} mean of ratios without a reason", "average the costs behind them")
    return passed("geometric means have their reason") if claims else not_applicable("no mean of ratios")


def r5_intervals(run: RunView) -> Finding:
    """Every figure has an interval that says what it holds over, or is deterministic, or is called an observation."""
    if run.manifest.get("deterministic"):
        return passed("declared deterministic")
    results = [
        (f"{series} q{estimate['q']:g}", estimate["ci"]["low"] is not None)
        for series, estimate in _estimates(run)
        if estimate.get("standing") != "observation"
    ]
    metrics = [m for m in run.summary.get("metrics", []) if m.get("standing") != "observation"]
    results += [(m["name"], len(m["values"]) >= samples_needed(0.5)) for m in metrics]
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
    if not results:
        return passed("there are observations only, and they are called so")
    return passed(f"{len(results)} results have intervals")


def _claims_too_much(run: RunView, series: str, estimate: Mapping[str, Any]) -> bool:
    """Whether an interval within launches passes as one over launches, or as any result although launches differ."""
    standing = estimate.get("standing", "result")
    if standing == "observation" or estimate["ci"].get("cluster") == LAUNCHES:
        return False
    p = run.series[series].get("between_launches", {}).get("kruskal_p")
    return standing == "result" or (p is not None and p < DIFFER)


def r6_normality(run: RunView) -> Finding:
    """Mean and t intervals only of samples that may be normal."""
    claims = [c for c in run.claims("centre") if c.get("interval") == "t"]
    for claim in claims:
        normality = run.series.get(claim.get("series", ""), {}).get("normality")
        if normality is None or normality["p"] < 0.01:
            p = "not tested" if normality is None else f"Shapiro-Wilk p {normality['p']:.2g}"
            return failed(f"a t interval of {claim.get('series')!r} ({p})", "use the rank interval")
    return passed("t intervals of samples that may be normal") if claims else not_applicable("no t interval is claimed")


def r7_sound_comparisons(run: RunView) -> Finding:
    """Faster and slower need a corrected p value, and an interval of the effect that leaves 1 out."""
    claims = run.claims("comparison")
    for claim in claims:
        if claim.get("verdict") not in ("faster", "slower"):
            continue
        effect, p = claim.get("effect"), claim.get("p")
        if p is None or p >= 0.05 or not effect or effect[0] <= 1 <= effect[1]:
            return failed(f"'{claim['verdict']}' with p {p} and effect {effect}", "test in pairs, and say what follows")
        if len(claims) > 1 and not claim.get("corrected"):
            return failed(f"{len(claims)} comparisons without correction", "correct by Holm's method")
    return passed(f"{len(claims)} comparisons are tested") if claims else not_applicable("nothing is compared")


def r8_is_the_centre_enough(run: RunView) -> Finding:
    """Where latency matters the tail is reported, from as many samples as the quantile needs."""
    claims = run.claims("percentile")
    for claim in claims:
        n = run.series.get(claim.get("series", ""), {}).get("n", 0)
        if n < samples_needed(claim["q"]):
            return failed(f"p{100 * claim['q']:g} from {n} samples", f"take {samples_needed(claim['q'])} or more")
    latency = [name for name, facts in run.manifest.get("series", {}).items() if facts.get("latency")]
    reported = {series for series, estimate in _estimates(run) if estimate["q"] >= 0.9}
    silent = sorted(set(latency) - reported)
    if silent:
        return failed(f"latency {', '.join(silent)} without a tail", "add a target at q=0.99 to its plan")
    return passed("tails are reported") if claims or latency else not_applicable("no latency, and no tail is claimed")


def r9_documented(run: RunView) -> Finding:
    """Hardware, software, settings, data and seeds are in the manifest."""
    environment = run.manifest.get("environment", {})
    missing = [name for name in REQUIRED if name not in environment]
    missing += [name for name in ("seeds", "resolved", "data", "environment_sha256") if name not in run.manifest]
    if missing:
        return failed(f"the manifest does not say: {', '.join(missing)}", "record it with full_environment()")
    return passed(f"all of {len(REQUIRED) + 4} parts of the setup are recorded")


def r10_parallel_times(run: RunView) -> Finding:
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


def r11_bounds(run: RunView) -> Finding:
    """Speedups and rates stand beside what is possible, and are not beyond it."""
    rates, scaling = run.claims("rate"), run.claims("scaling")
    for claim in rates:
        if not claim.get("bound"):
            return failed(f"{claim.get('flops'):.4g} FLOP/s without a bound", "measure the roofs")
        if claim["flops"] > 1.05 * claim["bound"]:
            return failed(f"{claim['flops'] / claim['bound']:.0%} of the bound", "check the count of operations")
    for claim in scaling:
        if not claim.get("bounds"):
            return failed("scaling without ideal, Amdahl's or a measured bound", "add the bounds")
    return passed("bounds are shown") if rates or scaling else not_applicable("no rate and no scaling is claimed")


def r12_plots(run: RunView) -> Finding:
    """Lines only between points that can be interpolated, bars from 0, captions that say n and level."""
    claims = run.claims("plot")
    for claim in claims:
        if claim.get("kind") == "line" and claim.get("x") != "ordered":
            return failed("a line between categories", "draw points or bars")
        if claim.get("kind") == "bar" and not claim.get("from_zero"):
            return failed("bars that do not begin at 0", "begin at 0, or draw points")
        if claim.get("level") is None and claim.get("n") is None:
            return failed(f"a {claim.get('kind')} plot that says neither n nor level", "say both in the caption")
    return passed(f"{len(claims)} plots can be read") if claims else not_applicable("no plots are declared")


def _estimates(run: RunView) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((series, estimate) for series, stat in run.series.items() for estimate in stat["estimates"])
