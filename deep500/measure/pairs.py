"""`compare_functions`: time several functions in turns, in random order, and say who is faster only with evidence.

Running all of A and then all of B is unusable where the speed of a machine drifts (with 5 % drift and no effect, more
than half of such comparisons find one). Here every round times every function once, in an order drawn anew; the first
function runs twice, and its two selves are the A/A control: if the control itself finds a difference, that much of
every other difference is the method's, not the functions'. All of it is one launch: another process may lay out its
memory otherwise, and what that does to either function shows in no number of rounds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from deep500.errors import InputError
from deep500.measure.comparison import MARGIN, Comparison, holm, rounds_needed, signed_rank, verdict
from deep500.measure.sampling import Clock
from deep500.measure.statistics import Interval, paired_ratio


@dataclass(frozen=True)
class PairedComparison:
    """The result of timing in turns.

    Attributes:
        comparisons: every pair, p values Holm-corrected over all of them.
        control: the first function against itself, in the same rounds.
        samples: seconds by function, one per round.
    """

    comparisons: tuple[Comparison, ...]
    control: Interval
    samples: Mapping[str, np.ndarray]

    def __str__(self) -> str:
        lines = [str(comparison) for comparison in self.comparisons]
        basis = "within one launch: in another process it may differ"
        return "\n".join([*lines, f"A/A control: {self.control}", basis])


def compare_functions(
    functions: Mapping[str, Callable[[], object]],
    rounds: int = 40,
    margin: float = MARGIN,
    alpha: float = 0.05,
    seed: int = 0,
    warm_up: int = 3,
    synchronize: Callable[[], object] | None = None,
    clock: Clock = time.perf_counter_ns,
) -> PairedComparison:
    """Time functions in turns and compare every pair.

    Args:
        functions: by name, at least two; each is called once per round.
        rounds: fixed before anything is looked at.
        margin: the smallest effect of interest; what is surely smaller is ``equivalent``.
        alpha: level of the tests, over all pairs together (Holm).
        seed: of the order within the rounds.
        warm_up: rounds that are not counted.
        synchronize: waits for the device; part of every sample.
        clock: returns nanoseconds.

    Raises:
        InputError: fewer than two functions, or too few rounds for any verdict.

    Example:
        >>> found = compare_functions({"short": lambda: sum(range(500)), "long": lambda: sum(range(5000))})
        >>> found.comparisons[0].verdict
        'faster'
    """
    names = list(functions)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    fewest = rounds_needed(len(pairs), alpha) if pairs else 0
    if len(names) < 2 or rounds < fewest:
        raise InputError(
            f"got {len(names)} functions and {rounds} rounds; expected at least two functions and {fewest} rounds, "
            "fewer cannot show anything"
        )
    turns = [*functions.values(), functions[names[0]]]  # the first once more: the A/A control
    times = np.empty((rounds, len(turns)))
    order = np.random.default_rng(seed)
    for i in range(-warm_up, rounds):
        # a fixed order would favour what always follows the same neighbour (caches, clock frequency)
        for k in order.permutation(len(turns)):
            begin = clock()
            turns[k]()
            if synchronize is not None:
                synchronize()
            times[max(i, 0), k] = (clock() - begin) / 1e9  # warm-up rounds are overwritten
    samples = {name: times[:, k].copy() for k, name in enumerate(names)}
    return judge_pairs(samples, times[:, -1], margin, alpha)


def judge_pairs(
    samples: Mapping[str, np.ndarray], control: np.ndarray, margin: float = MARGIN, alpha: float = 0.05
) -> PairedComparison:
    """Compare series whose i-th values were measured in the same round; ``control`` is the first system once more."""
    names = list(samples)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    corrected = holm([signed_rank(samples[a], samples[b]) for a, b in pairs])
    again = paired_ratio(control, samples[names[0]])
    bias = control_bias(again)
    ratios = [paired_ratio(samples[a], samples[b]) for a, b in pairs]
    comparisons = [
        Comparison(a, b, ratio, p, verdict(ratio, p, bias, margin, alpha))
        for (a, b), ratio, p in zip(pairs, ratios, corrected, strict=True)
    ]
    return PairedComparison(tuple(comparisons), again, samples)


def control_bias(control: Interval) -> float | None:
    """Return how far an A/A control's interval lies from 1, as a log ratio: 0 if it contains 1, None without one."""
    if control.low is None or control.high is None:
        return None
    return max(0.0, math.log(control.low), -math.log(control.high))
