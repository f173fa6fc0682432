"""Executors timed in turns: one table of medians, and of ratios to the first, for what is asked of all experiments."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.measure.comparison import Comparison, rounds_needed
from deep500.measure.pairs import compare_functions
from deep500.measure.statistics import Interval, median_interval
from deep500.networks import Network
from deep500.networks.execution.inputs import make_inputs
from deep500.registry import load_backend

MOST_ROUNDS = 40
SAMPLE = 2e-3
"""Seconds: shorter calls are repeated until a sample lasts so long, equally often for all in a comparison."""


@dataclass(frozen=True)
class Timed:
    """Functions timed in turns.

    Attributes:
        seconds: name -> one call, median with its interval.
        gains: name -> time of the first over its time, above 1 if it is faster; for all but the first.
        control: the first against itself.
        samples: name -> seconds of every round.
    """

    seconds: Mapping[str, Interval]
    gains: Mapping[str, Comparison]
    control: Interval
    samples: Mapping[str, np.ndarray]

    def as_json(self) -> dict[str, Any]:
        """Medians, intervals, words and samples."""
        gains = {
            name: dict(ratio=list(gain.ratio), p=gain.p, first_is=gain.verdict) for name, gain in self.gains.items()
        }
        return {
            "seconds": {name: list(interval) for name, interval in self.seconds.items()},
            "gains": gains,
            "control": list(self.control),
            "samples": {name: samples.tolist() for name, samples in self.samples.items()},
        }


CLOCKS: dict[str, Callable[[], int]] = {"wall": time.perf_counter_ns, "cpu": time.process_time_ns}
"""Time that passes, or that CPUs spend on this process: the same for one thread, if nothing else runs."""


def in_turns(
    functions: Mapping[str, Callable[[], object]],
    seconds: float,
    clock: str = "wall",
    seed: int = 0,
    most: int = MOST_ROUNDS,
) -> Timed:
    """Time functions in turns for about that long; there are never fewer rounds than a verdict needs.

    Args:
        functions: by name; the first is what the others are compared with.
        seconds: of all samples together, about.
        clock: one of :data:`CLOCKS`.
        seed: of the order within the rounds.
        most: rounds, however short they are.
    """
    once, now = [], CLOCKS[clock]
    for function in functions.values():
        function()
        begin = now()
        function()
        once.append((now() - begin) / 1e9)
    calls = max(1, math.ceil(SAMPLE / max(min(once), 1e-9)))
    fewest = rounds_needed(len(once) * (len(once) - 1) // 2)
    rounds = max(fewest, min(most, int(seconds / (calls * (sum(once) + once[0])))))
    repeated = {name: _repeated(function, calls) for name, function in functions.items()}
    compared = compare_functions(repeated, rounds, seed=seed, warm_up=1, clock=now)
    first = next(iter(functions))
    samples = {name: values / calls for name, values in compared.samples.items()}
    return Timed(
        {name: median_interval(values) for name, values in samples.items()},
        {comparison.second: comparison for comparison in compared.comparisons if comparison.first == first},
        compared.control,
        samples,
    )


def _repeated(function: Callable[[], object], calls: int) -> Callable[[], object]:
    turn = getattr(function, "turn", None)

    def call() -> None:
        if turn is not None:
            turn()
        for _ in range(calls):
            function()

    return call


class CompiledRunner:
    """A network compiled by a backend, with inputs made up once.

    Args:
        network: what runs.
        backend: whose executor.
        seed: of the inputs, and of the order of instances.
        instances: executors of the same network, which differ by where their arrays lie: a few percent of small
            networks' times. `turn` goes on to one of them.
        options: of the executor.
    """

    def __init__(self, network: Network, backend: str, seed: int = 0, instances: int = 1, **options: Any) -> None:
        self.executors = [load_backend(backend).from_model(network, **options) for _ in range(instances)]
        arrays = make_inputs(network, None, seed)
        self.feeds = [{name: e.network.to_tensor(array) for name, array in arrays.items()} for e in self.executors]
        self._now, self._rng = 0, np.random.default_rng(seed + len(network.nodes))
        for self._now in range(instances):
            self()

    def turn(self) -> None:
        """Let another instance run, or the same."""
        self._now = int(self._rng.integers(len(self.executors)))

    def __call__(self) -> None:
        """Run it once."""
        executor = self.executors[self._now]
        executor.inference(self.feeds[self._now])
        executor.synchronize()

    def outputs(self) -> list[np.ndarray]:
        """Compute the outputs."""
        executor = self.executors[self._now]
        arrays = executor.inference(self.feeds[self._now])
        return [np.array(executor.network.to_numpy(arrays[name])) for name in executor.network.outputs]


def difference(ours: list[np.ndarray], original: list[np.ndarray]) -> float:
    """The largest difference of two answers, over the largest element of the second."""
    pairs = zip(ours, original, strict=True)
    return max(float(np.abs(np.subtract(a, b, dtype=np.float64)).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
