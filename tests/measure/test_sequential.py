"""Evidence that holds at every look: bets on signs, by definition and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500.errors import InputError
from deep500.measure.comparison import UNRESOLVED, verdict
from deep500.measure.sequential import (
    FEWEST,
    INDEPENDENT,
    MOST,
    SHIFTS,
    anytime_interval,
    anytime_p,
    anytime_pairs,
    anytime_ratio,
    depends,
    evidence,
)
from deep500.measure.statistics import Interval

values = st.lists(st.floats(-10, 10).filter(lambda v: abs(v) > 1e-6), min_size=1, max_size=9)


@given(values)
def test_evidence_is_the_money_of_the_bets(differences):
    """Bet by bet, as the docstring has it."""
    purses = {(c, sign): 1.0 for c in SHIFTS for sign in (1, -1)}
    for number, x in enumerate(differences, 1):
        size = np.median(np.abs(differences[:number]))
        for (c, sign), money in purses.items():
            stake = min(math.tanh(c * abs(x) / size), MOST)
            purses[c, sign] = money * (1 + sign * math.copysign(stake, x))
    assert evidence(differences) == pytest.approx(np.mean(list(purses.values())), rel=1e-9)


@given(values)
def test_the_bet_is_fair_where_signs_are_coins(differences):
    """Over both signs of the last pair the money is on average what it was before it."""
    before = evidence(differences[:-1]) if len(differences) > 1 else 1.0
    after = [evidence([*differences[:-1], sign * differences[-1]]) for sign in (1, -1)]
    assert np.mean(after) == pytest.approx(before, rel=1e-9)


@given(values, st.floats(-5, 5))
def test_neither_sign_nor_unit_matters(differences, shift):
    assert evidence(differences) == pytest.approx(evidence([-3 * x for x in differences]), rel=1e-9)
    assert evidence(differences, shift) == pytest.approx(evidence([x - shift for x in differences]), rel=1e-6)


def test_looking_after_every_pair_finds_nothing_in_pairs_alike():
    rng, trials = np.random.default_rng(0), 150
    wrong = missed = 0
    for _ in range(trials):
        logs = rng.standard_t(3, 40)
        wrong += any(anytime_p(logs[:n]) < 0.05 for n in range(7, 41, 3))
        ends = anytime_interval(logs)
        missed += not ends[0] <= 0 <= ends[1]
    assert wrong / trials <= 0.06 and missed / trials <= 0.06


def test_the_interval_holds_the_shifts_that_have_little_against_them():
    logs = np.random.default_rng(1).normal(0.05, 0.02, 20)
    low, high = anytime_interval(logs)
    reach = 0.02 * (high - low)
    assert max(evidence(logs, low - reach), evidence(logs, high + reach)) > 1  # beyond its ends it only grows
    assert evidence(logs, low - reach) >= 20 and evidence(logs, high + reach) >= 20
    assert evidence(logs, low + reach) < 20 and evidence(logs, high - reach) < 20
    assert high - low < 4 * 2 * 1.96 * 0.02 / math.sqrt(20)
    wide = anytime_interval(logs, 0.99)
    assert wide[0] < low < high < wide[1]


def test_an_outlier_does_not_decide():
    logs = [0.05, 0.052, 0.048, 0.051, 0.049, 0.05, 0.053, 0.047, 0.05, 0.05, 0.051, 0.049]
    low, high = anytime_interval([*logs, -3.0])
    assert 0 < low < high < 0.1


def test_seven_pairs_are_the_fewest_that_show_anything():
    assert evidence([1.0] * 6) < 20 <= evidence([1.0] * 7)
    assert anytime_ratio([1.0] * 6, [2.0] * 6).low is None
    assert anytime_ratio([1.0] * 7, [2.0] * 7).low == pytest.approx(2)
    assert anytime_p([0.0] * 12) == 1.0


def remembering(rng: np.random.Generator, memory: float, n: int) -> np.ndarray:
    """An AR(1) series of variance 1."""
    series = [rng.standard_normal()]
    for noise in rng.standard_normal(n - 1):
        series.append(memory * series[-1] + math.sqrt(1 - memory**2) * noise)
    return np.array(series)


def decided(logs: np.ndarray) -> bool:
    """Whether some look at pairs is a verdict."""
    for n in range(FEWEST, logs.size + 1):
        p = anytime_p(logs[:n])
        # the interval leaves out 0 exactly where p is below 5 %
        if p < 0.05 and not depends(logs[:n]):
            return True
    return False


def test_pairs_that_depend_on_each_other_are_seldom_called_unlike():
    rng, trials = np.random.default_rng(2), 200
    wrong = sum(decided(remembering(rng, 0.9, 24)) for _ in range(trials))
    assert wrong / trials <= 0.06 + 2 * math.sqrt(0.05 * 0.95 / trials)
    blind = sum(anytime_p(remembering(rng, 0.9, 24)) < 0.05 for _ in range(trials))
    assert blind / trials > 0.3  # what the test of dependence is for


def test_a_difference_beyond_the_scatter_is_found():
    rng, trials = np.random.default_rng(3), 100
    assert sum(decided(0.1 + 0.03 * rng.standard_normal(24)) for _ in range(trials)) / trials >= 0.8
    needed = anytime_pairs(0.03, 0.03)
    assert sum(anytime_p(rng.normal(math.log(1.03), 0.03, needed)) < 0.05 for _ in range(200)) / 200 >= 0.72


def test_few_pairs_and_dependent_ones_are_named():
    assert depends([1.0]).startswith("1 pair: 12 tell") and depends([1.0] * 11).startswith("11 pairs: 12 tell")
    assert "depend on those before them" in depends(np.arange(12.0)) and not depends(np.tile([1.0, 2.0], 8))
    assert 0 < INDEPENDENT < 1


def test_a_verdict_needs_an_interval():
    ratio = anytime_ratio([1.0] * 6, [2.0] * 6)
    assert isinstance(ratio, Interval) and verdict(ratio, 0.01, 0.0) == UNRESOLVED


@pytest.mark.parametrize("wrong", [([1.0], [1.0, 2.0]), ([1.0], [0.0]), ([], []), ([1.0], [math.nan])])
def test_costs_are_positive_and_paired(wrong):
    with pytest.raises(InputError, match="measure in turns"):
        anytime_ratio(*wrong)
    with pytest.raises(InputError):
        evidence([])
