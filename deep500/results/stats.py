"""``stats.json``: every figure that follows from the samples, and from nothing else, so that anybody can recompute it.

For each series: the estimates per quantile with interval, the warm-up cut, the effective sample size, whether the plan
was met, a check of normality (which informs, and gates nothing: the intervals do not assume it), and how much launches
differ from each other. A function of the samples and of the plan in the manifest: same bytes in, same bytes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deep500.measure.pairs import groups_differ
from deep500.measure.plan import Plan, Target
from deep500.measure.quantiles import Estimate, quantile
from deep500.measure.steady import SteadyState, find_steady_state
from deep500.results.samples import SampleStore

STATS = "stats.json"
SCHEMA = "deep500-stats-1"
MOST_FOR_NORMALITY = 5000


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """A plan as the manifest holds it."""
    return {"targets": [{"q": t.q, "level": t.level, "rel": t.rel} for t in plan.targets], "alpha": plan.alpha,
            "max_fraction": plan.max_fraction, "min_neff": plan.budget.min_neff}  # fmt: skip


def compute(store: SampleStore, declared: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Statistics of all series.

    Args:
        store: the samples.
        declared: per series its ``unit``, ``kind`` and ``plan`` (see :func:`plan_to_json`), from the manifest.
    """
    launches: dict[str, list[int]] = {}
    for series, launch in store.names():
        launches.setdefault(series, []).append(launch)
    found = {series: _series(store, series, numbers, declared.get(series, {})) for series, numbers in launches.items()}
    return {"schema": SCHEMA, "series": found}


def _series(store: SampleStore, series: str, numbers: list[int], declared: Mapping[str, Any]) -> dict[str, Any]:
    plan = declared.get("plan") or plan_to_json(Plan())
    parts: list[dict[str, Any]] = []
    kept: list[np.ndarray] = []
    medians: list[float] = []
    for number in sorted(numbers):
        seconds = store.durations(series, number)
        if not seconds.size:
            continue
        steady = find_steady_state(seconds, plan["alpha"], plan["max_fraction"])
        rest = seconds[steady.cut :] if steady.cut < seconds.size else seconds
        kept.append(rest)
        medians.append(float(np.median(rest)))
        parts.append({"launch": number, "n": int(seconds.size), "cut": _cut(steady), "median": medians[-1]})
    if not kept:
        return {"launches": [], "estimates": []}
    whole = np.concatenate(kept)
    targets = [Target(**target) for target in plan["targets"]]
    estimates = [quantile(whole, target.q, target.level) for target in targets]
    settled = all(part["cut"]["state"] in ("steady", "too short to tell") for part in parts)
    return {
        "unit": declared.get("unit", "s"), "kind": declared.get("kind", "cost"), "n": int(whole.size),
        "total": float(whole.sum()), "launches": parts, "normality": _normality(whole),
        "estimates": [_estimate(e, t, plan["min_neff"], settled) for e, t in zip(estimates, targets, strict=True)],
        "between_launches": {
            "cv": float(np.std(medians, ddof=1) / np.mean(medians)) if len(medians) > 1 else None,
            "kruskal_p": groups_differ({str(i): one for i, one in enumerate(kept)})
            if len(kept) > 1 and min(map(len, kept)) >= 5 else None,
        },
    }  # fmt: skip


def _cut(steady: SteadyState) -> dict[str, Any]:
    return {"index": steady.cut, "state": steady.state, "trend_p": steady.trend_p, "trend": steady.trend,
            "method": "mser5"}  # fmt: skip


def _estimate(estimate: Estimate, target: Target, min_neff: float, steady: bool) -> dict[str, Any]:
    precise = estimate.precision <= target.rel and estimate.n_eff >= min_neff
    return {
        "q": estimate.q, "value": estimate.value, "n": estimate.n, "n_eff": estimate.n_eff, "tau": estimate.tau,
        "ci": {"level": estimate.level, "low": estimate.low, "high": estimate.high, "method": estimate.method},
        "standing": "observation" if estimate.low is None else "result",
        "target": {"rel": target.rel, "achieved": estimate.precision, "reached": bool(precise and steady)},
    }  # fmt: skip


def _normality(samples: np.ndarray) -> dict[str, Any] | None:
    """Shapiro and Wilk's test on at most 5000 evenly spaced samples, plain and of the logarithms; None if too few."""
    thinned = samples[:: max(1, -(-samples.size // MOST_FOR_NORMALITY))]
    if thinned.size < 8 or np.ptp(thinned) == 0:
        return None
    from scipy.stats import shapiro, skew

    plain = shapiro(thinned)
    logs = shapiro(np.log(thinned)).pvalue if (thinned > 0).all() else None
    return {"W": float(plain.statistic), "p": float(plain.pvalue), "log_p": None if logs is None else float(logs),
            "skew": float(skew(thinned))}  # fmt: skip
