"""What a run on several ranks says of their times: ``ranks.json``, for the report and for rule R10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep500.measure.launches import groups_differ
from deep500.measure.quantiles import quantile
from deep500.measure.statistics import Interval
from deep500.results import Record
from deep500.results.ranks import Rank, Ranks, of_rank
from deep500.results.stats import kept_samples

FEWEST = 5
"""Steps of a rank that a test of ranks against each other needs."""


def write_rank_times(record: Record, count: int, seeds: Sequence[int], communication: Mapping[str, Any] | None) -> None:
    """Write ``ranks.json`` from the series that the recorder keeps of every rank; nothing where one process trained.

    A rank's time is that of its whole step, waiting included. Imbalance is of what it computes: the mean over steps of
    the slowest rank's computing time over the mean rank's, minus 1. Clocks are not compared here: steps are paired by
    their number.

    Args:
        record: the run.
        count: number of ranks.
        seeds: those that were trained.
        communication: per rank the sums of the run, see :func:`deep500.recipe.recording.communication_of`.
    """
    if count == 1 or not communication:
        return
    plan = record.manifest()["series"]["step"]["plan"]
    begin = {seed: found[1].cut for seed, found in kept_samples(record.samples, "step", seeds, plan).items()}
    known = set(record.samples.names())

    def steady(series: str, rank: int) -> np.ndarray:
        name = of_rank(series, rank)
        parts = [record.samples.durations(name, seed)[cut:] for seed, cut in begin.items() if (name, seed) in known]
        return np.concatenate(parts) if parts else np.empty(0)

    steps = np.array([steady("step", rank) for rank in range(count)])
    waits = np.array([steady("communication", rank) for rank in range(count)])
    if not steps.size:
        return
    computing = steps - waits
    each = [_rank(rank, steps[rank], waits[rank], communication.get(str(rank), {})) for rank in range(count)]
    differ = groups_differ({str(rank): one for rank, one in enumerate(computing)}) if steps.shape[1] >= FEWEST else None
    imbalance = float(np.mean(computing.max(axis=0) / computing.mean(axis=0)) - 1)
    Ranks(tuple(each), "none", "max", imbalance, differ).write(record.path)


def _rank(rank: int, steps: np.ndarray, waits: np.ndarray, sums: Mapping[str, Any]) -> Rank:
    found = quantile(steps, 0.5, 0.95)
    interval = Interval(found.value, found.low, found.high, found.n, found.level)
    sent = sums["payload_bytes"] / sums["steps"] if sums.get("steps") else None
    return Rank(rank, interval, waiting=float(waits.sum() / steps.sum()), sent_bytes=sent)
