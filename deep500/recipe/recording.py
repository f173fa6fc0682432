"""What a recipe run writes while it trains: the epoch's line, the times of its steps, and a checkpoint."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np

from deep500.distributed import Communicator, Serial
from deep500.events import Event
from deep500.measure.plan import Plan, Target
from deep500.results import Record
from deep500.results.ranks import of_rank
from deep500.results.stats import plan_to_json

STEP, EPOCH, VALIDATION, COMMUNICATION = "step", "epoch", "validation", "communication"


def declared_series(batch_size: int | None) -> dict[str, dict[str, Any]]:
    """The manifest's entry for the series that a run records: unit, kind, meaning and what is wanted of them."""
    tails = plan_to_json(Plan(targets=(Target(0.5, 0.95, 0.05), Target(0.9, 0.95, 0.1), Target(0.99, 0.95, 0.2))))
    median = plan_to_json(Plan(targets=(Target(0.5, 0.95, 0.05),)))
    about = {"unit": "s", "kind": "cost"}
    return {
        STEP: {
            **about,
            "plan": tails,
            "samples_each": batch_size,
            "meaning": "one training step with loading its batch; the device is not waited for",
        },
        EPOCH: {**about, "plan": median, "meaning": "training of one epoch, until the device has finished"},
        VALIDATION: {**about, "plan": median, "meaning": "one validation"},
    }


class EpochRecorder(Event):
    """Writes every finished epoch to the disk before the next begins; samples of a seed are one launch.

    On several ranks the time of a step is that of the slowest, and each rank's own times, and how much of them was
    communication, are series of their own. Rank 0 writes them.
    """

    def __init__(self, record: Record, seed: int, trainer: Any, comm: Communicator | None = None) -> None:
        self.record, self.seed, self.trainer = record, seed, trainer
        self.comm = Serial() if comm is None else comm
        self._starts, self._durations, self._waits = array("q"), array("q"), array("q")
        self._begin = self._epoch_begin = 0
        self._before = self._traffic()
        self._sum = np.zeros(3)

    def before_epoch(self, run: Any) -> None:
        """Forget the steps of an epoch that was not finished."""
        del self._starts[:], self._durations[:], self._waits[:]
        self._sum = np.zeros(3)
        self._epoch_begin = perf_counter_ns()

    def before_batch(self, run: Any) -> None:
        """A step begins."""
        self._before = self._traffic()
        self._begin = perf_counter_ns()

    def after_batch(self, run: Any) -> None:
        """A step ends."""
        self._durations.append(perf_counter_ns() - self._begin)
        exchanged = self._traffic() - self._before
        self._waits.append(_nanoseconds(exchanged[2]))
        self._sum += exchanged
        self._starts.append(self._begin)

    def after_epoch(self, run: Any) -> None:
        """Append the samples, the epoch's line and its checkpoint, in this order: a crash repeats the epoch."""
        line = dataclasses.asdict(run.record)
        epoch = line.pop("epoch") + 1
        if not line.pop("complete"):
            return
        durations = np.array(self._durations)
        if self.comm.size > 1:
            line["ranks"], durations = self._of_ranks()
        if self.comm.rank == 0:
            self._write_samples(line, durations)
        self.record.add_epoch(self.seed, epoch, line, self.trainer.state())

    def _of_ranks(self) -> tuple[list[dict[str, float]], np.ndarray]:
        """What each rank communicated in this epoch, and every step's time on the slowest rank."""
        traffic = dict(zip(("payload_bytes", "messages", "wait_seconds"), self._sum.tolist(), strict=True))
        each = self.comm.gather_facts(
            {**traffic, "step_seconds": sum(self._durations) / 1e9, "steps": len(self._durations)}
        )
        times = self.comm.all_gather(np.array([self._durations, self._waits], np.int64), control=16 * len(self._waits))
        if self.comm.rank == 0:
            for rank, (durations, waits) in enumerate(times):
                self.record.samples.append(of_rank(STEP, rank), self.seed, self._starts, durations)
                self.record.samples.append(of_rank(COMMUNICATION, rank), self.seed, self._starts, waits)
        return each, times[:, 0].max(axis=0)

    def _traffic(self) -> np.ndarray:
        traffic = self.comm.traffic
        return np.array([traffic.payload_bytes, traffic.messages, traffic.seconds])

    def _write_samples(self, line: dict[str, Any], durations: np.ndarray) -> None:
        samples = self.record.samples
        samples.append(STEP, self.seed, self._starts, durations)
        samples.append(EPOCH, self.seed, [self._epoch_begin], [_nanoseconds(line["train_seconds"])])
        if line["test_seconds"] is not None:
            begin = self._epoch_begin + _nanoseconds(line["train_seconds"])
            samples.append(VALIDATION, self.seed, [begin], [_nanoseconds(line["test_seconds"])])


def communication_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]] | None:
    """Per rank the sums over the epochs' lines of what :class:`EpochRecorder` notes; None where one process trained."""
    each = [line["ranks"] for line in lines if line.get("ranks")]
    if not each:
        return None
    return {
        str(rank): {name: sum(epoch[rank][name] for epoch in each) for name in each[0][rank]}
        for rank in range(len(each[0]))
    }


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
