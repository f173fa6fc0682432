"""What a recipe run writes while it trains: the epoch's line, the times of its steps, and a checkpoint; afterwards the
times of its ranks, ``ranks.json``, for the report and for rule R10."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from time import perf_counter_ns, process_time, time
from typing import Any

import numpy as np

from deep500.distributed import Communicator, Serial
from deep500.events import Event
from deep500.measure.launches import groups_differ
from deep500.measure.load import load_between, read_load
from deep500.measure.plan import Plan, Target
from deep500.measure.quantiles import quantile
from deep500.results import Record
from deep500.results.ranks import Rank, Ranks, of_rank
from deep500.results.stats import kept_samples, plan_to_json

STEP, EPOCH, VALIDATION, COMMUNICATION = "step", "epoch", "validation", "communication"

ACTING = ("collection", "inference")
"""Regions of a task that acts; the second lies within the first."""

FEWEST = 5
"""Steps of a rank that a test of ranks against each other needs."""


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
    communication, are series of their own. Rank 0 writes them. Where a task acts to make its data, the epoch's
    line says the seconds of that, on rank 0.
    """

    def __init__(self, record: Record, seed: int, trainer: Any, comm: Communicator | None = None) -> None:
        self.record, self.seed, self.trainer = record, seed, trainer
        self.comm = Serial() if comm is None else comm
        self._starts, self._durations, self._waits = array("q"), array("q"), array("q")
        self._begin = self._epoch_begin = 0
        self._began, self._cpu, self._load = 0.0, 0.0, read_load()
        self._before = self._traffic()
        self._sum = np.zeros(3)
        self._acted = dict.fromkeys(ACTING, 0)
        self._run_begin = 0
        self.wall_seconds: float | None = None

    def before_run(self, run: Any) -> None:
        """The run begins."""
        self.wall_seconds = None
        self._run_begin = 0 if run.epoch else perf_counter_ns()

    def after_run(self, run: Any) -> None:
        """What the clock says of the whole run, ``wall_seconds``; None of one that was resumed: it stood still."""
        if self._run_begin:
            self.wall_seconds = (perf_counter_ns() - self._run_begin) / 1e9

    def before_epoch(self, run: Any) -> None:
        """Forget the steps of an epoch that was not finished."""
        del self._starts[:], self._durations[:], self._waits[:]
        self._sum = np.zeros(3)
        self._acted = dict.fromkeys(ACTING, 0)
        self._cpu, self._load = process_time(), read_load()
        self._began, self._epoch_begin = time(), perf_counter_ns()

    def before_collection(self, source: Any) -> None:
        """A task begins to act."""
        self._acted["collection"] -= perf_counter_ns()

    def after_collection(self, source: Any) -> None:
        """It has acted."""
        self._acted["collection"] += perf_counter_ns()

    def before_inference(self, source: Any) -> None:
        """The network is asked, to act."""
        self._acted["inference"] -= perf_counter_ns()

    def after_inference(self, source: Any) -> None:
        """It has answered."""
        self._acted["inference"] += perf_counter_ns()

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
        """Append the samples, the epoch's line and its checkpoint, in this order: a crash repeats the epoch.

        What the clock says of the whole epoch, and how busy the machine was, stands beside the parts that add up to it.
        """
        wall = (perf_counter_ns() - self._epoch_begin) / 1e9
        line = run.record.to_dict()
        line["clock"] = {"began": self._began, "wall_seconds": wall, "steps": len(self._durations)}
        if self._acted["collection"]:
            inference = self._acted["inference"]
            line["acting"] = {
                "collection_seconds": (self._acted["collection"] - inference) / 1e9,
                "inference_seconds": inference / 1e9,
            }
        if run.record.checks:
            line["checks"] = run.record.checks
        line["load"] = load_between(self._load, read_load())
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
            {
                **traffic,
                "step_seconds": sum(self._durations) / 1e9,
                "steps": len(self._durations),
                "cpu_seconds": process_time() - self._cpu,
            }
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
            aside = sum(check["took"] for check in line.get("checks", ()))
            begin = self._epoch_begin + _nanoseconds(line["train_seconds"] + aside)
            samples.append(VALIDATION, self.seed, [begin], [_nanoseconds(line["test_seconds"])])


def communication_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]] | None:
    """Per rank the sums over the epochs' lines of what :class:`EpochRecorder` notes; None where one process trained."""
    each = [line["ranks"] for line in lines if line.get("ranks")]
    if not each:
        return None
    return {
        str(rank): {name: sum(epoch[rank][name] for epoch in each if rank < len(epoch)) for name in each[0][0]}
        for rank in range(max(map(len, each)))  # not all epochs have as many where the number of ranks changed
    }


def write_rank_times(record: Record, count: int, seeds: Sequence[int], communication: Mapping[str, Any] | None) -> None:
    """Write ``ranks.json`` from the series that the recorder keeps of every rank; nothing where one process trained.

    A rank's time is that of its whole step, waiting included. Imbalance is of what it computes: the mean over steps of
    the slowest rank's computing time over the mean rank's, minus 1. Clocks are not compared here: steps are paired by
    their number.

    Args:
        record: the run.
        count: number of ranks.
        seeds: those that were trained.
        communication: per rank the sums of the run, see :func:`communication_of`.
    """
    if count == 1 or not communication:
        return
    plan = record.manifest()["series"]["step"]["plan"]
    begin = {seed: steady.cut for seed, (_, steady, _) in kept_samples(record.samples, "step", seeds, plan).items()}
    known = set(record.samples.names())

    def of_all(seed: int, cut: int) -> np.ndarray:
        """When those steps began that all present ranks made: of others, some have no time."""
        starts = record.samples.load(STEP, seed)["start_ns"][cut:]
        for rank in range(count):
            name = of_rank(STEP, rank)
            starts = np.intersect1d(
                starts, record.samples.load(name, seed)["start_ns"] if (name, seed) in known else []
            )
        return starts

    common = {seed: of_all(seed, cut) for seed, cut in begin.items()}

    def steady(series: str, rank: int) -> np.ndarray:
        parts = []
        for seed, starts in common.items():
            if starts.size:
                samples = record.samples.load(of_rank(series, rank), seed)
                parts.append(
                    record.samples.durations(of_rank(series, rank), seed)[np.isin(samples["start_ns"], starts)]
                )
        return np.concatenate(parts) if parts else np.empty(0)

    steps = np.array([steady("step", rank) for rank in range(count)])
    waits = np.array([steady("communication", rank) for rank in range(count)])
    if not steps.size:
        return
    computing = steps - waits
    each = [_rank(rank, steps[rank], waits[rank], communication.get(str(rank), {})) for rank in range(count)]
    enough = steps.shape[1] >= FEWEST
    differ = groups_differ({str(rank): seconds for rank, seconds in enumerate(computing)}) if enough else None
    imbalance = float(np.mean(computing.max(axis=0) / computing.mean(axis=0)) - 1)
    Ranks(tuple(each), "none", "max", imbalance, differ).write(record.path)


def _rank(rank: int, steps: np.ndarray, waits: np.ndarray, sums: Mapping[str, Any]) -> Rank:
    sent = sums["payload_bytes"] / sums["steps"] if sums.get("steps") else None
    return Rank(rank, quantile(steps), waiting=float(waits.sum() / steps.sum()), sent_bytes=sent)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
