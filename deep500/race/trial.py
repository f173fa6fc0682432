"""One trial, in a process of its own: ``python -m deep500.race.trial`` reads a request and answers with lines of JSON.

Every evaluation is a line, the last line is the outcome; what frameworks print goes to stderr. The clock stands still
during evaluations. It starts before the first batch is loaded and counts whatever the first step compiles.
"""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from deep500.errors import Deep500Error, TrainingError
from deep500.events import Event, StopTraining
from deep500.measure.machine import hardware
from deep500.race.submissions import find_submissions
from deep500.race.workloads import Workload, quality_of
from deep500.recipe.build import Notes, load_custom_ops, load_data, make_parts
from deep500.recipe.recomputation import refuse_memory
from deep500.training.run import Run
from deep500.training.trainer import Trainer

FOREVER = 10**9
"""Epochs: a trial ends by its target or its budget."""


@dataclass(frozen=True)
class Request:
    """The work of one process.

    Attributes:
        workload: of the trial, as its fields.
        words, submission: how submissions are found, and which of them it is.
        index, trial, point_seed: of the point in its search space, see :meth:`Submission.settings`.
        seed: of weights, order and augmentation.
        limit: seconds after which the outcome cannot count any more.
        steps: the budget in steps.
        cpu: the clock is that of the process: several trials share the machine.
        framework, data: as for ``deep500 run``.
    """

    workload: dict[str, Any]
    words: list[str]
    submission: str
    index: int
    trial: int
    point_seed: int
    seed: int
    limit: float
    steps: int
    cpu: bool = False
    framework: str | None = None
    data: str | None = None


@dataclass
class StopWatch:
    """Seconds of training: a clock that can be stopped."""

    now: Callable[[], float] = perf_counter
    before: float = 0.0
    since: float | None = None

    def start(self) -> None:
        """Go on."""
        self.since = self.now()

    def stop(self) -> float:
        """Stand still; returns the seconds so far."""
        if self.since is not None:
            self.before, self.since = self.before + self.now() - self.since, None
        return self.before


@dataclass
class TargetWatch(Event):
    """Evaluates every few steps, and ends a trial that has reached its target or can no more.

    A trial ends at the first evaluation at or beyond the limit, never between two: what lies between an evaluation
    before the limit and one beyond it may be a time before it.

    Args:
        quality: name of the quality, and whether more of it is better.
        target: to be reached.
        every, limit, steps: see :class:`Request`.
        say: takes each point of the curve.
        clock: of training.
        sampler: batches of the validation data.

    Attributes:
        reached: seconds and steps to the target, interpolated between two evaluations; None before.
        best: the best quality that was seen.
    """

    quality: tuple[str, bool]
    target: float
    every: int
    limit: float
    steps: int
    say: Callable[[dict[str, Any]], None] = lambda point: None
    clock: StopWatch = field(default_factory=StopWatch)
    sampler: Any = None
    reached: tuple[float, float] | None = None
    best: float | None = None
    reason: str = ""
    _last: tuple[float, int, float] | None = None

    def before_run(self, run: Run) -> None:
        self._evaluate(run)

    def after_batch(self, run: Run) -> None:
        if run.step % self.every == 0 or run.step >= self.steps:
            self._evaluate(run)

    def _evaluate(self, run: Run) -> None:
        trainer = run.trainer
        trainer.calibrate()  # its time counts, as all that a submission needs beside its steps
        run.executor.synchronize()
        seconds = self.clock.stop()
        tally = trainer.evaluate(self.sampler, f"validation, step {run.step}")
        value = tally.qualities().get(self.quality[0])
        if value is not None and math.isfinite(value):
            self._see(seconds, run.step, float(value))
        if self.reached is None and (seconds >= self.limit or run.step >= self.steps):
            self.reason = (
                f"not within {self.limit:.4g} s" if seconds >= self.limit else f"not within {self.steps} steps"
            )
            raise StopTraining(self.reason)
        self.clock.start()

    def _see(self, seconds: float, step: int, value: float) -> None:
        self.say({"seconds": seconds, "step": step, "quality": value})
        sign = 1 if self.quality[1] else -1
        self.best = value if self.best is None else sign * max(sign * value, sign * self.best)
        if sign * value >= sign * self.target:
            if self._last is None:
                self.reason = "the target is met before training: choose another"
                raise StopTraining(self.reason)
            before, steps, old = self._last
            share = (self.target - old) / (value - old)
            time = before + share * (seconds - before)
            if time > self.limit:
                return  # between an evaluation before the limit and one beyond it: too late
            self.reached = time, steps + share * (step - steps)
            raise StopTraining("target reached")
        self._last = seconds, step, value


