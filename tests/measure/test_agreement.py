"""Tests and corrections against other people's: SciPy, statsmodels, enumeration, and liblsb's ranks set right."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import binom, binomtest, kruskal, mannwhitneyu, norm, rankdata, wilcoxon

from deep500.measure import groups_differ, median_interval, paired_ratio
from deep500.measure.comparison import EQUIVALENT, holm, signed_rank, verdict
from deep500.measure.launch_comparison import mann_whitney

EXACT = 1e-12
SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_wilcoxon_is_scipys_and_the_count_of_all_signs(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.lognormal(size=11), rng.lognormal(0.5, size=11)
    logs = np.log(a) - np.log(b)
    assert signed_rank(a, b) == pytest.approx(wilcoxon(logs).pvalue, rel=EXACT)
    ranks = rankdata(np.abs(logs))
    all_sums = np.array([ranks @ signs for signs in product((0, 1), repeat=11)])
    seen = ranks @ (logs > 0)
    both = 2 * min(np.mean(all_sums <= seen), np.mean(all_sums >= seen))
    assert signed_rank(a, b) == pytest.approx(min(1.0, both), rel=EXACT)
    large, other = rng.lognormal(size=200), rng.lognormal(size=200)
    assert signed_rank(large, other) == pytest.approx(wilcoxon(np.log(large) - np.log(other)).pvalue, rel=EXACT)


@pytest.mark.parametrize("seed", SEEDS)
def test_kruskal_wallis_is_scipys_and_with_two_groups_mann_whitneys(seed):
    rng = np.random.default_rng(seed)
    groups = {str(k): np.round(rng.normal(0.1 * k, 1, 30 + k), 1) for k in range(4)}  # rounded: with ties
    assert groups_differ(groups) == pytest.approx(kruskal(*groups.values()).pvalue, rel=EXACT)
    a, b = groups["0"], groups["3"]
    two = mannwhitneyu(a, b, use_continuity=False, method="asymptotic").pvalue  # z squared is the other's chi squared
    assert groups_differ({"a": a, "b": b}) == pytest.approx(two, rel=EXACT)


@pytest.mark.parametrize("seed", SEEDS)
def test_mann_whitney_is_scipys_and_the_count_of_all_choices(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=5), rng.normal(0.8, 1, size=6)
    assert mann_whitney(a, b) == pytest.approx(mannwhitneyu(a, b).pvalue, rel=EXACT)
    ranks = rankdata(np.concatenate([a, b]))
    all_sums = np.array([sum(ranks[list(chosen)]) for chosen in combinations(range(11), 5)])
    seen = ranks[:5].sum()
    both = 2 * min(np.mean(all_sums <= seen), np.mean(all_sums >= seen))
    assert mann_whitney(a, b) == pytest.approx(min(1.0, both), rel=EXACT)


@pytest.mark.parametrize("seed", SEEDS)
def test_holm_is_statsmodels(seed):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(seed).uniform(0, 0.2, 12) ** 2
    p[3] = p[7]  # a tie
    assert holm(p.tolist()) == pytest.approx(multitest.multipletests(p, method="holm")[1].tolist(), rel=EXACT)


def equivalent(logs: np.ndarray, margin: float) -> bool:
    """What the project says of pairs with these log ratios."""
    ratio = paired_ratio(np.exp(logs), np.ones(logs.size))
    return verdict(ratio, None, 0.0, margin) == EQUIVALENT


@pytest.mark.parametrize("seed", SEEDS)
def test_equivalence_is_two_one_sided_sign_tests(seed):
    """An interval within the margin is TOST (Schuirmann 1987) at half of what the interval leaves out: 2.5 % each."""
    rng, words = np.random.default_rng(seed), set()
    for _ in range(200):
        logs, same = rng.normal(0, rng.uniform(0.005, 0.04), 40), math.log1p(0.02)
        above = binomtest(int((logs < same).sum()), 40, alternative="greater").pvalue
        below = binomtest(int((logs > -same).sum()), 40, alternative="greater").pvalue
        words.add(expected := max(above, below) <= 0.025)
        assert equivalent(logs, 0.02) == expected
    assert words == {True, False}


def test_equivalence_agrees_with_statsmodels_tost_wherever_that_is_clear():
    """On normal log ratios, where signs have 64 % of the efficiency: between p of 1e-6 and .2 they may differ."""
    weightstats = pytest.importorskip("statsmodels.stats.weightstats")
    rng, compared = np.random.default_rng(0), 0
    for _ in range(400):
        logs = rng.normal(rng.uniform(-0.03, 0.03), 0.02, 60)
        p, *_ = weightstats.ttost_paired(logs, np.zeros(60), -math.log1p(0.02), math.log1p(0.02))
        if not 1e-6 < p < 0.2:
            compared += 1
            assert equivalent(logs, 0.02) == (p < 0.025), p
    assert compared > 200


def ranks_of(n: int, z: float) -> tuple[int, int]:
    """Ranks of the interval of the median as liblsb's scripts compute them (Le Boudec's formula), from 1."""
    return math.floor((n - z * math.sqrt(n)) / 2), math.ceil(1 + (n + z * math.sqrt(n)) / 2)


def exact_coverage(n: int, low: int, high: int) -> float:
    """P(x_(low) <= median <= x_(high)) for any continuous distribution."""
    return float(binom.cdf(high - 1, n, 0.5) - binom.cdf(low - 1, n, 0.5))


@pytest.mark.parametrize(("n", "wrong"), [(6, 0.78), (10, 0.89), (20, 0.88), (200, 0.92)])
def test_ours_are_liblsbs_ranks_with_the_sign_set_right(n, wrong):
    """liblsb passes a negative z: its "high" is the lower end, the interval between too narrow. Samples are ranks."""
    z = float(norm.ppf(0.025))  # negative, as there
    high, low = ranks_of(n, z)
    assert exact_coverage(n, low, high) == pytest.approx(wrong, abs=0.006)
    right = ranks_of(n, -z)
    ours = median_interval(np.arange(1.0, n + 1))
    assert abs(ours.low - max(1, right[0])) <= 1 and abs(ours.high - min(n, right[1])) <= 1
    assert exact_coverage(n, int(ours.low), int(ours.high)) >= 0.95


# fmt: off
LIBLSB = [  # microseconds: first 20 of R/sample_data/lsb.bh_clampi_HT_1000_1048576_16.r0 in github.com/spcl/liblsb
    299.278320, 164.743164, 155.402344, 790.330078, 200.138672, 57.629883, 123.633789, 97.230469, 109.882812,
    269.393555, 46.706055, 32.522461, 22.221680, 39.478516, 255.637695, 69.524414, 56.540039, 102.804688, 88.712891,
    176.483398,
]
# fmt: on


def test_liblsbs_sample_data_get_the_corrected_interval():
    """Its scripts would say 70 to 165: ranks 7 to 14 of 20, which cover 88 %."""
    ordered, z = np.sort(LIBLSB), float(norm.ppf(0.975))
    ours = median_interval(LIBLSB)
    assert (ours.low, ours.high) == (ordered[6 - 1], ordered[15 - 1]) == (57.629883, 176.483398)
    script = [ordered[rank - 1] for rank in ranks_of(20, -z)][::-1]
    right = [ordered[rank - 1] for rank in ranks_of(20, z)]
    assert right[0] <= ours.low < script[0] and script[1] < ours.high <= right[1]
    assert script == [69.524414, 164.743164] and ranks_of(20, -z) == (14, 7)
