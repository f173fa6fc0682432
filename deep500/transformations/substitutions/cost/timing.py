"""Seconds that a part of a network adds to it: the slope between few and many copies of it in one network.

What an executor does once per call (checks, a session's start) is in both networks and cancels. What it does per input
and per output is no part of an operator inside a network; `Margins` measures it on networks of one-element tensors
and takes it off. Disturbances only ever add time, so the fastest of interleaved rounds are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deep500.devices import to_device
from deep500.measure.pairs import compare_functions
from deep500.measure.plan import Budget, Plan
from deep500.measure.repeated import measure
from deep500.measure.sampling import Clock
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.execution.inputs import make_inputs
from deep500.networks.graph import Graph
from deep500.transformations.substitutions.cost.deployments import deployment

FEWEST, MOST = 12, 400
"""Rounds of a slope."""
COPIES = 8
"""Most copies; fewer where a unit takes long, as its own time is far above the clock's and the machine's noise."""
BYTES = 2**28
"""Most memory that copies may take."""
ATTEMPTS, SPREAD, RESOLUTION = 3, 0.08, 1e-7
"""So often a slope is measured while its deviation is above this part of it and above that many seconds."""
REPEATS = 5
"""Of `margins`, which go into every price."""


@dataclass(frozen=True)
class Slope:
    """Seconds per copy, median absolute deviation of the rounds (seconds) and number of rounds."""

    seconds: float
    mad: float
    rounds: int


class Runner:
    """Networks as functions without arguments, on inputs that lie on the device already.

    Args:
        backend: name of a backend or deployment.
        device: None for its default.
        seed: of the inputs.
    """

    def __init__(self, backend: str, device: Any = None, seed: int = 0) -> None:
        self.backend, self.device, self.seed = backend, device, seed
        self.deployment = deployment(backend)

    def ran_on(self, device: Any) -> Any:
        """Device of networks that are asked for on ``device``: a backend without a GPU takes the CPU."""
        requested = to_device(device)
        if requested.kind == "cpu":
            return device or "cpu"
        return self.deployment.executor(_row(1, "float32"), device).device

    def __call__(self, network: Graph, inputs: dict[str, np.ndarray] | None = None) -> Callable[[], object]:
        """A call runs the network once and waits for the device; it has run already, so compilers are done.

        Raises:
            UnsupportedOperator: the backend cannot run it.
        """
        executor = self.deployment.executor(network, self.device)
        arrays = make_inputs(network, None, self.seed) if inputs is None else inputs
        tensors = {name: executor.network.to_tensor(array) for name, array in arrays.items()}
        run = partial(_run, executor, tensors)
        run()
        return run


def _run(executor: GraphExecutor, tensors: dict[str, Any]) -> None:
    executor.inference(tensors)
    executor.synchronize()


def typical(function: Callable[[], object], calls: int = 5, clock: Clock | None = None) -> float:
    """Median seconds of a few calls, to plan with: an interruption spoils one of them, not the median.

    Example:
        >>> typical(lambda: None) < 1
        True
    """
    taken, now = [], clock or time.perf_counter_ns
    for _ in range(calls):
        begin = now()
        function()
        taken.append((now() - begin) / 1e9)
    return float(np.median(taken))


def slope(make: Callable[[int], Callable[[], object]], limit: float, size: int = 0, seed: int = 0) -> Slope:
    """Seconds that one more copy takes.

    A function that takes so long that its executor's share is lost in it is timed by itself.

    Args:
        make: number of copies -> function that runs that number.
        limit: seconds to measure for; building the functions is not counted, a function that is slower than the limit
            runs a few times nevertheless, and a spread as of a busy machine makes it up to three times as much.
        size: bytes of one copy.
        seed: of the order within the rounds.
    """
    single = make(1)
    first = typical(single)
    if first > limit / (4 * FEWEST):
        plan = Plan(budget=Budget(min_n=3, max_n=3 + int(limit / first), max_s=limit, min_neff=0))
        return _quietest(lambda: _alone(single, plan), limit)
    copies = max(2, int(min(COPIES, limit / (FEWEST * first) - 2, BYTES / max(size, 1))))
    several = make(copies)

    def paired() -> Slope:
        rounds = rounds_within(
            limit, 2 * typical(single) + typical(several)
        )  # the first function runs twice in every round
        samples = compare_functions({"one": single, "several": several}, rounds, seed=seed, warm_up=1).samples
        added = float(samples["several"].min() - samples["one"].min()) / (copies - 1)
        return Slope(max(added, 0.0), mad((samples["several"] - samples["one"]) / (copies - 1)), rounds)

    return _quietest(paired, limit)


def _alone(function: Callable[[], object], plan: Plan) -> Slope:
    samples = measure(function, plan).samples
    return Slope(float(samples.min()), mad(samples), samples.size)


def _quietest(attempt: Callable[[], Slope], limit: float) -> Slope:
    """The first attempt with little spread, else the one with the least: a machine may have been busy."""
    attempts: list[Slope] = []
    begin = time.perf_counter()
    while len(attempts) < ATTEMPTS and time.perf_counter() - begin < 2 * limit:
        attempts.append(attempt())
        if attempts[-1].mad <= max(SPREAD * attempts[-1].seconds, RESOLUTION):
            break
    return min(attempts, key=lambda attempted: attempted.mad)


def rounds_within(limit: float, seconds: float) -> int:
    """Number of rounds, each of some seconds, that fit into a limit, within bounds."""
    return int(min(MOST, max(FEWEST, limit / seconds)))


def mad(values: np.ndarray) -> float:
    """Median absolute deviation."""
    return float(np.median(np.abs(values - np.median(values))))


@dataclass(frozen=True)
class Margins:
    """Seconds that an executor takes per input that it is given, and per output that it returns."""

    feed: float
    fetch: float


def margins(run: Runner, limit: float, dtype: str = "float32") -> Margins:
    """Measure `Margins` on rows and chains of ``Tanh`` of one element, in turns.

    Args:
        run: for the backend.
        limit: seconds for each of several repetitions, whose median counts.
        dtype: of the elements.
    """
    functions = {
        f"{make.__name__}{count}": run(make(count, dtype)) for make in (_row, _chain, _last) for count in (1, COPIES)
    }
    rounds = rounds_within(limit, sum(typical(function) for function in functions.values()))
    seconds = np.median([_margins(functions, rounds, seed) for seed in range(REPEATS)], axis=0)
    return Margins(float(seconds[0]), float(seconds[1]))


def _margins(functions: dict[str, Callable[[], object]], rounds: int, seed: int) -> tuple[float, float]:
    taken = compare_functions(functions, rounds, seed=seed).samples
    fastest = {name: float(samples.min()) for name, samples in taken.items()}
    row, chain, last = (fastest[f"{name}{COPIES}"] - fastest[f"{name}1"] for name in ("_row", "_chain", "_last"))
    return max(row - chain, 0.0) / (COPIES - 1), max(chain - last, 0.0) / (COPIES - 1)


def _row(count: int, dtype: str) -> Graph:
    """Each ``Tanh`` with an input and an output of its own."""
    network = Graph("row")
    for n in range(count):
        network.add_input(f"x{n}", (1,), dtype)
        network.add_node("Tanh", [f"x{n}"], [f"y{n}"])
        network.add_output(f"y{n}")
    return network


def _chain(count: int, dtype: str, outputs: bool = True) -> Graph:
    """One ``Tanh`` after the other, the result of each an output."""
    network = Graph("chain")
    network.add_input("y0", (1,), dtype)
    for n in range(count):
        network.add_node("Tanh", [f"y{n}"], [f"y{n + 1}"])
        if outputs or n == count - 1:
            network.add_output(f"y{n + 1}")
    return network


def _last(count: int, dtype: str) -> Graph:
    """The same, of which the last result is the only output."""
    return _chain(count, dtype, outputs=False)
