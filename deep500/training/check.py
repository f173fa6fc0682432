"""Train and measure in one call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from deep500.events import Event
from deep500.metrics import Metric, TestAccuracy, TrainingAccuracy
from deep500.networks.execution.executor import GraphExecutor
from deep500.training.data.dataset import Dataset
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler
from deep500.training.optimizers.base import Optimizer
from deep500.training.trainer import Trainer


def check_training(  # the order of the original
    executor: GraphExecutor,
    train: Any,
    validation: Any,
    optimizer: Optimizer,
    epochs: int,
    batch_size: int,
    network_output: str | None = None,
    metrics: Sequence[Metric] | None = None,
    events: Iterable[Event] = (),
) -> list[float | None]:
    """Train for some epochs and return what the metrics measured, in their order.

    Args:
        executor, optimizer: as :class:`~deep500.training.trainer.Trainer` takes them.
        train: a data set (shuffled with seed 0), or a sampler.
        validation: a data set (in its order, all of it), or a sampler.
        epochs, batch_size: how long, and in which pieces (samplers keep theirs).
        network_output: class scores for the accuracy.
        metrics: training and test accuracy if None.
        events: listeners.
    """
    if isinstance(train, Dataset):
        train = ShuffleSampler(train, batch_size)
    if isinstance(validation, Dataset):
        validation = OrderedSampler(validation, min(batch_size, len(validation)), drop_last_batch=False)
    trainer = Trainer(train, validation, executor, optimizer, network_output, optimizer.loss)
    statistics = trainer.run(epochs, events)
    chosen = (TrainingAccuracy(), TestAccuracy()) if metrics is None else metrics
    return [metric.measure(statistics) for metric in chosen]


test_training = check_training
"""The original's name."""
check_training.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it
