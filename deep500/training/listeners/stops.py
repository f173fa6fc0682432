"""Ends of a run before its last epoch: good enough, out of time, or broken."""

from __future__ import annotations

from time import perf_counter

from deep500.errors import InputError
from deep500.events import Event, StopTraining
from deep500.training.run import Run


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
        immediately: stop after the batch (that epoch is then incomplete and not validated) instead of after the epoch.
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
