"""``scaling.json``: a table of times over process counts, measured or predicted, with the base of its speedups.

It lies beside a run's samples (schema ``deep500-scaling-1``), is written by :meth:`Scaling.write`, and is judged by the
rules R1, R11, F1 and F11 through :meth:`Scaling.claims`::

    {"schema": ..., "mode": "strong" | "weak",
     "base": {"text": "one process, batch 64", "kind": "parallel-1", "ranks": 1, "global_batch": 64,
              "seconds": {"value": 0.8, "low": 0.79, "high": 0.81, "n": 40, "level": 0.95}},
     "entries": [{"ranks": 2, "global_batch": 64, "scheme": "ring all-reduce", "kind": "measured",
                  "step_seconds": {...}, "efficiency": {"value": 0.95, "low": 0.93, "high": 0.97},
                  "quality": 97.1, "quality_low": 96.8}],
     "quality": "test_accuracy (%)", "bounds": [{"name": "measured all-reduce", "ranks": [2], "seconds": [0.41]}],
     "labels": ["busy machine"]}

The format belongs to the results folder, whose report and rules read it; what fills it with measurements and
predictions is :mod:`deep500.scaling`, above them.

Efficiency is samples per second and process, relative to the base: for a fixed problem ``t_1 / (p t_p)``, for one that
grows with the processes ``t_1 / t_p``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.measure.bounds import scaling_table
from deep500.measure.statistics import Interval
from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.formats import SCALING_SCHEMA
from deep500.results.quiet import BUSY, RANKS_CHANGED
from deep500.results.ranks import from_entry, to_entry
from deep500.results.record import SCALING as SCALING

MEASURED, PREDICTED = "measured", "predicted"
STRONG, WEAK = "strong", "weak"
BASES = ("serial-best", "parallel-1", "other")


@dataclass(frozen=True)
class ScalingBase:
    """The base of speedups: a text that says what ran, one of :data:`BASES`, and its time per step."""

    text: str
    kind: str
    global_batch: int
    seconds: Interval
    ranks: int = 1


@dataclass(frozen=True)
class ScalingPoint:
    """One point of a scaling table.

    Attributes:
        ranks, global_batch: how many processes trained on how many samples per step, all together.
        scheme: how they communicated.
        seconds: of one step, the slowest rank's; an observation or a prediction has no interval.
        kind: ``"measured"`` or ``"predicted"``.
        quality, quality_low: the quality reached at this scale and the low end of its interval; None: not measured.
    """

    ranks: int
    global_batch: int
    scheme: str
    seconds: Interval
    kind: str = MEASURED
    quality: float | None = None
    quality_low: float | None = None


@dataclass(frozen=True)
class ScalingBound:
    """Times per step below which nothing can go, by number of ranks: such as measured communication alone."""

    name: str
    ranks: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Scaling:
    """A scaling table; see the module for its file. ``labels`` must be said wherever one of its numbers appears.

    Example:
        >>> base = ScalingBase("one process, batch 64", "parallel-1", 64, Interval(0.8, 0.79, 0.81, 40))
        >>> table = Scaling(base, (ScalingPoint(2, 64, "ring", Interval(0.5, 0.49, 0.52, 40)),))
        >>> efficiency = table.efficiency(table.entries[0])
        >>> round(efficiency.median, 3), round(efficiency.low, 3), round(efficiency.high, 3)
        (0.8, 0.76, 0.827)
        >>> table.mode
        'strong'
    """

    base: ScalingBase
    entries: tuple[ScalingPoint, ...]
    quality: str | None = None
    bounds: tuple[ScalingBound, ...] = ()
    labels: tuple[str, ...] = ()

    @property
    def mode(self) -> str:
        """``"strong"`` where the global batch is the same everywhere, else ``"weak"`` (rule F11)."""
        return STRONG if all(e.global_batch == self.base.global_batch for e in self.entries) else WEAK

    @property
    def schemes(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(entry.scheme for entry in self.entries))

    def efficiency(self, entry: ScalingPoint) -> Interval:
        """Samples per second and process relative to the base's; its interval holds if both times' intervals do."""
        work = entry.global_batch * self.base.ranks / (self.base.global_batch * entry.ranks)
        ends = [self.base.seconds.low, self.base.seconds.high, entry.seconds.low, entry.seconds.high]
        low, high = None, None
        if None not in ends:
            low, high = work * ends[0] / ends[3], work * ends[1] / ends[2]  # type: ignore[operator]
        middle = work * self.base.seconds.median / entry.seconds.median
        return Interval(middle, low, high, entry.seconds.n, entry.seconds.level)

    def labelled(self, labels: Sequence[str]) -> Scaling:
        """The same of times with these labels: where others disturbed them all are observations, without intervals.

        Example:
            >>> base = ScalingBase("one process, batch 64", "parallel-1", 64, Interval(0.8, 0.79, 0.81, 40))
            >>> table = Scaling(base, (ScalingPoint(2, 64, "ring", Interval(0.5, 0.49, 0.52, 40)),))
            >>> busy = table.labelled(["busy machine"])
            >>> busy.labels, busy.base.seconds.low, busy.efficiency(busy.entries[0]).high
            (('busy machine',), None, None)
        """
        base, entries = self.base, self.entries
        table = replace(self, labels=tuple(labels))
        if table.disturbed:
            base = replace(base, seconds=replace(base.seconds, low=None, high=None))
            entries = tuple(replace(e, seconds=replace(e.seconds, low=None, high=None)) for e in entries)
        return replace(table, base=base, entries=entries)

    @property
    def disturbed(self) -> bool:
        """Whether its times, and what follows from them, are observations."""
        return bool({BUSY, RANKS_CHANGED} & {*self.labels})

    def serial_share(self, scheme: str) -> float | None:
        """Amdahl's serial share fitted to what was measured; None without a base on one process or without points."""
        times = {e.ranks: e.seconds for e in self.entries if e.scheme == scheme and e.kind == MEASURED and e.ranks > 1}
        if not times or self.base.ranks != 1 or self.base.kind == "other":
            return None
        return scaling_table({1: self.base.seconds, **times}, self.mode == WEAK)[1]

    def write(self, folder: Path) -> Path:
        """Write ``scaling.json`` into a results folder; raises ResultsError."""
        _check(self)
        entries = [
            {**asdict(e), "step_seconds": to_entry(e.seconds), "efficiency": to_entry(self.efficiency(e))}
            for e in self.entries
        ]
        for entry in entries:
            del entry["seconds"]
        content = {
            "schema": SCALING_SCHEMA,
            "mode": self.mode,
            "quality": self.quality,
            "entries": entries,
            "base": {**asdict(self.base), "seconds": to_entry(self.base.seconds)},
            "bounds": [asdict(bound) for bound in self.bounds],
            "labels": list(self.labels),
        }
        write_atomic(folder / SCALING, to_json(content) + "\n")
        return folder / SCALING

    @classmethod
    def read(cls, folder: Path) -> Scaling | None:
        """From a results folder, None where there is none; raises ResultsError for any other file of that name."""
        path = folder / SCALING
        if not path.exists():
            return None
        content = read_json(path)
        base = ScalingBase(**{**content["base"], "seconds": from_entry(content["base"]["seconds"])})
        entries = []
        for entry in content["entries"]:
            facts = {key: value for key, value in entry.items() if key not in ("step_seconds", "efficiency")}
            entries.append(ScalingPoint(**facts, seconds=from_entry(entry["step_seconds"])))
        bounds = [ScalingBound(b["name"], tuple(b["ranks"]), tuple(b["seconds"])) for b in content["bounds"]]
        table = cls(base, tuple(entries), content["quality"], tuple(bounds), tuple(content.get("labels", ())))
        _check(table)
        return table

    def claims(self) -> list[dict[str, Any]]:
        """The claims of the table, for the rules: scaling with its bounds, and speedups with their base."""
        claims: list[dict[str, Any]] = []
        base = {
            "kind": self.base.kind,
            "text": self.base.text,
            "seconds": self.base.seconds.median,
            "low": self.base.seconds.low,
            "high": self.base.seconds.high,
        }
        for scheme in self.schemes:
            rows = [
                {
                    "processes": e.ranks,
                    "seconds": e.seconds.median,
                    "global_batch": e.global_batch,
                    "quality": e.quality,
                    "quality_low": e.quality_low,
                }
                for e in self.entries
                if e.scheme == scheme and e.kind == MEASURED
            ]
            if rows:
                amdahl = [] if self.serial_share(scheme) is None else ["amdahl"]
                claims.append(
                    {
                        "type": "scaling",
                        "scheme": scheme,
                        "rows": rows,
                        "labels": [self.mode],
                        "bounds": ["ideal", *amdahl, *(bound.name for bound in self.bounds)],
                    }
                )
        claims += [
            {"type": "speedup", "value": self.efficiency(e).median * e.ranks, "processes": e.ranks, "base": base}
            for e in self.entries
            if e.ranks > self.base.ranks
        ]
        return claims


def _check(scaling: Scaling) -> None:
    """Numbers that can be plotted and divided by, words that are known."""
    entries: Sequence[Any] = [scaling.base, *scaling.entries]
    wrong = [
        f"{point.ranks} ranks, batch {point.global_batch}, {point.seconds.median} s"
        for point in entries
        if point.ranks < 1 or point.global_batch < 1 or not 0 < point.seconds.median < math.inf
    ]
    wrong += [f"base {scaling.base.kind!r}"] if scaling.base.kind not in BASES else []
    wrong += [f"kind {entry.kind!r}" for entry in scaling.entries if entry.kind not in (MEASURED, PREDICTED)]
    wrong += [
        f"bound {b.name!r}"
        for b in scaling.bounds
        if len(b.ranks) != len(b.seconds) or not b.ranks or min(b.ranks) < 1 or min(b.seconds) <= 0
    ]
    if wrong:
        raise ResultsError(
            f"{SCALING}: got {'; '.join(wrong)}; expected positive ranks, batches and times, a base of "
            f"{', '.join(BASES)}, and points that are {MEASURED} or {PREDICTED}"
        )
