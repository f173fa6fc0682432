"""The listener by which a run writes while it trains: the epoch's line, the times of its steps, and a checkpoint."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from time import perf_counter_ns, process_time, time
from typing import Any

import numpy as np

from deep500.distributed import Communicator, Serial
from deep500.events import HOOKS, Event, Events, StopTraining
from deep500.measure.environment import process_name
from deep500.measure.load import load_between, read_load
from deep500.recipe.object_states import ObjectStates
from deep500.recipe.ranks import WRITING_SECONDS
from deep500.results import Record
from deep500.results.ranks import COMMUNICATION, STEP, of_rank
from deep500.results.stats import EPOCH, VALIDATION
from deep500.tensors import LaterArray

OWN = "own_objects"
"""State of the user's objects in a checkpoint."""

ACTING = ("collection", "inference")
"""Regions of a task that acts; the second lies within the first."""


class HearsLast(Event):
    """Tells the recorder that a step or an epoch has ended, once every other listener is through with it."""

    def __init__(self, recorder: EpochRecorder) -> None:
        self.recorder = recorder

    def after_batch(self, run: Any) -> None:
        """The step has ended."""
        self.recorder.end_step()

    def after_epoch(self, run: Any) -> None:
        """The epoch has ended; what other listeners made of it is in its checkpoint."""
        self.recorder.write()


class StopWithEpoch(Event):
    """Listeners as one whose ``StopTraining`` in the middle of an epoch ends the run when the epoch is over.

    What a recipe writes, epochs, samples, checkpoints and figures, is of whole epochs: else each would be of another
    network. :class:`EndOfEpoch`, behind all others, ends the run.

    Example:
        >>> class Enough(Event):
        ...     def after_batch(self, run): raise StopTraining("enough")
        >>> stop = StopWithEpoch([Enough()])
        >>> stop.after_batch(None), stop.reason
        (None, 'enough')
    """

    def __init__(self, listeners: Sequence[Event]) -> None:
        self.reason: str | None = None
        events = Events(listeners)
        for hook in HOOKS:
            if hooks := getattr(events, hook):
                setattr(self, hook, partial(events.emit if hook in AT_ONCE else self._defer, hooks))

    def _defer(self, hooks: tuple[Callable[[Any], None], ...], source: Any) -> None:
        for hook in hooks:
            try:
                hook(source)
            except StopTraining as stop:
                self.reason = self.reason or str(stop) or type(stop).__name__


AT_ONCE = ("before_run", "after_run", "before_epoch")
"""Hooks outside of epochs."""


class EndOfEpoch(Event):
    """Ends the run where a listener asked for it, once every other listener is through with the epoch."""

    def __init__(self, asked: StopWithEpoch) -> None:
        self.asked = asked

    def after_epoch(self, run: Any) -> None:
        """The epoch has ended."""
        if self.asked.reason is not None:
            raise StopTraining(self.asked.reason)


