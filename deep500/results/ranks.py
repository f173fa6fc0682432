"""``ranks.json``: how the times of a run's processes relate, beside its samples (schema ``deep500-ranks-1``)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from deep500.measure.launches import groups_differ
from deep500.measure.quantiles import quantile
from deep500.measure.statistics import Interval
from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.formats import RANKS_SCHEMA
from deep500.results.samples import SampleStore
from deep500.results.stats import STEP as STEP
from deep500.results.stats import kept_samples

RANKS = "ranks.json"

COMMUNICATION = "communication"
"""Series that each rank has of its own."""

FEWEST = 5
"""Steps of a rank that a test of ranks against each other needs."""


def of_rank(series: str, rank: int) -> str:
    """The name of one rank's own series: ``step-rank-3``."""
    return f"{series}-rank-{rank}"


def is_of_rank(name: str) -> bool:
    """Return whether a series is one rank's own; reports sum those up in one table.

    Example:
        >>> is_of_rank(of_rank("step", 3)), is_of_rank("step")
        (True, False)
    """
    return rank_of(name) is not None


def rank_of(name: str) -> int | None:
    """Whose own series it is; None: of no rank."""
    match = re.search(r"-rank-(\d+)$", name)
    return None if match is None else int(match[1])


@dataclass(frozen=True)
class Rank:
    """One process: its time per step, its clock against rank 0's, and its share of communication.

    Attributes:
        seconds: of one step.
        offset, offset_error: of its clock, seconds; None where clocks were not compared.
        waiting: share of the step, 0 to 1, spent in communication; None: not measured.
        sent_bytes: payload per step; None: not counted.
    """

    rank: int
    seconds: Interval
    offset: float | None = None
    offset_error: float | None = None
    waiting: float | None = None
    sent_bytes: float | None = None


@dataclass(frozen=True)
class Ranks:
    """Times of the ranks of one run, and how they were brought together (rule R10).

    Attributes:
        ranks: one entry each.
        sync: ``"barrier"``, ``"window"`` or ``"none"``: how a step's start was synchronised.
        summary: ``"max"``, ``"median"`` or ``"pooled"``: what one step's time is made of.
        imbalance: mean over the steps of the slowest rank's time over the mean one's, minus 1; None: not measured.
        rank_p: of Kruskal and Wallis's test that all ranks are alike; None: not tested.
    """

    ranks: tuple[Rank, ...]
    sync: str
    summary: str
    imbalance: float | None = None
    rank_p: float | None = None

    def observed(self) -> Ranks:
        """The same without intervals: times of a run that others disturbed are observations.

        Example:
            >>> Ranks((Rank(0, Interval(0.5, 0.4, 0.6, 50)),), "none", "max").observed().ranks[0].seconds
            Interval(median=0.5, low=None, high=None, n=50, level=0.95)
        """
        ranks = [replace(rank, seconds=replace(rank.seconds, low=None, high=None)) for rank in self.ranks]
        return replace(self, ranks=tuple(ranks))

    def write(self, folder: Path) -> Path:
        """Write ``ranks.json`` into a results folder; raises ResultsError."""
        ranks = [{**asdict(rank), "seconds": to_entry(rank.seconds)} for rank in self.ranks]
        write_atomic(folder / RANKS, to_json({"schema": RANKS_SCHEMA, **asdict(self), "ranks": ranks}) + "\n")
        return folder / RANKS

    @classmethod
    def read(cls, folder: Path) -> Ranks | None:
        """From a results folder, None where there is none; raises ResultsError for any other file of that name."""
        path = folder / RANKS
        if not path.exists():
            return None
        content = read_json(path)
        ranks = tuple(Rank(**{**entry, "seconds": from_entry(entry["seconds"])}) for entry in content.pop("ranks"))
        del content["schema"]
        return cls(ranks, **content)

    def claims(self) -> list[dict[str, Any]]:
        """Return the claims of the table, for the rules."""
        return [
            {
                "type": "parallel",
                "ranks": len(self.ranks),
                "sync": self.sync,
                "summary": self.summary,
                "rank_p": self.rank_p,
            }
        ]


def to_entry(interval: Interval) -> dict[str, Any]:
    """An interval as JSON holds it."""
    return {
        "value": interval.median,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "level": interval.level,
    }


def from_entry(content: Mapping[str, Any]) -> Interval:
    """The interval in such an entry."""
    return Interval(float(content["value"]), content["low"], content["high"], content["n"], content["level"])


def communication_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]] | None:
    """Per rank the sums over the epochs' lines of ``metrics.jsonl``; None where one process trained."""
    epochs = [line["ranks"] for line in lines if line.get("ranks")]
    if not epochs:
        return None
    return {
        str(rank): {name: sum(epoch[rank][name] for epoch in epochs if rank < len(epoch)) for name in epochs[0][0]}
        for rank in range(max(map(len, epochs)))  # not all epochs have as many where the number of ranks changed
    }


def ranks_of_run(
    samples: SampleStore, plan: Mapping[str, Any], seeds: Sequence[int], count: int, communication: Mapping[str, Any]
) -> Ranks | None:
    """How the times of each rank's steps relate; None where there are no steps that all ranks made.

    A rank's time is that of its whole step, waiting included. Imbalance is of what it computes: the mean over steps of
    the slowest rank's computing time over the mean rank's, minus 1. Clocks are not compared here: steps are paired by
    their number.

    Args:
        samples: of the run, with the series of every rank.
        plan: of the series of steps, as the manifest says.
        seeds: those that were trained.
        count: number of ranks.
        communication: per rank the sums of the run, see :func:`communication_of`.
    """
    begin = {seed: steady.cut for seed, (_, steady, _) in kept_samples(samples, STEP, seeds, plan).items()}
    known = set(samples.names())

    def starts_of(name: str, seed: int) -> Any:
        return samples.load(name, seed)["start_ns"] if (name, seed) in known else []

    def of_all(seed: int, cut: int) -> np.ndarray:
        """When those steps began that all present ranks made: of others, some have no time."""
        starts = starts_of(STEP, seed)[cut:]
        for rank in range(count):
            starts = np.intersect1d(starts, starts_of(of_rank(STEP, rank), seed))
        return starts

    common = {seed: of_all(seed, cut) for seed, cut in begin.items()}

    def steady(series: str, rank: int) -> np.ndarray:
        name = of_rank(series, rank)
        pairs = [(seed, starts) for seed, starts in common.items() if starts.size]
        parts = [samples.durations(name, seed)[np.isin(starts_of(name, seed), starts)] for seed, starts in pairs]
        return np.concatenate(parts) if parts else np.empty(0)

    steps = np.array([steady(STEP, rank) for rank in range(count)])
    waits = np.array([steady(COMMUNICATION, rank) for rank in range(count)])
    if not steps.size:
        return None
    computing = steps - waits
    ranks = [_rank(rank, steps[rank], waits[rank], communication.get(str(rank), {})) for rank in range(count)]
    enough = steps.shape[1] >= FEWEST
    differ = groups_differ({str(rank): seconds for rank, seconds in enumerate(computing)}) if enough else None
    imbalance = float(np.mean(computing.max(axis=0) / computing.mean(axis=0)) - 1)
    return Ranks(tuple(ranks), "none", "max", imbalance, differ)


def _rank(rank: int, steps: np.ndarray, waits: np.ndarray, sums: Mapping[str, Any]) -> Rank:
    sent = sums["payload_bytes"] / sums["steps"] if sums.get("steps") else None
    return Rank(rank, quantile(steps), waiting=float(waits.sum() / steps.sum()), sent_bytes=sent)
