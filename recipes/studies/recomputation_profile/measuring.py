"""Run a network under several plans: peaks by the allocator, times in turns, gradients compared bit by bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.measure.statistics import Interval, median_interval, paired_ratio
from deep500.networks.execution.capabilities import step_memory
from deep500.networks.execution.executor import GraphExecutor


@dataclass
class StepRunner:
    """Something that does one training step.

    Attributes:
        step: does it, and waits for the device.
        peak: bytes that a step holds at most by the allocator's count; None: not measured.
        same: whether gradients and running statistics are, bit for bit, those without recomputation; None: not asked.
    """

    step: Callable[[], None]
    peak: int | None = None
    same: bool | None = None


@dataclass(frozen=True)
class TimedStep:
    """Times of one step, and their ratio to the first runner's, in pairs."""

    seconds: Interval
    ratio: Interval


def runner_of(executor: GraphExecutor, arrays: Mapping[str, np.ndarray]) -> tuple[StepRunner, dict[str, np.ndarray]]:
    """An executor's runner, and what its first step gives: gradients and running statistics by name."""
    fed: dict[str, Any] = {name: executor.network.to_tensor(array) for name, array in arrays.items()}
    executor.reseed(0)
    executor.inference_and_backprop(fed)
    executor.synchronize()
    names = [gradient for _, gradient in executor.network.gradient()]
    tensors = dict(zip(names, executor.network.fetch_tensors(names), strict=True))
    answer = {name: np.array(executor.network.to_numpy(value)) for name, value in tensors.items()}
    answer |= executor.network.state()

    def step() -> None:
        executor.inference_and_backprop(fed)
        executor.synchronize()

    return StepRunner(step, step_memory(executor, fed)), answer


def equal(left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]) -> bool:
    """The same names with the same bits."""
    return left.keys() == right.keys() and all(left[name].tobytes() == right[name].tobytes() for name in left)


def time_in_turns(runners: Sequence[StepRunner], rounds: int, on_processor: bool) -> list[TimedStep]:
    """Every runner once per round, in an order drawn anew for each.

    Args:
        runners: the first is what the others are compared with.
        rounds: from six on medians have intervals.
        on_processor: take the process's CPU time, which other programs disturb less, instead of the time that passes.
    """
    clock = time.process_time if on_processor else time.perf_counter
    rng, seconds = np.random.default_rng(0), np.zeros((len(runners), rounds))
    for runner in runners:
        runner.step()
    for turn in range(rounds):
        for which in rng.permutation(len(runners)):
            begin = clock()
            runners[which].step()
            seconds[which, turn] = clock() - begin
    return [TimedStep(median_interval(row), paired_ratio(row, seconds[0])) for row in seconds]
