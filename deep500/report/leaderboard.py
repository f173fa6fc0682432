"""Several runs in one table, the best first, with places that their intervals allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MOST_METRICS = 4


def leaderboard(views: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows for the page, ordered by the first metric that all runs have.

    A run's place is one more than the number of runs whose whole interval is better than its own: runs whose intervals
    overlap share a place. A run with an observation only, or without the metric, has none, nor has one that was judged
    on other data than the first, or by another loss where a loss is compared: it stands behind the others.

    Args:
        views: of :func:`deep500.report.page.view`, in the order in which they were asked for.

    Returns:
        ``metrics``: names of the columns, ``rows``: ``place`` (None without one), ``number`` of the run on the page
        from 1 on, its ``view`` and its ``cells``, a metric each, None where it lacks one; ``unlike``: how many were
        judged otherwise than the first.
    """
    by_name = [{metric["name"]: metric for metric in view["metrics"]} for view in views]
    known = list(dict.fromkeys(name for metrics in by_name for name in metrics))
    names = sorted(known, key=lambda name: sum(name not in metrics for metrics in by_name))[:MOST_METRICS]
    first = [metrics.get(names[0]) if names else None for metrics in by_name]
    alike = [
        judged_by(view, metric) == judged_by(views[0], first[0]) for view, metric in zip(views, first, strict=True)
    ]
    rivals = [metric if same else None for metric, same in zip(first, alike, strict=True)]
    rows = [
        {"place": place(rival, rivals), "number": number, "view": view, "cells": [metrics.get(name) for name in names]}
        for number, (view, metrics, rival) in enumerate(zip(views, by_name, rivals, strict=True), 1)
    ]
    order = sorted(range(len(rows)), key=lambda place: (not alike[place], _badness(first[place])))
    return {"metrics": names, "rows": [rows[place] for place in order], "unlike": alike.count(False)}


def judged_by(view: Mapping[str, Any], metric: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """Return what a value is a value of: only where this is the same one run is better than another."""
    manifest = view["manifest"]
    data, recipe = manifest.get("data") or {}, (manifest.get("resolved") or {}).get("recipe") or {}
    half = data.get("test") or data.get("validation") or {}
    name = "" if metric is None else str(metric["name"])
    loss = (recipe.get("task"), recipe.get("loss"), recipe.get("model") if recipe.get("loss") is None else None)
    about = () if metric is None else (name, metric["unit"], metric["direction"])
    return (half.get("name"), half.get("digest"), *about, *(loss if "loss" in name else ()))


def place(metric: Mapping[str, Any] | None, others: Sequence[Mapping[str, Any] | None]) -> int | None:
    """One more than how many are better beyond both intervals; None without an interval.

    Example:
        >>> runs = [{"direction": "higher", "interval": ends} for ends in ((97, 98), (97.5, 99), (90, 96), None)]
        >>> [place(run, runs) for run in runs]
        [1, 1, 3, None]
    """
    ends = _ends(metric)
    if metric is None or ends is None:
        return None
    rivals = [other for other in map(_ends, others) if other is not None]
    lower = metric["direction"] == "lower"
    return 1 + sum(other[1] < ends[0] if lower else other[0] > ends[1] for other in rivals)


def _ends(metric: Mapping[str, Any] | None) -> tuple[float, float] | None:
    interval = None if metric is None else metric["interval"]
    return None if interval is None or None in interval else (interval[0], interval[1])


def _badness(metric: Mapping[str, Any] | None) -> tuple[bool, float]:
    if metric is None or metric["value"] is None:
        return True, 0.0
    return False, metric["value"] if metric["direction"] == "lower" else -metric["value"]
