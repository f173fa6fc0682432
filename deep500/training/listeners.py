"""Ready-made listeners: the progress bar, a table in a file, and ends before the last epoch."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from time import perf_counter
from typing import Any

from deep500.errors import InputError
from deep500.events import Event, StopTraining
from deep500.training.run import Run
from deep500.training.statistics import FIELDS


class ProgressBar(Event):
    """A line on stderr with loss, training accuracy, samples/s and remaining time; silent when that is no terminal.

    Reading the loss waits for the device, so it is done when the bar is drawn, at most a few times per second.

    Args:
        interval: seconds between two drawings.
        file: where to draw; stderr if None.
        force: draw even when ``file`` is no terminal.
    """

    def __init__(self, interval: float = 0.25, file: Any = None, force: bool = False) -> None:
        self.interval, self.file, self.force = interval, file, force
        self._bar: Any = None
        self._drawn = self._started = 0.0

    def before_run(self, run: Run) -> None:
        from tqdm import tqdm

        bar = tqdm(
            total=run.epochs * run.batches,
            initial=run.epoch * run.batches,
            unit="batch",
            file=self.file,
            disable=False if self.force else None,
            mininterval=0,
            leave=True,
        )
        self._bar = None if bar.disable else bar

    def before_epoch(self, run: Run) -> None:
        self._started = perf_counter()
        if self._bar is not None:
            self._bar.total = run.epochs * run.batches

    def after_batch(self, run: Run) -> None:
        if self._bar is not None and perf_counter() - self._drawn >= self.interval:
            self._draw(run, run.epoch * run.batches + run.batch + 1)

    def after_epoch(self, run: Run) -> None:
        if self._bar is not None:
            self._draw(run, (run.epoch + 1) * run.batches)

    def after_validation_batch(self, run: Run) -> None:
        if self._bar is not None and perf_counter() - self._drawn >= self.interval:
            done = f"{run.judged}/{len(run.trainer.validation_sampler)}"
            self._bar.set_description(f"epoch {run.epoch + 1}/{run.epochs}, validation {done}")
            self._drawn = perf_counter()

    def after_run(self, run: Run) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self, run: Run, done: int) -> None:
        bar, tally = self._bar, run.tally
        bar.n = done
        bar.set_description(f"epoch {run.epoch + 1}/{run.epochs}", refresh=False)
        shown = {"loss": run.train_loss(), "accuracy": run.train_accuracy()}
        if tally is not None:
            shown["samples/s"] = tally.samples / max(perf_counter() - self._started, 1e-9)
        if run.record is not None:
            validated = "test" if run.trainer is None or run.trainer.test_sampler is None else "validation"
            shown[f"{validated} accuracy"] = run.record.test_accuracy
        bar.set_postfix({k: f"{v:.4g}" for k, v in shown.items() if v is not None}, refresh=False)
        bar.refresh()
        self._drawn = perf_counter()


def DefaultTrainerEvents(epochs: int | None = None) -> list[Event]:
    """The listeners of a run that names none: a :class:`ProgressBar`. (``epochs`` is historical and not needed.)"""
    return [ProgressBar()]


class CSVWriter(Event):
    """Writes one row per epoch; the columns are the fields of :class:`~deep500.training.statistics.EpochRecord`, and
    the qualities of the task.

    The whole file is replaced after each epoch, so it is never cut off in the middle of a row and a resumed run leaves
    the same rows as one that was never stopped. What was not measured is an empty cell.

    Args:
        path: where to write; the folder must exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def before_run(self, run: Run) -> None:
        self._write(run)  # a path that cannot be written is noticed before the first epoch, not after

    def after_epoch(self, run: Run) -> None:
        self._write(run)

    def after_run(self, run: Run) -> None:
        self._write(run)

    def _write(self, run: Run) -> None:
        part = self.path.with_name(self.path.name + ".part")
        with part.open("w", newline="", encoding="utf-8") as file:
            rows = [{**record.to_dict(), "epoch": record.epoch + 1} for record in run.statistics.epochs]
            writer = csv.DictWriter(file, list(dict.fromkeys([*FIELDS, *(name for row in rows for name in row)])))
            writer.writeheader()
            writer.writerows(rows)
        part.replace(self.path)


