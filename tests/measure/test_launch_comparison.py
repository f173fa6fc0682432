"""Two groups of launches: intervals are R's and SciPy's, cover what they say, and find what there is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, kstest, mannwhitneyu, ttest_ind, wilcoxon

from deep500.errors import InputError
from deep500.measure.comparison import signed_rank
from deep500.measure.launch_comparison import Floor, compare_launches, dependence, paired_shift, shift_interval
from deep500.measure.launches import over_launches

pytestmark = pytest.mark.slow

PERMEABILITY = (
    np.array([1.15, 0.88, 0.90, 0.74, 1.21]),  # 12 to 26 weeks
    np.array([0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]),  # at term
)
"""Hollander and Wolfe's example 4.1, of which R's `wilcox.test(conf.int = TRUE)` says -0.15 to 0.76 with 95 %."""

DEPRESSION = (
    np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]),
    np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]),
)
"""Their example 3.1, whose signed ranks have p = 0.03906."""


def test_the_interval_of_a_shift_is_rs():
    low, high = shift_interval(*PERMEABILITY)
    assert (low, high) == (pytest.approx(-0.15), pytest.approx(0.76))


@pytest.mark.parametrize("seed", range(40))
def test_intervals_leave_zero_out_when_their_tests_do(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=7), rng.normal(1, 1, size=9)
    low, high = shift_interval(a, b)
    assert (low > 0 or high < 0) == (mannwhitneyu(a, b, method="exact").pvalue < 0.05)
    pairs = np.exp(rng.normal(0, 1, size=9)), np.exp(rng.normal(0.8, 1, size=9))
    ratio = paired_shift(*pairs)
    assert (ratio.low > 1 or ratio.high < 1) == (signed_rank(pairs[1], pairs[0]) < 0.05)


def test_the_interval_of_pairs_is_that_of_signed_ranks():
    """On differences as in the book: exp turns ratios into them."""
    ratio = paired_shift(*(np.exp(side) for side in DEPRESSION))
    assert wilcoxon(*DEPRESSION).pvalue == pytest.approx(0.03906, abs=1e-5) and ratio.high < 1
    logs = DEPRESSION[1] - DEPRESSION[0]
    means = np.sort([(a + b) / 2 for k, a in enumerate(logs) for b in logs[k:]])
    assert np.log([ratio.low, ratio.high]) == pytest.approx([means[5], means[-6]])  # P(T <= 5) = .0195, of 6 .027


def test_too_few_pairs_have_no_interval():
    assert paired_shift([1.0] * 5, [1.1] * 5).low is None and paired_shift([1.0] * 6, [1.1] * 6).low is not None
    with pytest.raises(InputError, match="measure in turns"):
        paired_shift([1.0, 2.0], [1.0])
    with pytest.raises(InputError, match="expected enough"):
        shift_interval(np.arange(3.0), np.arange(3.0))


def test_many_launches_have_nearly_the_same_ranks():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=101), rng.normal(size=101)
    many = shift_interval(a, b)
    half = shift_interval(a[:99], b[:99])
    assert many == pytest.approx(half, abs=0.05)


def launches(rng, count, spread, effect=0.0, run=0.0, n=40, noise=0.02):
    """Samples of launches that scatter by ``spread`` in a run that is off by ``run``."""
    levels = math.log1p(effect) + run * rng.standard_normal() + spread * rng.standard_normal(count)
    return list(np.exp(levels[:, None] + noise * rng.standard_normal((count, n))))


def shares(count, spread, effect=0.0, run=0.0, trials=400, floor=None, seed=0):
    """How often a difference is found, and the interval covers the truth, where there is one."""
    rng, found, covered, tested = np.random.default_rng([seed, count]), 0, 0, 0
    n = 300 if floor else 40  # a floor is added to what samples within launches leave open: that must be known
    for _ in range(trials):
        pair = launches(rng, count, spread, run=run, n=n), launches(rng, count, spread, effect, run, n=n)
        one = compare_launches(*pair, floor(rng) if callable(floor) else floor)
        if one.p is not None:
            tested += 1
            found += one.p < 0.05 and (one.ratio.low > 1 or one.ratio.high < 1)
            covered += one.ratio.low <= 1 + effect <= one.ratio.high
    assert tested == 0 or tested > 0.7 * trials, "independent launches are hardly ever compared"
    return found / max(tested, 1), covered / max(tested, 1)


@pytest.mark.parametrize("count", [12, 15])
def test_no_false_verdicts_where_launches_differ(count):
    false, covered = shares(count, spread=0.05)
    assert false <= 0.075 and covered >= 0.925


@pytest.mark.parametrize(("memory", "count"), [(0.9, 12), (0.9, 30), (0.5, 12), (0.5, 30), (0.3, 12)])
def test_launches_that_depend_on_those_before_give_no_false_verdicts(memory, count):
    """AR(0.9) of 12 launches gave 66 %."""
    rng, false = np.random.default_rng([count, int(10 * memory)]), 0
    for _ in range(500):
        sides = []
        for _ in range(2):
            levels = [rng.normal() / math.sqrt(1 - memory**2)]
            for _ in range(count - 1):
                levels.append(memory * levels[-1] + rng.normal())
            sides.append([np.full(5, math.exp(0.05 * level)) for level in levels])
        p = compare_launches(*sides).p
        false += p is not None and p < 0.05
    low, _ = binomtest(int(false), 500).proportion_ci(0.95)
    assert low <= 0.06


def test_dependence_needs_four_values_of_each_group():
    with pytest.raises(InputError, match="expected 4 or more in each"):
        dependence([np.arange(9.0), np.arange(3.0)])


def test_the_test_of_dependence_is_right_as_often_as_it_says():
    rng = np.random.default_rng(3)
    p = [dependence([rng.random(12), rng.random(14)]) for _ in range(2000)]
    assert kstest(p, "uniform").pvalue > 1e-3


def test_twelve_launches_find_two_percent():
    """Launches 1 % apart; the ratio of two intervals of medians found it in 18 %."""
    found, covered = shares(12, spread=0.01, effect=0.02)
    assert found >= 0.85 and covered >= 0.925


@pytest.mark.parametrize("count", [1, 3, 6])
def test_few_launches_show_nothing_by_themselves(count):
    """Nor where they hardly differ and their runs do: three launches would find a difference in two of three pairs."""
    assert shares(count, spread=0.01, run=0.03, trials=20) == (0, 0)


@pytest.mark.parametrize("count", [1, 2])
def test_a_declared_floor_keeps_its_word(count):
    rng, given, false = np.random.default_rng(count), 0, 0
    for _ in range(400):
        pair = [launches(rng, count, 0.02, n=300) for _ in range(2)]
        one = compare_launches(*pair, Floor(0.02), processes=(count, count))
        given, false = given + (one.p is not None), false + (one.p is not None and one.p < 0.05)
    assert false <= 0.075 * given and given > 0.9 * 400


def measured(rng, runs=5, spread=0.03):
    """A floor from the spread of earlier runs."""
    return Floor(float(np.std(spread * rng.standard_normal(runs), ddof=1)), runs - 1, "between earlier runs")


@pytest.mark.parametrize("count", [1, 3, 12])
def test_a_measured_floor_covers_what_runs_differ_by(count):
    """Runs 3 % apart, whose launches are nearly the same: they alone would see differences in nearly every pair."""
    false, covered = shares(count, spread=0.002, run=0.03, floor=measured)
    assert false <= 0.075 and covered >= 0.925
    if count >= 12:
        assert shares(count, spread=0.002, run=0.03, trials=100)[0] > 0.6, "the test does not bite"


def test_the_ratio_is_the_medians_own_and_within_its_interval():
    rng = np.random.default_rng(1)
    for _ in range(50):
        a, b = launches(rng, 12, 0.1), launches(rng, 12, 0.1)
        medians = float(rng.uniform(0.5, 2)), float(rng.uniform(0.5, 2))
        one = compare_launches(a, b, medians=medians)
        assert one.ratio.median == medians[1] / medians[0]
        assert one.p is None or one.ratio.low <= one.ratio.median <= one.ratio.high


def test_times_of_nothing_and_floors_of_nothing_are_told():
    assert compare_launches([np.zeros(9)] * 8, [np.ones(9)] * 8).reason == "times of 0: the clock is too coarse"
    for wrong in ({"sd": 0.0}, {"sd": 1.0}, {"sd": math.nan}, {"sd": 0.1, "freedom": 0.5}):
        with pytest.raises(InputError, match="expected a relative standard deviation"):
            Floor(**wrong)


def test_students_t_is_scipys():
    rng = np.random.default_rng(2)
    a, b = launches(rng, 4, 0.1), launches(rng, 5, 0.1, 0.2)
    one = compare_launches(a, b, Floor(1e-6))  # which they exceed
    theirs = ttest_ind(*(np.log([np.median(launch) for launch in side]) for side in (b, a)))
    ends = theirs.confidence_interval(0.95)
    assert one.p == pytest.approx(theirs.pvalue)
    assert np.log([one.ratio.low, one.ratio.high]) == pytest.approx([ends.low, ends.high])


def test_launches_that_are_all_the_same_are_compared():
    one = compare_launches([np.full(9, 1.0)] * 12, [np.full(9, 1.1)] * 12)
    assert one.p < 0.001 and one.ratio.low == one.ratio.high == pytest.approx(1.1)


@pytest.mark.parametrize("count", [1, 5, 6, 9])
def test_medians_are_those_that_launches_report(count):
    rng = np.random.default_rng(count)
    a, b = launches(rng, count, 0.05), launches(rng, count, 0.05)
    reported = [over_launches(side).estimate.value for side in (a, b)]
    assert compare_launches(a, b).ratio.median == pytest.approx(reported[1] / reported[0], rel=1e-12)


def test_launches_of_one_process_show_nothing_by_themselves():
    rng = np.random.default_rng(1)
    sides = [[level * rng.normal(k, 0.02, 100) for level in rng.normal(1, 0.01, 12)] for k in (1.0, 1.1)]
    assert compare_launches(*sides).ratio.low > 1
    found = compare_launches(*sides, shared=True)
    assert found.reason == "the launches of a side share a process" and found.ratio.low is None
    assert compare_launches(*sides, Floor(0.01), shared=True).ratio.low > 1  # how far processes lie apart is known
