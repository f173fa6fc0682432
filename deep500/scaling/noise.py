"""System noise: measured by a fixed work quantum on all ranks at once, replayed under what ranks do in a simulation.

Every rank repeats the same short work and notes when each repetition has ended (the fixed-work-quantum benchmark,
Sottile and Minnich 2004, *Analysis of microbenchmarks for performance tuning of clusters*). What takes longer than the
quickest repetitions was taken by others: the kernel, its daemons, other programs. A simulation then lets a rank work
along such a record (Hoefler, Schneider and Lumsdaine 2010, *Characterizing the influence of system noise on large-scale
applications by simulation*, which injects noise so): a moment that belonged to others stops computing, sending, and a
rank for which others wait, alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.distributed import Communicator
from deep500.distributed.clocks import gather_quietly
from deep500.errors import InputError

QUANTUM = 50e-6
"""Seconds of work between two looks at the clock, about."""

QUICK = 0.05
"""The share of the quickest repetitions whose largest time counts as undisturbed: single ones are too quick by chance,
where the clock rate goes up for a moment."""

Go = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(ranks, when they begin, seconds of their work) -> when they have done it."""


def undisturbed(ranks: np.ndarray, begin: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Return the ends of work where nothing else runs."""
    return begin + work


@dataclass(frozen=True)
class Noise:
    """Records of fixed work.

    Attributes:
        quantum: seconds of one repetition where nothing disturbs.
        records: of each time that was measured, of each rank, when every repetition had ended: seconds since all began.

    Raises:
        InputError: no records, or clocks that stand.

    Example (a rank that loses every third second):
        >>> noise = Noise(1.0, [[np.array([1.0, 2.0, 4.0, 5.0, 7.0])]])
        >>> noise.dilation
        1.4
        >>> noise.replayed(1, None)(np.array([0]), np.array([1.5]), np.array([1.0]))
        array([3.])
    """

    quantum: float
    records: Sequence[Sequence[np.ndarray]]

    def __post_init__(self) -> None:
        ends = [end for ranks in self.records for end in ranks]
        if not ends or not self.quantum > 0 or any(end.size < 1 or end[0] <= 0 for end in ends):
            raise InputError("got noise without records of at least one quantum; expected some: measure it again")

    @classmethod
    def from_ends(cls, answer: Sequence[Sequence[Sequence[float]]]) -> Noise:
        """From the ends of repetitions, in seconds, by time of measurement and rank."""
        records = [[np.asarray(rank, np.float64) for rank in ranks] for ranks in answer]
        lengths = np.concatenate([np.diff(rank, prepend=0.0) for ranks in records for rank in ranks])
        return cls(float(np.quantile(lengths, QUICK)), records)

    @property
    def dilation(self) -> float:
        """Seconds that pass in the mean for a second of work."""
        ends = [end for ranks in self.records for end in ranks]
        return float(sum(end[-1] for end in ends) / (self.quantum * sum(end.size for end in ends)))

    def replayed(self, ranks: int, rng: np.random.Generator | None) -> Go:
        """One of the records, repeated endlessly, from a random place in it: the same moment for all ranks of the
        record; ranks beyond those begin at places of their own. Without ``rng``: the first record, from its start.
        """
        record = self.records[0 if rng is None else int(rng.integers(len(self.records)))]
        walls = [np.concatenate([[0.0], end]) for end in record]
        works = [self.quantum * np.arange(wall.size) for wall in walls]
        place = np.arange(ranks) % len(record)
        phase = np.zeros(ranks)
        if rng is not None:
            phase += rng.uniform(0, min(wall[-1] for wall in walls))
            phase[len(record) :] = rng.uniform(0, 1, max(0, ranks - len(record))) * phase[0]

        def go(who: np.ndarray, begin: np.ndarray, work: np.ndarray) -> np.ndarray:
            done = np.empty(len(who))
            for number, (wall, works_done) in enumerate(zip(walls, works, strict=True)):
                mine = place[who] == number
                if mine.any():
                    start = begin[mine] + phase[who[mine]]
                    target = _along(start, wall, works_done) + work[mine]
                    done[mine] = _along(target, works_done, wall) - phase[who[mine]]
            return np.maximum(done, begin)

        return go


def _along(at: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """From one axis of a record that repeats itself to the other."""
    rounds = np.floor(at / source[-1])
    return rounds * target[-1] + np.interp(at - rounds * source[-1], source, target)


def fixed_work(comm: Communicator, seconds: float) -> list[list[float]]:
    """Repeat a quantum on all ranks at once; of every rank, when each repetition had ended."""
    size = _calibrated()
    gather_quietly(comm)
    comm.barrier()
    begin, ends = time.perf_counter(), list[float]()
    while not ends or ends[-1] < seconds:
        sum(range(size))
        ends.append(time.perf_counter() - begin)
    gather_quietly(comm)
    joined = comm.all_gather_ragged(np.array(ends))
    return [np.asarray(rank).tolist() for rank in joined]


def _calibrated() -> int:
    """Return how much work takes a quantum, at the quickest of some trials."""
    size, quickest = 1000, float("inf")
    for _ in range(30):
        begin = time.perf_counter()
        sum(range(size))
        quickest = min(quickest, time.perf_counter() - begin)
    return max(1, round(size * QUANTUM / quickest))


def measure_noise(comm: Communicator, seconds: float = 0.25, times: int = 8) -> dict[str, Any]:
    """The job: several records of fixed work."""
    return {"noise": [fixed_work(comm, seconds) for _ in range(times)]}


def noise_of(answer: Mapping[str, Any]) -> Noise:
    """From the answer of a job that measured it."""
    return Noise.from_ends(answer["noise"])
