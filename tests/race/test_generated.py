"""Scores and words about races that hypothesis makes up, recomputed from their trials by other means."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from deep500.measure.comparison import EQUIVALENT, FASTER, MARGIN, SLOWER, UNRESOLVED, Comparison
from deep500.race.judging import PairOfSubmissions, judge
from deep500.race.scores import R_MAX, StudyTable, TrialTime, fastest, first_again, leave_one_out, scores

FEW = (1.0, 1.5, 2.0, 3.0, 4.0, 4.5, 9.0)
"""Times that are often equal, and ratios at the ends of what counts."""


@st.composite
def recorded(draw: st.DrawFn) -> tuple[list[TrialTime], tuple[list[str], list[str], int]]:
    """The trials of a race in any state, and its field: ties, misses, one seed, one workload, trials to come."""
    submissions = list("abcd"[: draw(st.integers(2, 4))])
    workloads, studies = list("vwxyz"[: draw(st.integers(1, 5))]), draw(st.integers(1, 3))
    kinds = [st.sampled_from(FEW), st.floats(0.5, 5.0), st.just(math.inf)]
    time = st.one_of(*kinds[: draw(st.integers(1, 3))], *([st.floats(0.9, 1.1)] * draw(st.integers(0, 3))))
    places = itertools.product(submissions, workloads, range(studies), range(draw(st.integers(1, 2))))
    missing = draw(st.booleans())
    trials = [TrialTime(*place, draw(time)) for place in places if not (missing and draw(st.integers(0, 9)) == 0)]
    return trials, (submissions, workloads, studies)


def medians_of(trials: list[TrialTime], field: tuple) -> dict[tuple[str, str], float]:
    """By definition: the middle of the fastest trials of all studies that were made."""
    medians = {}
    for submission, workload in itertools.product(*field[:2]):
        best = [
            min(times)
            for study in range(field[2])
            if (
                times := [
                    t.seconds for t in trials if (t.submission, t.workload, t.study) == (submission, workload, study)
                ]
            )
        ]
        best.sort()
        half = len(best) // 2
        middle = best[half - (len(best) % 2 == 0) : half + 1]
        medians[submission, workload] = sum(middle) / len(middle) if middle else math.inf
    return medians


def integral_of_profile(mine: list[float]) -> float:
    """The mean height of a profile from 1 to R_MAX, summed up step by step from one ratio to the next."""
    ends = sorted({1.0, R_MAX, *(ratio for ratio in mine if ratio <= R_MAX)})
    steps = itertools.pairwise(ends)
    heights = [(high - low) * sum(ratio <= low for ratio in mine) / len(mine) for low, high in steps]
    return sum(heights) / (R_MAX - 1)


@settings(max_examples=60, deadline=None)
@given(recorded())
def test_scores_are_integrals_of_profiles(race) -> None:
    trials, field = race
    table, medians = fastest(trials, field=field), medians_of(trials, field)
    best = {w: min(medians[s, w] for s in field[0]) for w in field[1]}
    ratios = {
        s: [medians[s, w] / best[w] if medians[s, w] < math.inf else math.inf for w in field[1]] for s in field[0]
    }
    assert scores(table) == pytest.approx(
        {name: integral_of_profile(ratio) for name, ratio in ratios.items()}, abs=1e-12
    )
    for without, values in leave_one_out(table).items():
        rest = {s: [r for r, w in zip(ratio, field[1], strict=True) if w != without] for s, ratio in ratios.items()}
        assert values == pytest.approx({name: integral_of_profile(ratio) for name, ratio in rest.items()}, abs=1e-12)
    again = first_again(table, np.random.default_rng(0), draws=50, workloads=True)
    assert sum(again.values()) <= 1 + 1e-9
    reached = dict(zip(field[0], np.isfinite(table.times).any(axis=(1, 2)), strict=True))
    assert not any(again[name] for name in again if not reached[name]), "nobody is first without a target"


def pairs_of(table: StudyTable, a: int, b: int) -> list[list[float]]:
    """Log ratios of studies by workload; infinite where one of a pair missed, which is all that counts of its time."""
    medians, rows = np.array([[median(cell) for cell in row] for row in table.times]), []
    for workload in range(len(table.workloads)):
        end, rows_here = R_MAX * medians[:, workload].min(), list[float]()
        for first, second in zip(table.times[a, workload], table.times[b, workload], strict=True):
            reached = [bool(time <= end and math.isfinite(time)) for time in (first, second)]
            if any(reached) and not (math.isnan(first) or math.isnan(second)):
                rows_here.append(math.log(first / second) if all(reached) else math.inf * (reached[1] - reached[0]))
        rows.append(rows_here)
    return [row for row in rows if row]


def median(times: np.ndarray) -> float:
    known = sorted(time for time in times if not math.isnan(time))
    half = len(known) // 2
    return (known[half] + known[-half - 1]) / 2 if known else math.inf


def by_enumeration(logs: list[float]) -> float:
    """Signed ranks over all signs there could be."""
    logs = [value for value in logs if abs(value) > 1e-11]
    ranks = stats.rankdata(np.round(np.abs(logs), 12)) if logs else np.zeros(0)
    sums = np.array(list(itertools.product((0, 1), repeat=len(logs))), float).reshape(2 ** len(logs), len(logs)) @ ranks
    above = sum(rank for rank, value in zip(ranks, logs, strict=True) if value > 0)
    return min(1.0, 2 * min((sums <= above + 1e-9).mean(), (sums >= above - 1e-9).mean()))


def by_regression(rows: list[list[float]]) -> tuple[float, float, tuple[float, float]] | None:
    """The mean of the workloads' levels, its p value and interval; None without scatter to judge by."""
    values, count = np.concatenate(rows), len(rows)
    levels = np.repeat(np.eye(count), [len(row) for row in rows], axis=0)
    if len(values) == count or max(np.ptp(row) for row in rows) < 1e-9:
        return None
    test = sm.OLS(values, levels).fit().t_test(np.full((1, count), 1 / count))
    low, high = test.conf_int()[0]
    return float(np.squeeze(test.effect)), float(np.squeeze(test.pvalue)), (low, high)