class EpochRecorder(Event):
    """Writes every finished epoch to the disk before the next begins; samples of a seed are one launch.

    A step lasts from the loading of its batch until all listeners are through with it, but for judgements in between: a
    framework that works ahead is waited for by whoever reads a result, and that is the step's time, too.

    On several ranks the time of a step is that of the slowest, and each rank's own times, and how much of them was
    communication, are series of their own. Rank 0 writes them. Where a task acts to make its data, the epoch's
    line says the seconds of that, on rank 0.
    """

    def __init__(
        self,
        record: Record,
        seed: int,
        trainer: Any,
        comm: Communicator | None = None,
        object_states: ObjectStates | None = None,
    ) -> None:
        self.record, self.seed, self.trainer = record, seed, trainer
        self.comm, self.objects = Serial() if comm is None else comm, object_states
        self._line: dict[str, Any] = {}
        self._starts, self._durations, self._waits = array("q"), array("q"), array("q")
        self._begin = self._asked = self._listened = self._epoch_begin = 0
        self._began, self._cpu, self._checked, self._load = 0.0, 0.0, 0.0, read_load()
        self._before = self._exchanged = self._traffic()
        self._sum = np.zeros(3)
        self._acted = dict.fromkeys(ACTING, 0)
        self._run_begin = 0
        self.wall_seconds: float | None = None

    def among(self, listeners: Sequence[Event]) -> list[Event]:
        """All of them and this one, which hears first that a step begins and last that it, or an epoch, has ended."""
        return [self, *listeners, HearsLast(self)]

    def before_run(self, run: Any) -> None:
        """The run begins."""
        self.wall_seconds = None
        self._run_begin = 0 if run.epoch else perf_counter_ns()

    def after_run(self, run: Any) -> None:
        """Note how long the whole run lasted by the clock; not of one that was resumed, while which it stood still."""
        if self._run_begin:
            self.wall_seconds = (perf_counter_ns() - self._run_begin) / 1e9

    def before_epoch(self, run: Any) -> None:
        """Forget the steps of an epoch that was not finished."""
        del self._starts[:], self._durations[:], self._waits[:]
        self._sum, self._listened = np.zeros(3), 0
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
        self._before, self._checked = self._traffic(), self.trainer.checked_seconds
        self._begin = perf_counter_ns()

    def after_batch(self, run: Any) -> None:
        """All work of a step is asked for."""
        self._asked, self._exchanged = perf_counter_ns(), self._traffic() - self._before

    def end_step(self) -> None:
        """All listeners are through with the step."""
        end = perf_counter_ns() - _nanoseconds(self.trainer.checked_seconds - self._checked)
        self._durations.append(end - self._begin)
        self._listened += end - self._asked
        self._waits.append(_nanoseconds(self._exchanged[2]))
        self._sum += self._exchanged
        self._starts.append(self._begin)

    def after_epoch(self, run: Any) -> None:
        """Put the epoch's line together before other listeners take their time.

        The whole epoch by the clock, and how busy the machine was, stand beside the parts that add up to it.
        """
        wall = (perf_counter_ns() - self._epoch_begin) / 1e9
        line = run.record.to_dict()
        clock = {"began": self._began, "wall_seconds": wall, "steps": len(self._durations)}
        line["clock"] = {**clock, "process": process_name(), "listening_seconds": self._listened / 1e9}
        if self._acted["collection"]:
            inference = self._acted["inference"]
            line["acting"] = {
                "collection_seconds": (self._acted["collection"] - inference) / 1e9,
                "inference_seconds": inference / 1e9,
            }
        if run.record.checks:
            line["checks"] = run.record.checks
        line["load"] = load_between(self._load, read_load())
        self._line = line

    def write(self) -> None:
        """Append the samples, the epoch's line and its checkpoint, in this order: a crash repeats the epoch."""
        line, epoch = self._line, self._line.pop("epoch") + 1
        if not line.pop("complete"):
            return
        durations = np.array(self._durations)
        if self.comm.size > 1:
            line["ranks"], durations = self._of_ranks()
        if self.comm.rank == 0:
            self._write_samples(line, durations)
        state = self.trainer.state(in_turn=True)
        if self.objects is not None:
            state["values"][OWN] = self.objects.state()
        in_turn = any(isinstance(value, LaterArray) for value in state["arrays"].values())
        with self.comm.patience(WRITING_SECONDS) if in_turn else nullcontext():  # for rank 0, which writes all
            self.record.add_epoch(self.seed, epoch, line, state)
            if in_turn:
                self.comm.barrier()

    def _of_ranks(self) -> tuple[list[dict[str, float]], np.ndarray]:
        """Each rank's communication in this epoch, and every step's time on the slowest rank."""
        traffic = dict(zip(("payload_bytes", "messages", "wait_seconds"), self._sum.tolist(), strict=True))
        ranks = self.comm.gather_facts(
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
        return ranks, times[:, 0].max(axis=0)

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


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
