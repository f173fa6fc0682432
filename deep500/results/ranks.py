"""``ranks.json``: how the times of a run's processes relate, beside its samples (schema ``deep500-ranks-1``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deep500.measure.statistics import Interval
from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.formats import RANKS_SCHEMA

RANKS = "ranks.json"


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
