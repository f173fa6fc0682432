"""Comparisons in turns: false alarms under drift, power, the family of fifty, A/A."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.signal import lfilter

from deep500.errors import InputError
from deep500.measure.comparison import EQUIVALENT, FASTER, SLOWER, UNRESOLVED
from deep500.measure.launches import groups_differ
from deep500.measure.pairs import compare_functions, control_bias, judge_pairs
from deep500.measure.statistics import Interval


def drifting(rng, rounds, systems, effect=0.0):
    """One row per round: 5 % slow drift common to a round, 2 % noise, 3 % spikes; the first system faster by effect."""
    drift = 0.05 * lfilter([math.sqrt(1 - 0.98**2)], [1, -0.98], rng.standard_normal(rounds + 200))[200:]
    noise = 0.02 / math.sqrt(2) * rng.standard_normal((rounds, systems))
    times = np.exp(drift[:, None] + noise) * (
        1 + (rng.random((rounds, systems)) < 0.03) * rng.random((rounds, systems))
    )
    times[:, 0] *= 1 - effect
    return times


def verdicts(effect, trials, rounds=40, seed=0, margin=0.02):
    rng = np.random.default_rng(seed)
    comparisons = []
    for _ in range(trials):
        times = drifting(rng, rounds, 3)
        times[:, [0, 2]] *= 1 - effect
        comparisons += judge_pairs({"a": times[:, 0], "b": times[:, 1]}, times[:, 2], margin).comparisons
    return [comparison.verdict for comparison in comparisons]


def test_no_false_verdicts_under_drift():
    words = verdicts(0.0, 500)
    assert np.mean([v in (FASTER, SLOWER) for v in words]) <= 0.06
    assert np.mean([v == EQUIVALENT for v in words]) >= 0.9


def test_two_percent_are_found_with_forty_pairs():
    assert np.mean([v == FASTER for v in verdicts(0.02, 300)]) >= 0.85


def test_a_block_comparison_would_raise_false_alarms():
    from scipy.stats import mannwhitneyu

    rng, alarms = np.random.default_rng(1), 0
    for _ in range(100):
        times = drifting(rng, 80, 1)[:, 0]
        alarms += mannwhitneyu(times[:40], times[40:]).pvalue < 0.05
    assert alarms > 30, "the drift is too weak for this suite to mean anything"


def test_fifty_comparisons_together_hold_the_level():
    rng, alarms, trials = np.random.default_rng(2), 0, 40
    for _ in range(trials):
        times = drifting(rng, 40, 11)
        comparisons = judge_pairs({str(k): times[:, k] for k in range(10)}, times[:, 10]).comparisons
        assert len(comparisons) == 45
        alarms += any(comparison.verdict in (FASTER, SLOWER) for comparison in comparisons)
    assert alarms / trials <= 0.06


def test_functions_take_turns_in_random_order():
    now, calls = [0], []

    def work(name, nanoseconds):
        def call():
            calls.append(name)
            now[0] += nanoseconds

        return call

    comparison = compare_functions(
        {"a": work("a", 1000), "b": work("b", 2000)}, rounds=20, warm_up=2, clock=lambda: now[0]
    )
    assert comparison.comparisons[0].verdict == FASTER and comparison.control.median == 1.0
    assert comparison.samples["b"].tolist() == [2e-6] * 20
    assert calls.count("a") == 2 * calls.count("b") == 44
    rounds = {tuple(calls[i : i + 3]) for i in range(0, len(calls), 3)}
    assert len(rounds) == 3, "the order is not drawn"


def test_a_biased_control_takes_the_word_away():
    rng = np.random.default_rng(3)
    times = drifting(rng, 40, 3)
    comparison = judge_pairs({"a": times[:, 0] * 1.03, "b": times[:, 1]}, times[:, 2] * 1.1)
    assert control_bias(comparison.control) > 0.04
    assert comparison.comparisons[0].verdict == UNRESOLVED


def test_control_without_interval_has_no_bias_to_tell():
    assert control_bias(Interval(1.0, None, None, 3)) is None
    assert control_bias(Interval(1.0, 0.9, 1.1, 20)) == 0.0


@pytest.mark.parametrize(("functions", "rounds"), [({"a": int}, 40), ({"a": int, "b": int}, 5)])
def test_what_cannot_show_anything_is_refused(functions, rounds):
    with pytest.raises(InputError, match="expected at least two functions and"):
        compare_functions(functions, rounds)


def test_groups_are_scipys_kruskal():
    from scipy.stats import kruskal

    rng = np.random.default_rng(4)
    groups = {str(k): rng.random(20) + 0.05 * k for k in range(4)}
    assert groups_differ(groups) == pytest.approx(kruskal(*groups.values()).pvalue, rel=1e-12)
    assert groups_differ({"a": np.ones(5), "b": np.ones(5)}) == 1.0
    with pytest.raises(InputError, match="two groups of five"):
        groups_differ({"a": np.ones(5)})


def test_a_comparison_in_one_process_says_so():
    values = np.linspace(1, 1.1, 12)
    comparison = judge_pairs({"a": values, "b": 2 * values}, values)
    lines = str(comparison).splitlines()
    assert lines[0].startswith("a is faster than b") and lines[1].startswith("A/A control: 1 (")
    assert lines[2].startswith("within one launch")
