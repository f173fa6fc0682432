"""A run made up for metrics that watch: every part takes a known time on a clock that only the run moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from deep500.devices import CPUDevice, Device
from deep500.events import Event, Events
from deep500.training.statistics import EpochRecord, TrainingStatistics


class Clock:
    """Seconds that pass when a test moves them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def nanoseconds(self) -> int:
        return round(self.now * 1e9)


class Executor:
    """Nothing but a device that finishes late: what was asked of it is done when it is waited for."""

    backend, peak = "made-up", None

    def __init__(self, clock: Clock, device: Device) -> None:
        self.clock, self.device, self.queue = clock, device, 0.0
        self.forgotten = 0

    def synchronize(self) -> None:
        self.clock.now += self.queue
        self.queue = 0.0

    def peak_memory(self, reset: bool = False) -> int | None:
        self.forgotten += reset
        return self.peak if self.forgotten else None


TAKES = {"io": 0.02, "forward": 0.03, "backward": 0.05, "communication": 0.01, "update": 0.015}
STEPS, REST, VALIDATION, CHECKPOINT = 60, 0.004, 0.5, 0.25
TOTAL = STEPS * (sum(TAKES.values()) + REST) + VALIDATION + CHECKPOINT


def watch(*metrics: Any, clock: Clock | None = None, device: Device | None = None, began_at: int = 0) -> Any:
    """Run the made-up run past some metrics; returns its statistics."""
    clock = clock or Clock()
    events = Events([metric for metric in metrics if isinstance(metric, Event)])
    executor = Executor(clock, device or CPUDevice())
    run = SimpleNamespace(executor=executor, epoch=began_at, trainer=SimpleNamespace(label="label"), inputs={})
    events.emit(events.before_run, run)
    events.emit(events.before_epoch, run)
    for _ in range(STEPS):
        events.emit(events.before_batch, run)
        for part, seconds in TAKES.items():
            events.emit(getattr(events, f"before_{part}"), executor)
            executor.queue += seconds  # launched, not done
            events.emit(getattr(events, f"after_{part}"), executor)
        clock.now += REST
        events.emit(events.after_batch, run)
    events.emit(events.before_validation, run)
    events.emit(events.before_forward, executor)
    clock.now += VALIDATION
    events.emit(events.after_forward, executor)
    events.emit(events.after_validation, run)
    events.emit(events.after_epoch, run)
    for part in ("io", "communication"):  # of a checkpoint
        events.emit(getattr(events, f"before_{part}"), executor)
        clock.now += CHECKPOINT / 2
        events.emit(getattr(events, f"after_{part}"), executor)
    events.emit(events.after_run, run)
    return TrainingStatistics(
        [
            EpochRecord(
                0, train_samples=64 * STEPS, train_seconds=TOTAL - VALIDATION - CHECKPOINT, test_seconds=VALIDATION
            )
        ]
    )


def train(*metrics: Any, network: Any = None, validate: bool = True, classes: int = 4, epochs: int = 2) -> Any:
    """Train a small network in the reference backend on noise, and give the trainer and its statistics."""
    import deep500.frameworks.reference as d5fw
    from deep500.networks import add_loss, create
    from deep500.training.data import NumpyDataset
    from deep500.training.data.samplers import OrderedSampler
    from deep500.training.trainer import Trainer

    rng = np.random.default_rng(0)
    data = NumpyDataset(rng.random((48, 1, 4, 4), np.float32), "input", np.arange(48) % classes)
    executor = d5fw.from_model(network or add_loss(create("mlp", shape=(1, 4, 4), classes=classes, hidden=(8,))))
    optimizer = d5fw.GradientDescent(executor, "loss", lr=0.1)
    validation = OrderedSampler(data, 10) if validate else None
    trainer = Trainer(OrderedSampler(data, 16), validation, executor, optimizer)
    return trainer, trainer.run(epochs, [metric for metric in metrics if isinstance(metric, Event)])
