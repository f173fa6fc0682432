"""Verdicts on synthetic samples whose truth is known; Wilcoxon and Holm against SciPy and a hand calculation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.measure.comparison import compare_all, holm, noise_floor, rounds_needed, signed_rank, verdict
from deep500.measure.statistics import Interval, paired_ratio

WORDS = [  # low, high, p, noise, verdict
    (0.70, 0.90, 0.001, 0.01, "faster"),
    (1.10, 1.30, 0.001, 0.01, "slower"),
    (0.70, 0.90, 0.060, 0.01, "unresolved"),  # not significant
    (0.90, 0.97, 0.001, 0.05, "unresolved"),  # not beyond the noise
    (0.99, 1.01, 0.900, 0.01, "equivalent"),
    (0.985, 0.99, 1e-6, 0.01, "equivalent"),  # real, and too small to matter
    (0.99, 1.01, 0.900, 0.10, "unresolved"),  # the control is too wide to say so
    (0.95, 1.05, 0.900, 0.01, "unresolved"),
    (None, None, None, 0.01, "unresolved"),
    (0.70, 0.90, 0.001, None, "unresolved"),
    (0.70, 0.90, None, 0.01, "unresolved"),
]


@pytest.mark.parametrize(("low", "high", "p", "noise", "word"), WORDS)
def test_words(low, high, p, noise, word):
    middle = 1.0 if low is None else math.sqrt(low * high)
    assert verdict(Interval(middle, low, high, 20), p, noise) == word


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([None, 0.5, None, 0.9]) == [None, 1.0, None, 1.0]
    assert holm([]) == []


def test_signed_rank():
    rng = np.random.default_rng(0)
    a, b = rng.lognormal(size=20), rng.lognormal(size=20)
    scipy_stats = pytest.importorskip("scipy.stats")
    assert signed_rank(a, b) == pytest.approx(scipy_stats.wilcoxon(np.log(a / b)).pvalue)
    assert signed_rank([1.0] * 8, [1.0] * 8) == 1.0
    assert signed_rank([1.0] * 5, [2.0] * 5) is None


def _turns(rng, factor, turns=30):
    """Times under a drift that both systems share, with spikes; the second takes ``factor`` times as long."""
    drift = np.exp(np.cumsum(rng.normal(0, 0.03, turns)))
    spikes = np.where(rng.random((3, turns)) < 0.05, 3.0, 1.0)
    noise = np.exp(rng.normal(0, 0.01, (3, turns))) * spikes
    return {"a": drift * noise[0], "b": factor * drift * noise[1]}, drift * noise[2]


def _judge(rng, factor):
    samples, again = _turns(rng, factor)
    (comparison,) = compare_all(samples, paired_ratio(samples["a"], again))
    return comparison


def test_true_differences_are_found_and_absent_ones_are_not():
    rng = np.random.default_rng(1)
    faster = [_judge(rng, 1.1).verdict for _ in range(60)]
    slower = [_judge(rng, 1 / 1.1).verdict for _ in range(60)]
    same = [_judge(rng, 1.0).verdict for _ in range(60)]
    assert faster.count("faster") >= 57 and faster.count("slower") == 0
    assert slower.count("slower") >= 57 and slower.count("faster") == 0
    assert same.count("faster") + same.count("slower") <= 2
    assert same.count("equivalent") >= 40


def test_text_names_the_faster_one_first():
    rng = np.random.default_rng(2)
    assert str(_judge(rng, 2.0)).startswith("a is faster than b: time ratio a/b 0.")
    assert str(_judge(rng, 0.5)).startswith("b is faster than a: time ratio a/b 1.99")


def test_all_pairs_are_corrected_together():
    rng = np.random.default_rng(3)
    samples = {name: rng.lognormal(0, 0.1, 12) for name in "abcd"}
    made = compare_all(samples, paired_ratio(samples["a"], samples["b"]))
    assert [(comparison.first, comparison.second) for comparison in made] == [*zip("aaabbc", "bcdcdd", strict=True)]
    raw = [signed_rank(samples[comparison.first], samples[comparison.second]) for comparison in made]
    assert [comparison.p for comparison in made] == holm(raw) and max(comparison.p for comparison in made) <= 1


@pytest.mark.parametrize("pairs", [1, 3, 10])
def test_rounds_needed(pairs):
    enough = rounds_needed(pairs)
    assert pairs * signed_rank([1.0 + i / 100 for i in range(enough)], [2.0] * enough) < 0.05
    fewer = signed_rank([1.0 + i / 100 for i in range(enough - 1)], [2.0] * (enough - 1))
    assert fewer is None or pairs * fewer >= 0.05


def test_bad_input():
    control = Interval(1.0, 0.9, 1.1, 10)
    for samples in ({"a": [1.0]}, {"a": [1.0], "b": [1.0, 2.0]}):
        with pytest.raises(InputError, match="same turns"):
            compare_all(samples, control)
    assert noise_floor(Interval(1.0, None, None, 3)) is None
    assert noise_floor(control) == pytest.approx(-math.log(0.9))
