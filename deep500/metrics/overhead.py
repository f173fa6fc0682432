"""The time of the meta-layer: how much of a training step is Deep500's, and how much the framework's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from deep500.errors import Deep500Error, InputError
from deep500.measure.statistics import median_interval, paired_ratio
from deep500.metrics.base import Kind, Metric, ProbingMetric

WARM_UP = 1
ENOUGH, SHARE_OF_TRAINING = (
    6,
    0.01,
)  # steps that have an interval, and the part of the training's seconds, where a recipe does not ask for it


class FrameworkOverhead(ProbingMetric):
    """Percent of a training step's forward and backward that passes outside of the framework's own calls.

    That is Deep500's: checks of inputs, arrays turned into tensors and placed, names, events. Steps with a clock around
    the framework's calls tell it from inside; plain steps in turns with them are held against those calls alone
    (``details["over_framework"]``, with its interval: what a loop of the framework's own would take is 1). Parameters
    and running statistics are afterwards what they were. Updates are not in it.

    Args:
        steps: how many of each.
        seconds: after which no further step is begun; None: a hundredth of what the training took.
        level: of the intervals.

    Raises:
        InputError: fewer than two steps, or no time.

    Example:
        >>> FrameworkOverhead().name, FrameworkOverhead().unit
        ('framework_overhead', '%')
    """

    name, unit, direction = "framework_overhead", "%", "lower"
    kind: Kind = "ratio"

    def __init__(self, steps: int = 30, seconds: float | None = 5.0, level: float = 0.95) -> None:
        if steps < 2 or (seconds is not None and seconds <= 0):
            raise InputError(f"got steps={steps}, seconds={seconds}; expected at least two steps, and some time")
        self.steps, self.seconds, self.level = steps, seconds, level
        self._inputs: dict[str, Any] | None = None

    def after_batch(self, run: Any) -> None:
        """Keep the inputs of the first step that is watched; arrays as copies, as their memory may be used again."""
        if self._inputs is None:
            self._inputs = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in run.inputs.items()}

    def measure(self, statistics: Any) -> float | None:
        """The median share over the steps."""
        if not self.ready():
            return None
        executor, names = self.run.executor, self.run.executor.network.inputs
        batch = self._inputs and {name: value for name, value in self._inputs.items() if name in names}
        if batch is None or not hasattr(executor, "clocked_step"):
            clockless = f"{executor.backend} has no clock around its framework's calls"
            self.reason = clockless if batch is not None else "no step was watched"
            return None
        bound = self.run.executor.network
        fixed = [name for name, parameter in bound.parameters.items() if not parameter.trainable]
        before = [np.array(bound.to_numpy(tensor)) for tensor in bound.fetch_tensors(fixed)]
        trained = statistics.total("train_seconds") if self.seconds is None else None
        limit = SHARE_OF_TRAINING * (trained or 0.0) if self.seconds is None else self.seconds
        try:
            plain, whole, inside = self._steps(executor, batch, limit)
        except Deep500Error as error:
            self.reason = f"the step does not run by itself: {error}"
            return None
        for name, value, tensor in zip(fixed, before, bound.fetch_tensors(fixed), strict=True):
            if not np.array_equal(value, bound.to_numpy(tensor)):
                bound.feed_tensor(name, value)
        self.details = overhead_facts(plain, whole, inside, self.level)
        percent: float = self.details["percent"]
        return percent

    def _steps(
        self, executor: Any, batch: dict[str, Any], seconds: float
    ) -> tuple[list[float], list[float], list[float]]:
        """Seconds of plain steps, of steps under the clock, and of the framework's calls in those."""
        loss, plain, whole, inside = self.run.trainer.loss, [], [], []
        end, fewest = perf_counter() + seconds, 2 if self.seconds else ENOUGH
        for number in range(WARM_UP + self.steps):
            begin = perf_counter()
            executor.inference_and_backprop(batch, loss)
            executor.synchronize()
            took, step = perf_counter() - begin, executor.clocked_step(batch, loss)
            if number >= WARM_UP:
                plain.append(took)
                whole.append(step.seconds)
                inside.append(step.inside)
                if perf_counter() > end and len(plain) >= fewest:
                    break
        return plain, whole, inside


def overhead_facts(
    plain: Sequence[float], clocked: Sequence[float], inside: Sequence[float], level: float = 0.95
) -> dict[str, Any]:
    """The metric from seconds of plain steps, of steps under the clock, and of the framework's calls in those.

    The three come back with it, so that a reader of the record can compute it again.

    Example:
        >>> facts = overhead_facts([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.75, 0.75, 0.75])
        >>> facts["percent"], facts["own_seconds"]
        (25.0, 0.25)
    """
    share = median_interval([100 * (w - i) / w for w, i in zip(clocked, inside, strict=True)], level)
    over = paired_ratio(plain, inside, level)
    return {
        "percent": share.median,
        "low": share.low,
        "high": share.high,
        "level": level,
        "n": len(clocked),
        "step_seconds": float(np.median(plain)),
        "own_seconds": float(np.median(np.subtract(clocked, inside))),
        "over_framework": over.median,
        "over_framework_low": over.low,
        "over_framework_high": over.high,
        "plain": list(plain),
        "clocked": list(clocked),
        "inside": list(inside),
    }


def unasked_overhead(metrics: Iterable[Metric], serial: bool) -> list[FrameworkOverhead]:
    """This metric for the report of a recipe that does not ask for it, within a hundredth of the training's time.

    An empty list where the recipe asks, and where several ranks would have to agree on the number of steps.

    Example:
        >>> len(unasked_overhead([], serial=True)), len(unasked_overhead([FrameworkOverhead()], serial=True))
        (1, 0)
    """
    asked = any(isinstance(metric, FrameworkOverhead) for metric in metrics)
    return [FrameworkOverhead(seconds=None)] if serial and not asked else []
