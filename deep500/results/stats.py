"""``stats.json``: every figure that follows from the samples alone, so that any reader can recompute it.

For each series: the estimates per quantile, with an interval if they are results and else with the reason why not
(``standing`` and ``reason``, see :mod:`deep500.measure.standing`), the warm-up cut and the places where the level
changed, the effective sample size, whether the plan was met and why probably not (``target.cause``), how coarse the
clock was, a check of normality (which informs, and gates nothing: the intervals do not assume it), and how much
launches differ from each other. With enough launches an interval is one over launches, otherwise it says that it
holds within those that were measured (``ci.cluster``, see :mod:`deep500.measure.launches`). A function of the samples
and of the plan in the manifest: same bytes in, same bytes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from deep500.measure.launches import LaunchEstimate, launches_differ, over_launches
from deep500.measure.plan import Plan, Target
from deep500.measure.standing import coarse, likely_cause, ties
from deep500.measure.steady import SteadyState, find_steady_state
from deep500.results.samples import SampleStore

STATS = "stats.json"
STEP, EPOCH, VALIDATION = "step", "epoch", "validation"
"""Series that a run records."""

SCHEMA = "deep500-stats-3"
MOST_FOR_NORMALITY = 5000


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """A plan as the manifest holds it."""
    return {
        "targets": [{"q": t.q, "level": t.level, "rel": t.rel} for t in plan.targets],
        "alpha": plan.alpha,
        "max_fraction": plan.max_fraction,
        "min_neff": plan.budget.min_neff,
    }


def declared_series(batch_size: int | None) -> dict[str, dict[str, Any]]:
    """The manifest's entry for the series that a run records: unit, kind, meaning and their sampling plan.

    A folder may not set its own: what is a result is the same for all (:mod:`deep500.results.relations`).

    Example:
        >>> sorted(declared_series(32)), declared_series(32)["step"]["samples_each"]
        (['epoch', 'step', 'validation'], 32)
    """
    tails = plan_to_json(Plan(targets=(Target(0.5, 0.95, 0.05), Target(0.9, 0.95, 0.1), Target(0.99, 0.95, 0.2))))
    median = plan_to_json(Plan(targets=(Target(0.5, 0.95, 0.05),)))
    about = {"unit": "s", "kind": "cost"}
    return {
        STEP: {
            **about,
            "plan": tails,
            "samples_each": batch_size,
            "meaning": "one training step with loading its batch; the device is waited for where a listener does",
        },
        EPOCH: {**about, "plan": median, "meaning": "training of one epoch, until the device has finished"},
        VALIDATION: {**about, "plan": median, "meaning": "one validation"},
    }


def share_a_process(curve: Iterable[Mapping[str, Any]]) -> bool:
    """Whether two seeds were trained in one process, by the lines of ``metrics.jsonl``; False where they do not say.

    Example:
        >>> lines = [{"seed": seed, "clock": {"process": "7-1"}} for seed in (0, 1)]
        >>> share_a_process(lines), share_a_process(lines[:1])
        (True, False)
    """
    seeds: dict[str, set[int]] = {}
    for line in curve:
        process = (line.get("clock") or {}).get("process")
        if process is not None:
            seeds.setdefault(process, set()).add(line["seed"])
    return any(len(trained) > 1 for trained in seeds.values())


def compute(
    store: SampleStore, declared: Mapping[str, Mapping[str, Any]], curve: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Statistics of all series.

    Args:
        store: the samples.
        declared: per series its ``unit``, ``kind`` and ``plan`` (see :func:`plan_to_json`), from the manifest.
        curve: lines of ``metrics.jsonl``, which say in which processes seeds were trained.
    """
    shared = share_a_process(curve)
    launches: dict[str, list[int]] = {}
    for series, launch in store.names():
        launches.setdefault(series, []).append(launch)
    stats = {
        series: _series(store, series, numbers, declared.get(series, {}), shared)
        for series, numbers in launches.items()
    }
    return {"schema": SCHEMA, "series": stats}