@settings(max_examples=40, deadline=None)
@given(recorded())
def test_words_follow_from_tests_that_others_compute(race) -> None:
    trials, field = race
    table = fastest(trials, field=field)
    judged, places = judge(table), list(itertools.combinations(range(len(field[0])), 2))
    alone = [judge_alone(pairs_of(table, a, b), pair) for (a, b), pair in zip(places, judged, strict=True)]
    for question in ("here", "elsewhere"):
        known = [place for place, answers in enumerate(alone) if answers[question] is not None]
        if any(alone[place][question] != alone[place][question] for place in known):
            continue  # no scatter at all: nobody else has a p value
        corrected = multipletests([alone[place][question] for place in known], method="holm")[1] if known else []
        assert [getattr(judged[place], question).p for place in known] == pytest.approx(list(corrected), abs=1e-6)
    for pair in judged:
        for answer in (pair.here, pair.elsewhere):
            check_word(answer)


def judge_alone(rows: list[list[float]], pair: PairOfSubmissions) -> dict[str, float | None]:
    """Uncorrected p values of both questions; NaN where equal differences leave no scatter."""
    every = [value for row in rows for value in row]
    assert pair.workloads == len(rows) and pair.censored == sum(map(math.isinf, every))
    if not every:
        assert pair.here.p is None and pair.elsewhere.p is None and not pair.here.ratio.n
        return {"here": None, "elsewhere": None}
    if pair.censored:
        return {
            "here": by_enumeration(every),
            "elsewhere": by_enumeration([float(np.median(np.clip(row, -300, 300))) for row in rows]),
        }
    means = [float(np.mean(row)) for row in rows]
    assert math.log(pair.here.ratio.median) == pytest.approx(np.mean(means), abs=1e-9)
    fit = by_regression(rows)
    if fit is not None:
        ends = math.log(pair.here.ratio.low or 0), math.log(pair.here.ratio.high or 0)
        assert (math.log(pair.here.ratio.median), *ends) == pytest.approx((fit[0], *fit[2]), abs=1e-6)
    flat = len(means) > 1 and np.ptp(means) < 1e-9
    elsewhere = None if len(means) < 2 else math.nan if flat else float(stats.ttest_1samp(means, 0).pvalue)
    assert (pair.here.p is None) == (len(every) == len(rows)) and (pair.elsewhere.p is None) == (len(means) < 2)
    here = None if len(every) == len(rows) else math.nan if fit is None else fit[1]
    return {"here": here, "elsewhere": elsewhere}


def check_word(answer: Comparison) -> None:
    """No word without its condition, and no condition without its word."""
    low, high = answer.ratio.low, answer.ratio.high
    if low is None or high is None or answer.p is None:
        assert answer.verdict == UNRESOLVED
        return
    same = -math.log1p(MARGIN) <= math.log(low) and math.log(high) <= math.log1p(MARGIN)
    beyond = FASTER if high < 1 else SLOWER if low > 1 else UNRESOLVED
    assert answer.verdict == (EQUIVALENT if same else beyond if answer.p < 0.05 else UNRESOLVED)


@settings(max_examples=40, deadline=None)
@given(recorded(), st.randoms(use_true_random=False))
def test_who_is_named_first_does_not_matter(race, random) -> None:
    trials, (submissions, *rest) = race
    turned = list(submissions)
    random.shuffle(turned)
    answers = {}
    for names in (submissions, turned):
        for pair in judge(fastest(trials, field=(names, *rest))):
            key = tuple(sorted((pair.here.first, pair.here.second)))
            answers.setdefault(key, []).append(pair if (pair.here.first, pair.here.second) == key else mirrored(pair))
    for first, second in answers.values():
        for question in ("here", "elsewhere"):
            one, other = getattr(first, question), getattr(second, question)
            assert one.verdict == other.verdict and one.p == pytest.approx(other.p, abs=1e-9), question
            ends = [(answer.ratio.low, answer.ratio.median, answer.ratio.high) for answer in (one, other)]
            for mine, others in zip(*ends, strict=True):
                assert mine is others or mine == pytest.approx(others, rel=1e-6, nan_ok=True), question


def mirrored(pair: PairOfSubmissions) -> PairOfSubmissions:
    """The same said of the second and the first."""
    from dataclasses import replace

    def turned(answer: Comparison) -> Comparison:
        ratio, words = answer.ratio, {FASTER: SLOWER, SLOWER: FASTER}
        low, high = (None if end is None else 1 / end for end in (ratio.high, ratio.low))
        other = replace(ratio, median=1 / ratio.median, low=low, high=high)
        return Comparison(answer.second, answer.first, other, answer.p, words.get(answer.verdict, answer.verdict))

    return replace(pair, here=turned(pair.here), elsewhere=turned(pair.elsewhere))
