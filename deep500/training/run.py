"""`Run`: what a training loop shows to its listeners; and the shortest loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from deep500.errors import InputError
from deep500.events import Event, Events
from deep500.networks.execution.executor import GraphExecutor
from deep500.training.statistics import EpochRecord, TrainingStatistics
from deep500.training.tally import Tally


@dataclass
class Run:
    """The state of a loop. Listeners may read everything; reading a tensor or a mean waits for the device.

    Attributes:
        executor, optimizer: what is trained by what.
        trainer: whose loop it is, a :class:`~deep500.training.trainer.Trainer`; None under ``optimizer.train``.
        epochs, batches: how many epochs there are, how many batches in the present one.
        epoch, batch, step: the present epoch, the batch in it and the batch since the beginning, from 0.
        judged: how many batches of the present validation are done.
        inputs, outputs: those of the present batch by name; outputs are the framework's tensors.
        statistics: the epochs so far; in ``after_epoch`` its last record is the present epoch's.
        tally: sums of the present epoch's batches so far, see :meth:`train_loss`.
        stopped_by: why a listener ended the run, None until one did.
    """

    executor: GraphExecutor
    optimizer: Any  # its class, like the trainer's, knows runs; runs do not know it
    trainer: Any = None
    epochs: int = 1
    batches: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    judged: int = 0
    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    statistics: TrainingStatistics = field(default_factory=TrainingStatistics)
    tally: Tally | None = None
    stopped_by: str | None = None

    @property
    def record(self) -> EpochRecord | None:
        """The newest epoch's record, None before the first."""
        return self.statistics.epochs[-1] if self.statistics.epochs else None

    def train_loss(self) -> float | None:
        """Mean training loss of the present epoch so far (waits for the device)."""
        return None if self.tally is None else self.tally.loss()

    def train_accuracy(self) -> float | None:
        """Training accuracy of the present epoch so far, in percent (waits for the device)."""
        return None if self.tally is None else self.tally.accuracy()


def train(optimizer: Any, iterations: int, sampler: Any, events: Iterable[Event] = ()) -> list[Any]:
    """The losses of :meth:`~deep500.training.optimizers.Optimizer.train`; raises InputError as that does."""
    if len(sampler) == 0:
        raise InputError("got a sampler without batches; expected at least one: lower its batch size")
    executor, listeners = optimizer.executor, Events(events)
    run = Run(executor, optimizer, batches=len(sampler), epochs=-(-iterations // len(sampler)))
    before, executor.events = executor.events, listeners
    losses = []
    try:
        while run.step < iterations:
            sampler.set_epoch(run.epoch)
            for run.batch, run.inputs in enumerate(sampler):
                if run.step == iterations:
                    break
                listeners.emit(listeners.before_batch, run)
                run.outputs = optimizer.step(run.inputs)
                losses.append(run.outputs[optimizer.loss])
                listeners.emit(listeners.after_batch, run)
                run.step += 1
            run.epoch += 1
    finally:
        executor.events = before
    return losses