class JudgeEvery(Event):
    """Judges the network by the validation data every few steps; see ``checks`` of the epochs' records.

    What a check takes is in no time of training; the device is waited for before it.

    Args:
        steps: the interval, >= 1; or several, each of which has its checks.

    Raises:
        InputError: no positive whole number.
    """

    def __init__(self, *steps: int) -> None:
        if not steps or any(isinstance(step, bool) or not isinstance(step, int) or step < 1 for step in steps):
            raise InputError(f"got steps={steps!r}; expected whole numbers of at least 1: give the interval")
        self.steps = steps

    def after_batch(self, run: Run) -> None:
        if any(run.step % steps == 0 for steps in self.steps):
            run.trainer.check()


class StopAtAccuracy(Event):
    """Stops after the first epoch whose test accuracy reaches a target.

    Args:
        target: percent, 0 to 100.

    Raises:
        InputError: the target is out of range; or, after an epoch, no test accuracy was measured.
    """

    def __init__(self, target: float) -> None:
        if not 0 <= target <= 100:
            raise InputError(f"got target {target!r}; expected percent, 0 to 100: give the accuracy so")
        self.target = target

    def before_epoch(self, run: Run) -> None:
        if run.record is not None and run.record.complete:
            self.after_epoch(run)  # a resumed run may have been good enough already

    def after_epoch(self, run: Run) -> None:
        accuracy = None if run.record is None else run.record.test_accuracy
        if accuracy is None:
            raise InputError(
                "StopAtAccuracy: got an epoch without test accuracy; expected one: give the trainer a validation "
                "sampler and a network output of class scores"
            )
        if accuracy >= self.target:
            raise StopTraining(f"test accuracy {accuracy:.2f} % reached the target of {self.target:g} %")


class StopAfter(Event):
    """Stops when training and validation have taken a number of seconds, those before a resume included.

    Args:
        seconds: the limit, > 0.
        immediately: stop after the batch (that epoch is then incomplete and not validated) instead of after the epoch;
            a recipe finishes the epoch all the same.
    """

    def __init__(self, seconds: float, immediately: bool = False) -> None:
        if not seconds > 0:
            raise InputError(f"got seconds={seconds!r}; expected a number > 0: give a limit")
        self.seconds, self.immediately = seconds, immediately
        self._earlier, self._started = 0.0, 0.0

    def before_run(self, run: Run) -> None:
        self._earlier = run.statistics.total("train_seconds", "test_seconds") or 0.0
        self._started = perf_counter()
        if self._earlier >= self.seconds:
            raise StopTraining(f"{self._earlier:.1f} s before this run reached the limit of {self.seconds:g} s")

    def after_epoch(self, run: Run) -> None:
        self._check()

    def after_batch(self, run: Run) -> None:
        if self.immediately:
            self._check()

    def _check(self) -> None:
        taken = self._earlier + perf_counter() - self._started
        if taken >= self.seconds:
            raise StopTraining(f"{taken:.1f} s reached the limit of {self.seconds:g} s")


class StopOnNaN(Event):
    """Looks at the losses every few batches, so that one that is not finite ends the run within its epoch.

    Looking waits for the device; without this listener it happens once per epoch.

    Args:
        every: number of batches between looks, >= 1.
    """

    def __init__(self, every: int = 100) -> None:
        if every < 1:
            raise InputError(f"got every={every!r}; expected a number of batches >= 1: give one")
        self.every = every

    def after_batch(self, run: Run) -> None:
        if run.tally is not None and (run.batch + 1) % self.every == 0:
            run.tally.flush()  # raises TrainingError
