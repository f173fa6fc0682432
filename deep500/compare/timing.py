"""Timing in turns: every round each worker measures one block, in an order drawn anew, beside an A/A control."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deep500.compare.processes import WorkerProcess
from deep500.measure.comparison import Comparison, compare_all
from deep500.measure.statistics import Interval, median_interval, paired_ratio
from deep500.progress import numbered, stage, still

BLOCK = 0.2
"""Seconds that a block should take: long against the clock, short against the drift of a machine."""
LARGEST_BLOCK = 500
WARM_UP = 3
"""Unmeasured blocks before the first round: compilers and allocators settle."""


@dataclass
class Timing:
    """Times of one repetition (a training step, an inference) per framework.

    Attributes:
        samples: seconds per repetition, one number per round, in the order of the rounds.
        counts: repetitions per block.
        switches: involuntary context switches during each block.
        control: interval of the A/A ratio.
        comparisons: every pair of frameworks.
    """

    samples: dict[str, list[float]]
    counts: dict[str, int]
    switches: dict[str, list[int]]
    control: Interval
    comparisons: list[Comparison] = field(default_factory=list)

    def interval(self, framework: str) -> Interval:
        """Median time of a repetition in seconds."""
        return median_interval(self.samples[framework])


def control_name(framework: str) -> str:
    """Return the name of a framework's second process, the A/A control."""
    return f"{framework} (A/A)"


class Team:
    """One worker process per framework, and a second one of the first framework as the A/A control."""

    def __init__(self, frameworks: Sequence[str], threads: int, kind: str, options: Mapping[str, Any]) -> None:
        self.frameworks = list(frameworks)
        self.control = control_name(self.frameworks[0])
        self.facts: dict[str, dict[str, Any]] = {}
        self.workers: dict[str, WorkerProcess] = {}
        self._stack = ExitStack()
        try:
            for name in [*self.frameworks, self.control]:  # they start together, and prepare one after the other
                self.workers[name] = self._stack.enter_context(WorkerProcess(name, threads))
            for name, worker in self.workers.items():
                stage(f"{name}: starting a process")
                framework = self.frameworks[0] if name == self.control else name
                self.facts[name] = worker.ask("prepare", kind=kind, framework=framework, **options)
        except BaseException:
            self._stack.close()
            raise

    def time(self, rounds: int, seed: int, count: int | None = None, **options: Any) -> Timing:
        """Measure in turns.

        Args:
            rounds: blocks per framework.
            seed: decides the order within each round.
            count: repetitions per block; None chooses them so that a block takes about :data:`BLOCK` seconds.
            options: of the repetition, such as the batch size.
        """
        stage("warming up")
        counts = {name: self._warm(worker, count, options) for name, worker in self.workers.items()}
        counts[self.control] = counts[self.frameworks[0]]
        rng = np.random.default_rng(seed)
        samples: dict[str, list[float]] = {name: [] for name in self.workers}
        switches: dict[str, list[int]] = {name: [] for name in self.workers}
        with still():
            for _ in numbered("round", range(rounds)):
                for place in rng.permutation(len(self.workers)):
                    name = list(self.workers)[place]
                    block = self.workers[name].ask("block", count=counts[name], **options)
                    samples[name].append(block["seconds"])
                    switches[name].append(block["switches"])
        control = paired_ratio(samples[self.control], samples[self.frameworks[0]])
        compared: dict[str, Sequence[float]] = {name: samples[name] for name in self.frameworks}
        return Timing(samples, counts, switches, control, compare_all(compared, control))

    @staticmethod
    def _warm(worker: WorkerProcess, count: int | None, options: Mapping[str, Any]) -> int:
        seconds = 0.0
        for _ in range(WARM_UP):
            seconds = worker.ask("block", count=count or 3, **options)["seconds"]
        return count or min(LARGEST_BLOCK, max(1, math.ceil(BLOCK / seconds)))

    def train(self, seeds: Sequence[int], seed: int) -> dict[str, list[dict[str, Any]]]:
        """Train every framework with every seed, in a drawn order, one at a time."""
        rng = np.random.default_rng(seed)
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in self.frameworks}
        with still():
            for number in seeds:
                for place in rng.permutation(len(self.frameworks)):
                    name = self.frameworks[place]
                    stage(f"training {sum(map(len, runs.values())) + 1} of {len(seeds) * len(runs)}: {name}")
                    runs[name].append(self.workers[name].ask("train", seed=number))
        return runs

    def memory(self) -> dict[str, dict[str, int]]:
        """``peak`` and ``before`` (the framework alone) in bytes, per framework."""
        return {name: self.workers[name].ask("memory") for name in self.frameworks}

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