def signature(network: Any) -> list[Any]:
    """Return what a submission must leave as it is: the operators of a network, its parameters and their shapes."""
    nodes = [node.op_type for node in network.nodes]
    return [nodes, sorted((name, list(parameter.value.shape)) for name, parameter in network.parameters.items())]


def run_trial(request: Request, say: Callable[[dict[str, Any]], None] = lambda point: None) -> dict[str, Any]:
    """Train one trial; returns its outcome.

    Returns:
        ``seconds`` and ``steps`` to the target (None for a miss), ``spent`` seconds, ``best`` quality, ``reason``.

    Raises:
        Deep500Error: the recipe or the submission is wrong.
    """
    workload = Workload.from_fields(request.workload)
    submission = next(s for s in find_submissions(request.words) if s.name == request.submission)
    data_root = None if request.data is None else Path(request.data)
    plan = workload.plan(request.framework, data_root)
    folder = workload.source().parent
    submission.put_into(
        plan.values, submission.settings(request.index, request.point_seed, request.trial), workload.steps, folder
    )
    refuse_memory(plan.values, "a race")
    untouched: list[Any] = []
    plan.values["optimizer"] = _watched(plan.values["optimizer"], untouched)
    load_custom_ops(plan.values["custom_ops"], folder)
    notes = Notes()
    with notes.collecting(strict=False):
        data = load_data(plan.values, True, False, data_root)  # no stand-ins: others would be raced on
        parts = make_parts(plan.values, data[:2], request.seed, False)
    name = quality_of(workload, parts.task.qualities)
    clock = StopWatch(process_time if request.cpu else perf_counter)
    watch = TargetWatch(
        name, workload.target, workload.every, request.limit, request.steps, say, clock, parts.validation_sampler
    )
    trainer = Trainer(
        parts.train_sampler, None, parts.executor, parts.optimizer, seed=request.seed, ema=plan.values["ema"],
        task=parts.task,
    )  # fmt: skip
    schedule = [] if plan.values["schedule"] is None else [plan.values["schedule"]]
    reason = ""
    try:
        trainer.run(FOREVER, [*schedule, watch])
    except TrainingError as error:
        reason = f"diverged: {error}"
    except MemoryError:
        reason = "out of memory"
    except Deep500Error:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a submission raises is a miss
        reason = f"crashed: {''.join(traceback.format_exception_only(type(error), error)).strip()}"
    if signature(parts.executor.network) != untouched[0]:
        reason, watch.reached = (
            ("got a changed model, which belongs to the workload; expected the recipe's: leave the network as it is"),
            None,
        )
    seconds, steps = watch.reached or (None, None)
    return {
        "seconds": seconds,
        "steps": steps,
        "spent": clock.stop(),
        "best": watch.best,
        "reason": "" if seconds is not None else reason or watch.reason,
        "warnings": notes.warnings,
    }


def cpu_kind() -> str:
    """The kind of this machine's CPU, which tells it from others."""
    return " ".join(str(hardware()[key]) for key in ("vendor", "family", "model_number", "stepping"))


def _watched(optimizer: Callable[..., Any], untouched: list[Any]) -> Callable[..., Any]:
    """The same optimizer, before which the model's signature is noted."""

    @functools.wraps(optimizer, updated=())
    def noting(executor: Any, *args: Any, **kwargs: Any) -> Any:
        untouched.append(signature(executor.network))
        return optimizer(executor, *args, **kwargs)

    return noting


def _follow_race() -> None:
    """End with the race, also when it was killed, and in the middle of an endless loop."""
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Answer one request; an error of Deep500, or of the submission while it is made, is an outcome with its reason."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    request = Request(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_follow_race, daemon=True).start()
    try:
        outcome = run_trial(request, say)
    except Exception as error:  # noqa: BLE001 - the same while it is made
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        outcome = {"seconds": None, "steps": None, "spent": 0.0, "best": None, "warnings": []}
        outcome["reason"] = "out of memory" if isinstance(error, MemoryError) else f"crashed: {text}"
    say({"outcome": {**outcome, "cpu": cpu_kind()}})


if __name__ == "__main__":
    main()