def _series(
    store: SampleStore, series: str, numbers: list[int], declared: Mapping[str, Any], shared: bool
) -> dict[str, Any]:
    plan = declared.get("plan") or plan_to_json(Plan())
    parts: list[dict[str, Any]] = []
    by_launch = kept_samples(store, series, numbers, plan)
    for number, (samples, steady, size) in by_launch.items():
        parts.append({"launch": number, "n": size, "cut": _cut(steady), "median": float(np.median(samples))})
    if not by_launch:
        return {"launches": [], "estimates": []}
    groups, states = [samples for samples, _, _ in by_launch.values()], [steady for _, steady, _ in by_launch.values()]
    whole, differ = np.concatenate(groups), launches_differ(groups)
    targets = [Target(**target) for target in plan["targets"]]
    estimates = [over_launches(groups, t.q, t.level, differ, states, plan["min_neff"], shared) for t in targets]
    clock = ties(whole)
    medians = [part["median"] for part in parts]
    return {
        "unit": declared.get("unit", "s"),
        "kind": declared.get("kind", "cost"),
        "n": int(whole.size),
        "total": float(whole.sum()),
        "launches": parts,
        "normality": _normality(whole),
        "clock": {**clock, "warning": coarse(clock)},
        "estimates": [_estimate(e, t, whole) for e, t in zip(estimates, targets, strict=True)],
        "between_launches": {
            "cv": float(np.std(medians, ddof=1) / np.mean(medians)) if len(medians) > 1 and np.mean(medians) else None,
            "kruskal_p": differ,
        },
    }


def kept_samples(
    store: SampleStore, series: str, launches: Iterable[int], plan: Mapping[str, Any]
) -> dict[int, tuple[np.ndarray, SteadyState, int]]:
    """Samples of every launch after its warm-up, the cut, and how many samples there were with the warm-up.

    Args:
        store: the samples.
        series: which.
        launches: which of its launches; those without samples are left out.
        plan: see :func:`plan_to_json`.
    """
    remaining = {}
    for number in sorted(launches):
        seconds = store.durations(series, number)
        if not seconds.size:
            continue
        steady = find_steady_state(seconds, plan["alpha"], plan["max_fraction"])
        remaining[number] = (seconds[steady.cut :] if steady.cut < seconds.size else seconds, steady, int(seconds.size))
    return remaining


def _cut(steady: SteadyState) -> dict[str, Any]:
    return {
        "index": steady.cut,
        "state": steady.state,
        "trend_p": steady.trend_p,
        "trend": steady.trend,
        "change_p": steady.change_p,
        "changes": list(steady.changes),
        "method": "mser5",
    }


def _estimate(over: LaunchEstimate, target: Target, whole: np.ndarray) -> dict[str, Any]:
    estimate = over.estimate
    known = estimate.low is not None
    reached = estimate.precision <= target.rel
    return {
        "q": estimate.q,
        "value": estimate.value,
        "n": estimate.n,
        "n_eff": estimate.n_eff,
        "tau": estimate.tau,
        "launches": over.launches,
        "between_launch_cv": over.cv,
        "standing": over.standing,
        "reason": over.reason,
        "ci": {
            "level": estimate.level,
            "low": estimate.low,
            "high": estimate.high,
            "method": estimate.method,
            "cluster": over.cluster,
        },
        "target": {
            "rel": target.rel,
            "achieved": estimate.precision,
            "reached": bool(reached),
            "cause": likely_cause(whole, estimate.n, estimate.tau, over.cv) if known and not reached else "",
        },
    }


def _normality(samples: np.ndarray) -> dict[str, Any] | None:
    """Shapiro and Wilk's test on at most 5000 evenly spaced samples, plain and of the logarithms; None if too few."""
    thinned = samples[:: max(1, -(-samples.size // MOST_FOR_NORMALITY))]
    if thinned.size < 8 or np.ptp(thinned) == 0:
        return None
    from scipy.stats import shapiro, skew

    plain = shapiro(thinned)
    logs = shapiro(np.log(thinned)).pvalue if (thinned > 0).all() else None
    return {
        "W": float(plain.statistic),
        "p": float(plain.pvalue),
        "log_p": None if logs is None else float(logs),
        "skew": float(skew(thinned)),
    }
