"""The progress bar."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from deep500.events import Event
from deep500.training.run import Run


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

    def after_batch(self, run: Run) -> None:
        if self._bar is not None and perf_counter() - self._drawn >= self.interval:
            self._draw(run, run.epoch * run.batches + run.batch + 1)

    def after_epoch(self, run: Run) -> None:
        if self._bar is not None:
            self._draw(run, (run.epoch + 1) * run.batches)

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
            shown["test accuracy"] = run.record.test_accuracy
        bar.set_postfix({k: f"{v:.4g}" for k, v in shown.items() if v is not None}, refresh=False)
        bar.refresh()
        self._drawn = perf_counter()


def DefaultTrainerEvents(epochs: int | None = None) -> list[Event]:
    """The listeners of a run that names none: a :class:`ProgressBar`. (``epochs`` is historical and not needed.)"""
    return [ProgressBar()]
