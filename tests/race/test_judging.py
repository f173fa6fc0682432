"""Words about pairs of submissions: how often they are wrong, how often they find what is there, and SciPy's t."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from deep500.errors import InputError
from deep500.race.judging import PairOfSubmissions, detectable, judge, noise
from deep500.race.scores import StudyTable


def table(times: np.ndarray) -> StudyTable:
    return StudyTable(tuple("abcdefgh"[: len(times)]), tuple("stuvwxyz"[: times.shape[1]]), times)


def race(rng: np.random.Generator, gain: float, cv: float, shape=(2, 5, 3), differ: float = 0.0) -> StudyTable:
    """Times of equal submissions but the first, which is ``gain`` times faster."""
    logs = rng.normal(0, cv, shape) + rng.normal(0, 0.2, (1, *shape[1:]))
    logs[0] -= math.log(gain) + rng.normal(0, differ, (shape[1], 1))
    return table(np.exp(logs))


def words(gain: float, cv: float, races: int, **more) -> dict[str, float]:
    """Shares of races in which the first pair got a word, for these workloads and elsewhere."""
    rng, counts = np.random.default_rng(35), dict.fromkeys(("here", "elsewhere"), 0)
    for _ in range(races):
        pair = judge(race(rng, gain, cv, **more))[0]
        for question in counts:
            counts[question] += getattr(pair, question).verdict in ("faster", "slower")
    return {question: count / races for question, count in counts.items()}


def test_equals_are_rarely_told_apart_and_fifteen_percent_mostly() -> None:
    """150 races each; 400 and more in tests/benchmarks."""
    assert max(words(1.0, 0.1, 150).values()) <= 0.08
    assert words(1.15, 0.1, 150)["here"] >= 0.85


def test_both_questions_are_students_t() -> None:
    one = race(np.random.default_rng(1), 1.1, 0.1)
    pair = judge(one)[0]
    logs = np.log(one.times)
    means = (logs[0] - logs[1]).mean(axis=1)
    assert pair.elsewhere.p == pytest.approx(stats.ttest_1samp(means, 0).pvalue, rel=1e-9)
    interval = stats.ttest_1samp(means, 0).confidence_interval()
    ends = np.exp([interval.low, interval.high])
    assert (pair.elsewhere.ratio.low, pair.elsewhere.ratio.high) == pytest.approx(tuple(ends))
    single = one.only(workloads=["s"])
    logs = np.log(single.times)[:, 0]
    assert judge(single)[0].here.p == pytest.approx(stats.ttest_rel(*logs).pvalue, rel=1e-9)
    assert judge(single)[0].elsewhere.verdict == "unresolved" and judge(single)[0].elsewhere.p is None


def test_pairs_are_corrected_together() -> None:
    one = race(np.random.default_rng(2), 1.2, 0.1, shape=(4, 5, 3))
    pairs = judge(one)
    alone = [judge(one.only([pair.here.first, pair.here.second]))[0].here.p for pair in pairs]
    rejected, corrected, *_ = multipletests(alone, method="holm")
    assert [pair.here.p for pair in pairs] == pytest.approx(corrected.tolist(), rel=1e-9)
    assert [pair.here.verdict != "unresolved" for pair in pairs] == rejected.tolist() and 0 < sum(rejected) < 6


def test_misses_are_ranks_never_numbers() -> None:
    """However far beyond the others a miss is said to be, the answer is the same; who misses all is slower."""
    times = race(np.random.default_rng(3), 1.0, 0.05).times
    times[1] = np.inf
    pair = judge(table(times))[0]
    assert pair.here.verdict == "faster" and pair.censored == 15 and pair.here.ratio.high < 1e-100
    assert pair.elsewhere.verdict == "unresolved" and pair.elsewhere.p == 1 / 16, "five workloads are too few for ranks"
    seven = np.ones((2, 7, 1)) * [[[1.0]], [[2.0]]] * np.arange(1, 8)[None, :, None] ** 0.01
    seven[1, 6] = np.inf
    ranks = judge(table(seven))[0].elsewhere
    assert (ranks.verdict, ranks.p) == ("faster", stats.wilcoxon(np.arange(1, 8)).pvalue)
    times = race(np.random.default_rng(3), 1.0, 0.05).times
    times[1, 0, 0] = np.inf
    missed = judge(table(times))[0]
    times[1, 0, 0] = 1e9  # beyond four times the best: a miss as well
    assert judge(table(times))[0] == missed and missed.censored == 1


def test_misses_of_both_say_nothing() -> None:
    times = race(np.random.default_rng(4), 1.3, 0.05, shape=(2, 4, 3)).times
    without = judge(table(times[:, 1:]))[0]
    times[:, 0] = np.inf
    assert judge(table(times))[0] == without and without.workloads == 3
    nothing = judge(table(np.full((2, 2, 3), np.inf)))[0]
    assert isinstance(nothing, PairOfSubmissions) and nothing.here.verdict == "unresolved" and nothing.here.p is None
    alone = judge(table(times[:, 1:, :1]))[0]
    assert alone.here.p is None and alone.here.ratio.low is None, "one study has no scatter"


def test_misses_do_not_resolve_equals() -> None:
    rng, resolved = np.random.default_rng(5), 0
    for _ in range(100):
        times = race(rng, 1.0, 0.2).times
        times[rng.random(times.shape) < 0.2] = np.inf
        resolved += judge(table(times))[0].here.verdict != "unresolved"
    assert resolved <= 10


def test_where_workloads_disagree_only_the_second_question_is_about_others() -> None:
    """True effects that differ by 15 % between workloads: the first question answers for these workloads alone."""
    shares = words(1.0, 0.05, 150, differ=0.15)
    assert shares["here"] > 0.3 and shares["elsewhere"] <= 0.1


def test_noise_is_that_of_pairs() -> None:
    rng = np.random.default_rng(6)
    assert noise(race(rng, 1.5, 0.1, shape=(4, 50, 20))) == pytest.approx(0.1, rel=0.05)
    times = race(rng, 1.5, 0.1).times
    times[0, 0, 0] = np.inf
    assert noise(table(times)) == pytest.approx(noise(table(times[:, 1:])))
    assert noise(table(times[:1])) is None and noise(table(times[:, :, :1])) is None


def test_plan_against_simulation() -> None:
    plan = detectable(0.1, (2, 5, 3))
    assert words(plan.here, 0.1, 300)["here"] == pytest.approx(0.8, abs=0.08)
    far = detectable(0.1, (2, 5, 3), differ=0.15)
    assert words(far.elsewhere, 0.1, 300, differ=0.15)["elsewhere"] == pytest.approx(0.8, abs=0.08)
    assert detectable(0.1, (4, 5, 3)).here > plan.here > detectable(0.1, (2, 5, 6)).here
    assert detectable(0.1, (2, 5, 1)).here == math.inf == detectable(0.1, (2, 1, 3)).elsewhere
    with pytest.raises(InputError, match="got 1 submissions"):
        detectable(0.1, (1, 5, 3))
