"""What a recipe run writes while it trains: the epoch's line, the times of its steps, and a checkpoint."""

from __future__ import annotations

import dataclasses
from array import array
from time import perf_counter_ns
from typing import Any

from deep500.events import Event
from deep500.measure.plan import Plan, Target
from deep500.results import Record
from deep500.results.stats import plan_to_json

STEP, EPOCH, VALIDATION = "step", "epoch", "validation"


def declared_series(batch_size: int | None) -> dict[str, dict[str, Any]]:
    """The manifest's entry for the series that a run records: unit, kind, meaning and what is wanted of them."""
    tails = plan_to_json(Plan(targets=(Target(0.5, 0.95, 0.05), Target(0.9, 0.95, 0.1), Target(0.99, 0.95, 0.2))))
    median = plan_to_json(Plan(targets=(Target(0.5, 0.95, 0.05),)))
    about = {"unit": "s", "kind": "cost"}
    return {
        STEP: {**about, "plan": tails, "samples_each": batch_size,
               "meaning": "one training step with loading its batch; the device is not waited for"},
        EPOCH: {**about, "plan": median, "meaning": "training of one epoch, until the device has finished"},
        VALIDATION: {**about, "plan": median, "meaning": "one validation"},
    }  # fmt: skip


class EpochRecorder(Event):
    """Writes every finished epoch to the disk before the next begins; samples of a seed are one launch."""

    def __init__(self, record: Record, seed: int, trainer: Any) -> None:
        self.record, self.seed, self.trainer = record, seed, trainer
        self._starts, self._durations = array("q"), array("q")
        self._begin = self._epoch_begin = 0

    def before_epoch(self, run: Any) -> None:
        """Forget the steps of an epoch that was not finished."""
        del self._starts[:], self._durations[:]
        self._epoch_begin = perf_counter_ns()

    def before_batch(self, run: Any) -> None:
        """A step begins."""
        self._begin = perf_counter_ns()

    def after_batch(self, run: Any) -> None:
        """A step ends."""
        self._durations.append(perf_counter_ns() - self._begin)
        self._starts.append(self._begin)

    def after_epoch(self, run: Any) -> None:
        """Append the samples, the epoch's line and its checkpoint, in this order: a crash repeats the epoch."""
        line = dataclasses.asdict(run.record)
        epoch = line.pop("epoch") + 1
        if not line.pop("complete"):
            return
        samples = self.record.samples
        samples.append(STEP, self.seed, self._starts, self._durations)
        samples.append(EPOCH, self.seed, [self._epoch_begin], [_nanoseconds(line["train_seconds"])])
        if line["test_seconds"] is not None:
            begin = self._epoch_begin + _nanoseconds(line["train_seconds"])
            samples.append(VALIDATION, self.seed, [begin], [_nanoseconds(line["test_seconds"])])
        self.record.add_epoch(self.seed, epoch, line, self.trainer.state())


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
