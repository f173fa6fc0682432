"""Train and measure in one call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from deep500.events import Event
from deep500.keywords import takes
from deep500.metrics import Metric, TestAccuracy, TrainingAccuracy
from deep500.networks.execution.executor import GraphExecutor
from deep500.training.data.dataset import Dataset
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler
from deep500.training.optimizers.base import Optimizer
from deep500.training.trainer import Trainer


@dataclass(frozen=True)
class TrainingCheck:
    """The arguments of :func:`check_training`, in the order of the original.

    Args:
        executor, optimizer: as :class:`~deep500.training.trainer.Trainer` takes them.
        train: a data set (shuffled with seed 0), or a sampler.
        validation: a data set (in its order, all of it), or a sampler.
        epochs, batch_size: how long, and in which pieces (samplers keep theirs).
        network_output: class scores for the accuracy.
        metrics: training and test accuracy if None.
        events: listeners.
    """

    executor: GraphExecutor
    train: Any
    validation: Any
    optimizer: Optimizer
    epochs: int
    batch_size: int
    network_output: str | None = None
    metrics: Sequence[Metric] | None = None
    events: Iterable[Event] = ()


@takes(TrainingCheck)
def check_training(check: TrainingCheck) -> list[float | None]:
    """Train for some epochs and return what the metrics measured, in their order."""
    train, validation, batch_size, optimizer = check.train, check.validation, check.batch_size, check.optimizer
    if isinstance(train, Dataset):
        train = ShuffleSampler(train, batch_size)
    if isinstance(validation, Dataset):
        validation = OrderedSampler(validation, min(batch_size, len(validation)), drop_last_batch=False)
    trainer = Trainer(train, validation, check.executor, optimizer, check.network_output, optimizer.loss)
    statistics = trainer.run(check.epochs, check.events)
    chosen = (TrainingAccuracy(), TestAccuracy()) if check.metrics is None else check.metrics
    return [metric.measure(statistics) for metric in chosen]


test_training = check_training
"""The original's name."""
check_training.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it
