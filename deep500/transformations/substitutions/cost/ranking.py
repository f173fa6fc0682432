"""`remeasure`: whole networks timed in turns against the first of them, beside an A/A control."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.measure.comparison import FASTER, MARGIN, Comparison, holm, rounds_needed, signed_rank, verdict
from deep500.measure.pairs import compare_functions, control_bias
from deep500.measure.sampling import Clock
from deep500.measure.statistics import Interval, median_interval, paired_ratio
from deep500.networks.execution.inputs import make_inputs
from deep500.networks.graph import Graph
from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.cost.timing import Runner, typical
from deep500.transformations.substitutions.graph.importing import named

MOST = 200
"""Rounds; more find differences too small to matter."""
ALIKE = 0.5
"""Guess of the time to compile a second network beside the first, with which it has parts in common."""
TWINS, QUICK = 3, 0.1
"""So often a network is built, where an executor is made within so many seconds; else less often."""
BLOCK = 1e-3
"""Seconds that a sample should take: long against the clock and a look at it."""


@dataclass(frozen=True)
class Remeasured:
    """Networks end to end, compared with the first.

    Attributes:
        seconds: median time of one inference with its interval, by name, in the order given.
        comparisons: each of the others against the first: time ratio (below 1: it is faster than the first) with its
            interval, p corrected over all of them, and the verdict.
        control: time ratio of the first to itself, in the same rounds.
        rounds: how many there were.
    """

    seconds: Mapping[str, Interval]
    comparisons: tuple[Comparison, ...]
    control: Interval
    rounds: int

    @property
    def first(self) -> str:
        """Name of the network that the others are compared with."""
        return next(iter(self.seconds))

    @property
    def faster(self) -> list[str]:
        """Names of those that are faster than the first beyond noise (their interval ends below 1), fastest first."""
        sure = [c for c in self.comparisons if c.verdict == FASTER and c.ratio.high is not None and c.ratio.high < 1]
        return [comparison.first for comparison in sorted(sure, key=lambda c: c.ratio.median)]

    def __getitem__(self, name: str) -> Comparison:
        """The comparison of one of the others with the first; raises InputError for a name that has none."""
        for comparison in self.comparisons:
            if comparison.first == name:
                return comparison
        known = [comparison.first for comparison in self.comparisons]
        raise InputError(f"got {name!r}; expected one of {known}: name one of these")

    def __str__(self) -> str:
        lines = [str(comparison) for comparison in self.comparisons]
        return "\n".join([*lines, f"A/A control: {self.control}", f"{self.rounds} rounds within one launch"])


def remeasure(
    networks: Mapping[str, Graph],
    backend: str,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    limit: float = 5.0,
    clock: Clock = time.perf_counter_ns,
    failed: dict[str, str] | None = None,
    until: float | None = None,
) -> Remeasured:
    """Time inference of several networks in turns and compare each with the first.

    Args:
        networks: by name, at least two, with the same inputs; the first is what the others are compared with.
        backend: name of a backend or deployment.
        sizes: numbers for symbolic sizes of the inputs.
        seed: of the inputs (integers are 0 or 1: valid as tokens) and of the order within the rounds.
        limit: seconds of measuring, beside compilation; networks too slow for the fewest rounds that can show anything
            take those nevertheless.
        clock: returns nanoseconds.
        failed: receives what the backend says of networks that it does not run, which are left out; None: an error.
        until: the time, of `cpu_seconds`, by which all networks shall be compiled: with ``failed``, those that
            would take longer, as far as the others tell, are left out.

    Raises:
        InputError: fewer than two networks, inputs that differ, or a symbolic size without a number.
        UnsupportedOperator: the backend cannot run one of them.

    Example:
        >>> from deep500.networks import create
        >>> small, large = create("mlp", batch=8, hidden=(8,)), create("mlp", batch=8, hidden=(2048, 2048))
        >>> measured = remeasure({"large": large, "small": small}, "reference", limit=0.2)
        >>> measured["small"].verdict, measured.faster
        ('faster', ['small'])
    """
    functions = _functions(networks, backend, sizes, seed, failed, until)
    if len(functions) < 2:  # there is nothing to compare the first with
        alone = {name: median_interval([typical(run)]) for name, run in functions.items()}
        return Remeasured(alone, (), median_interval([1.0]), 0)
    return in_turns(functions, seed, limit, MARGIN, clock)


def in_turns(
    functions: Mapping[str, Callable[[], object]],
    seed: int = 0,
    limit: float = 5.0,
    margin: float = MARGIN,
    clock: Clock = time.perf_counter_ns,
) -> Remeasured:
    """Time functions in turns as `remeasure` does networks: without arguments that have run before."""
    pairs = len(functions) * (len(functions) - 1) // 2  # as compare_functions counts
    once = {name: max(typical(run, clock=clock), 1e-9) for name, run in functions.items()}
    calls = max(1, math.ceil(BLOCK / min(once.values())))
    turn = calls * (sum(once.values()) + next(iter(once.values())))
    rounds = max(rounds_needed(pairs), min(MOST, int(limit / turn)))
    repeated = {name: _repeat(run, calls) for name, run in functions.items()}
    comparison = compare_functions(repeated, rounds, margin, seed=seed, warm_up=1, clock=clock)
    seconds = {name: taken / calls for name, taken in comparison.samples.items()}
    compared = _against_first(seconds, comparison.control, margin)
    return Remeasured(
        {name: median_interval(taken) for name, taken in seconds.items()}, compared, comparison.control, rounds
    )


def _functions(
    networks: Mapping[str, Graph],
    backend: str,
    sizes: Mapping[str, int] | None,
    seed: int,
    failed: dict[str, str] | None = None,
    until: float | None = None,
) -> dict[str, Callable[[], object]]:
    if len(networks) < 2:
        raise InputError(
            f"got networks {list(networks)}; expected at least two: give what they are compared with first"
        )
    first = next(iter(networks.values()))
    for name, network in networks.items():
        if dict(network.inputs) != dict(first.inputs):
            raise InputError(
                f"network {name!r}: got inputs {dict(network.inputs)}; expected {dict(first.inputs)}, those of the "
                "first: compare networks that can take each other's place"
            )
    run, inputs = Runner(backend, None, seed), make_inputs(named(first), None, seed, sizes)
    functions, taken = dict[str, Callable[[], object]](), list[float]()
    for name, network in networks.items():
        begin, expected = cpu_seconds(), max(taken[1:] or [ALIKE * seconds for seconds in taken], default=0.0)
        if failed is not None and until is not None and network is not first and begin + expected > until:
            failed[name] = f"got too little time to compile it; expected {expected:.2g} s; raise the budget"
            continue
        try:
            functions[name] = twins(partial(run, network, inputs), seed + len(functions))
        except (NetworkError, UnsupportedOperator) as error:
            if failed is None or network is first:
                raise
            failed[name] = f"{type(error).__name__}: {error}"
        taken.append(cpu_seconds() - begin)  # the first compiles what the others have in common with it, too
    return functions


class _Twins:
    """Executors of one network; `turn` lets one of them run, by chance."""

    def __init__(self, runs: list[Callable[[], object]], seed: int) -> None:
        self.runs, self.now, self._rng = runs, runs[0], np.random.default_rng(seed)

    def turn(self) -> None:
        self.now = self.runs[int(self._rng.integers(len(self.runs)))]

    def __call__(self) -> object:
        return self.now()


def twins(
    make: Callable[[], Callable[[], object]], seed: int, most: int = TWINS, seconds: float | None = None
) -> Callable[[], object]:
    """A function, made several times where that is quick: where its arrays lie is chance, and makes some percent.

    Args:
        make: makes the function once more.
        seed: of the order in which those run.
        most: so often at most.
        seconds: that making all may take, as far as the first tells.

    Example:
        >>> twins(lambda: lambda: 3, seed=0)()
        3
    """
    begin, spent = time.perf_counter(), cpu_seconds()
    first = make()
    # On a busy machine more time passes, and several threads spend more than passes.
    taken = min(time.perf_counter() - begin, cpu_seconds() - spent)
    more = min(most, int((QUICK * most if seconds is None else seconds) / max(taken, 1e-9))) - 1
    return _Twins([first, *(make() for _ in range(more))], seed) if more > 0 else first


def _repeat(run: Callable[[], object], calls: int) -> Callable[[], object]:
    def repeated() -> None:
        if isinstance(run, _Twins):
            run.turn()
        for _ in range(calls):
            run()

    return repeated


def _against_first(seconds: Mapping[str, np.ndarray], control: Interval, margin: float) -> tuple[Comparison, ...]:
    """Each but the first against it; p values are corrected over these alone."""
    (first, base), *others = seconds.items()
    corrected = holm([signed_rank(taken, base) for _, taken in others])
    bias, comparisons = control_bias(control), []
    for (name, taken), p in zip(others, corrected, strict=True):
        ratio = paired_ratio(taken, base)
        comparisons.append(Comparison(name, first, ratio, p, verdict(ratio, p, bias, margin)))
    return tuple(comparisons)
