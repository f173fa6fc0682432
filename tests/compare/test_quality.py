"""The comparison of qualities over seeds: beside SciPy, by how often it is wrong, and at what nobody can tell."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from deep500.compare.quality import NO_LOSS, WORSE, compare_qualities
from deep500.metrics import TestAccuracy, VarianceOverSeeds
from deep500.recipe.plan import _facts


def compare(first, second, direction="higher", seeds=None, words=(None, None)):
    facts = {"name": "m", "kind": "quality", "direction": direction, "unit": ""}
    seeds = seeds or (range(len(first)), range(len(second)))
    manifests = [{"resolved": {"metrics": [facts]}, "seeds": list(s)} for s in seeds]
    runs = [
        {"metrics": [{"name": "m", "values": list(v), "verdict": word}]}
        for v, word in zip((first, second), words, strict=True)
    ]
    return compare_qualities(manifests, runs)[0]


def test_the_p_value_of_pairs_is_that_of_all_signs():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, 9), rng.normal(0.8, 1, 9)
    d = b - a
    signs = np.array(np.meshgrid(*[[-1, 1]] * 9)).reshape(9, -1)
    by_hand = np.mean(np.abs(d @ signs) >= abs(d.sum()) * (1 - 1e-12))
    assert compare(a, b).p == pytest.approx(by_hand)


def test_seeds_that_differ_are_two_groups():
    a, b = np.arange(6.0), np.arange(6.0) + 10
    found = compare(a, b, seeds=(range(6), range(10, 16)))
    assert found.p == pytest.approx(2 / math.comb(12, 6)) and (found.low, found.high) == (7.0, 13.0)
    assert found.verdict == "better" and compare(b, a, seeds=(range(6), range(10, 16))).verdict == WORSE
    assert compare(a, b, "lower").verdict == WORSE


def test_no_difference_is_called_a_loss_as_rarely_as_asked():
    """Accuracies of 360 samples have ties; half of the significant ones go each way."""
    rng = np.random.default_rng(1)
    false = [
        compare(*(np.round(rng.binomial(360, 0.97, 8) / 3.6, 4) for _ in range(2))).verdict == WORSE for _ in range(400)
    ]
    low, _ = stats.binomtest(sum(false), 400).proportion_ci(0.999)
    assert low <= 0.025


@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=9), st.floats(1e-3, 1e3))
def test_the_same_values_are_no_loss_and_a_shift_is_found(values, shift):
    assert compare(values, values).verdict == NO_LOSS and compare(values, values).p == 1
    moved = compare(values, [v - shift for v in values])
    assert moved.difference <= 0 and (moved.verdict == WORSE or moved.difference == 0)


def test_values_that_are_missing_or_no_numbers_do_not_count():
    found = compare([1.0] * 8, [None, math.nan, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert "6" in found.test and found.verdict == NO_LOSS
    assert compare([3.0], [1.0]).verdict == "not tested" and compare([1.0], [3.0]).verdict == NO_LOSS
    assert compare([3.0], [1.0], words=("PASSED", "FAILED")).is_lost
    assert not compare([3.0], [1.0], words=("FAILED", "FAILED")).is_lost


def two_metrics(values, target=None, shift=40.0):
    """Accuracies whose pairs differ by about ``shift``, beside a loss that differs as well; both clearly worse."""
    facts = [{"name": "accuracy", "kind": "quality", "direction": "higher", "target": target}]
    facts.append({"name": "loss", "kind": "quality", "direction": "lower", "target": None})
    manifest = {"resolved": {"metrics": facts}, "seeds": list(range(len(values)))}
    sides = [{"accuracy": [v - d for v in values], "loss": [d + v / 1e3 for v in values]} for d in (0.0, shift)]
    runs = [{"metrics": [{"name": n, "values": v} for n, v in side.items()]} for side in sides]
    return {q.metric: q for q in compare_qualities([manifest] * 2, runs)}


@given(st.integers(1, 5), st.integers(4, 9))
def test_what_so_few_seeds_could_not_show_is_not_tested_and_what_is_asked_for_is_enough(more, seeds):
    """However many metrics: the largest difference that there can be is "worse" or "not tested", never "no loss"."""
    facts = [{"name": str(n), "kind": "quality", "direction": "higher"} for n in range(more)]

    def largest(count):
        manifest = {"resolved": {"metrics": facts}, "seeds": list(range(count))}
        runs = [{"metrics": [{"name": f["name"], "values": [v] * count} for f in facts]} for v in (100.0, 0.0)]
        return compare_qualities([manifest] * 2, runs)

    could = 2 * more / 2**seeds < 0.05  # all signs alike have this p value, times Bonferroni's and Holm's factor
    for quality in largest(seeds):
        assert quality.verdict == (WORSE if could else "not tested") and quality.is_open == (not could)
        if not could:
            needed = int(quality.test.partition("--repeat ")[2].split()[0])
            assert {q.verdict for q in largest(needed)} == {WORSE} != {q.verdict for q in largest(needed - 1)}


def test_another_metric_does_not_blind_the_test_of_a_target():
    values = [90.0, 91.0, 93.0, 92.0, 95.0, 94.0]
    assert {q.verdict for q in two_metrics(values).values()} == {"not tested"}
    found = two_metrics(values, target=60.0)
    assert {q.verdict for q in found.values()} == {WORSE} and found["accuracy"].p == compare(values, [0.0] * 6).p


def test_seeds_of_a_variance_are_not_compared_as_variances():
    """Its values by seed are accuracies, of which more is better, whereas its direction is "lower"."""
    facts = _facts(VarianceOverSeeds(TestAccuracy()))
    manifest = {"resolved": {"metrics": [facts]}, "seeds": list(range(8))}
    runs = [{"metrics": [{"name": facts["name"], "values": [v + s for s in range(8)]}]} for v in (50.0, 80.0)]
    assert facts["direction"] == "lower" and compare_qualities([manifest] * 2, runs) == ()
