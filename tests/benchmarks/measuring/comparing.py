"""Figures 4, 5 and 8: false alarms, power, equivalence, and agreement with other people's programs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.signal import lfilter

from deep500.measure import PairedComparison, compare_functions
from deep500.measure.comparison import EQUIVALENT, FASTER, SLOWER, holm, verdict
from deep500.measure.pairs import control_bias
from tests.benchmarks.measuring.outcome import Options, Outcome, figure, ratio
from tests.benchmarks.measuring.suites import run_tests

ROUNDS, WARM_UP, SUITE = 40, 3, 50
PHI, DRIFT, NOISE, SPIKES = 0.98, 0.05, 0.02, 0.03


class DriftingMachine:
    """A clock whose speed wanders from call to call: AR(1) of .98 and 5 %, 2 % noise of a ratio, 3 % spikes.

    The drift goes on within a round, unlike that of ``tests/measure/test_pairs.py``: only the random order helps.
    """

    def __init__(self, rng: np.random.Generator, calls: int) -> None:
        drift = DRIFT * lfilter([math.sqrt(1 - PHI**2)], [1, -PHI], rng.standard_normal(calls + 200))[200:]
        noise = NOISE / math.sqrt(2) * rng.standard_normal(calls)
        spikes = 1 + (rng.random(calls) < SPIKES) * rng.random(calls)
        self.costs = (1e6 * np.exp(drift + noise) * spikes).tolist()
        self.now, self.call = 0, 0

    def clock(self) -> int:
        """Nanoseconds."""
        return self.now

    def work(self, factor: float) -> Callable[[], None]:
        """Something that takes ``factor`` times a millisecond."""

        def run() -> None:
            self.now += int(self.costs[self.call] * factor)
            self.call += 1

        return run


def compared(rng: np.random.Generator, factor: float) -> PairedComparison:
    """`compare_functions` itself on such a machine: "a" against "b", which takes ``factor`` times as long."""
    machine = DriftingMachine(rng, 3 * (ROUNDS + WARM_UP))
    return compare_functions(
        {"a": machine.work(1.0), "b": machine.work(factor)},
        ROUNDS,
        seed=int(rng.integers(2**31)),
        warm_up=WARM_UP,
        clock=machine.clock,
    )


def _words(options: Options, factor: float, salt: int) -> list[str]:
    rng = np.random.default_rng(options.seed + salt)
    trials = options.each(range(options.trials), f"effect {factor - 1:+.0%}")
    return [compared(rng, factor).comparisons[0].verdict for _ in trials]


@figure(
    4,
    "A/B under drift within and between rounds, 40 pairs",
    "no effect: false verdicts <= 6 %; +2 %: found >= 85 %; suite of 50: family-wise <= 6 %",
)
def drift(options: Options) -> Outcome:
    """2000 comparisons without an effect, as many with one, and a fourth of that many suites of fifty."""
    alarms = sum(word in (FASTER, SLOWER) for word in _words(options, 1.0, 4))
    words = _words(options, 1.02, 40)
    rng, families, wrong = np.random.default_rng(options.seed + 41), max(1, options.trials // 4), 0
    for _ in options.each(range(families), "suites of 50"):
        suite = [compared(rng, 1.0) for _ in range(SUITE)]
        p_values = holm([comparison.comparisons[0].p for comparison in suite])
        wrong += any(
            verdict(comparison.comparisons[0].ratio, p, control_bias(comparison.control)) in (FASTER, SLOWER)
            for comparison, p in zip(suite, p_values, strict=True)
        )
    faster, n = words.count(FASTER), options.trials
    text = (
        f"false {ratio(alarms, n)}; +2 % found {ratio(faster, n)}, the wrong way {words.count(SLOWER)}; family-wise "
        f"{ratio(wrong, families)}"
    )
    return Outcome(text, alarms <= 0.06 * n and faster >= 0.85 * n and wrong <= 0.06 * families)


@figure(5, "A/A on the same machine", '"equivalent" at 2 % in >= 90 %; "slower" or "faster" in <= 5 %')
def same(options: Options) -> Outcome:
    """Two functions that are one."""
    words = _words(options, 1.0, 5)
    equal, alarms = words.count(EQUIVALENT), words.count(FASTER) + words.count(SLOWER)
    text = f"equivalent {ratio(equal, len(words))}, slower or faster {ratio(alarms, len(words))}"
    return Outcome(text, equal >= 0.9 * len(words) and alarms <= 0.05 * len(words))


@figure(
    8,
    "agreement with SciPy, statsmodels and R",
    "1e-12 (Wilcoxon, Kruskal-Wallis, Mann-Whitney, Holm); QuantReg "
    "1e-6 on 5 fixtures; liblsb's data give the corrected interval",
)
def agreement(options: Options) -> Outcome:
    """The tests that hold the tolerances."""
    tests = run_tests("tests/measure/test_agreement.py", "tests/measure/test_regression.py")
    text = f"{tests.passed} of {tests.total} tests pass, liblsb's first 20 sample times among them"
    return Outcome(text, tests.all_passed, tests.why)
