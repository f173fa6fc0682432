"""Who is faster, and how sure is that? Two questions about each pair of submissions, judged apart.

*For these workloads*: would other seeds say the same? Studies of the same number share seeds, so log ratios of their
times are pairs; Student's t on their mean over workloads, the variance pooled within workloads. *Would another workload
agree?* Student's t on the workloads' means. A study that misses its target has no time, only "not before the budget":
where one of a pair does, signed ranks take the place of t, with such pairs at the end of the order; where both do, the
pair says nothing. Both are corrected over all pairs of submissions (Holm), and
:func:`deep500.measure.comparison.verdict` alone makes words of them.

A percentile bootstrap of three studies or five workloads is no interval (too narrow over workloads, where it "resolves"
equals in one of six races, too wide over both), so scores have none; see :func:`deep500.race.scores.first_again`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from deep500.errors import InputError
from deep500.measure.comparison import Comparison, holm, verdict
from deep500.measure.launch_comparison import paired_shift
from deep500.measure.statistics import Interval
from deep500.race.scores import R_MAX, StudyTable

LEVEL = 0.95
BEYOND = 300.0
"""The log ratio of a pair of which one never reached the target: beyond any that is measured; only ranks see it."""


@dataclass(frozen=True)
class PairOfSubmissions:
    """The judgement of two submissions.

    Attributes:
        here: for these workloads.
        elsewhere: for workloads like these.
        censored: pairs of studies of which one missed the target; with some, ranks decide.
        workloads: how many said anything: on the others both always miss.
    """

    here: Comparison
    elsewhere: Comparison
    censored: int
    workloads: int


def judge(table: StudyTable, r_max: float = R_MAX, alpha: float = 1 - LEVEL) -> list[PairOfSubmissions]:
    """Judge every pair of submissions, in the order of the table.

    Args:
        table: of a race; a study beyond ``r_max`` times the best median is a miss, as in the score.
        r_max: see :meth:`~deep500.race.scores.StudyTable.capped`.
        alpha: level of each of the two questions over all pairs.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> times = np.exp(rng.normal(0, 0.1, (2, 5, 3))) * [[[1.0]], [[1.4]]]
        >>> pair, = judge(StudyTable(("a", "b"), tuple("vwxyz"), times))
        >>> pair.here.verdict, pair.elsewhere.verdict
        ('faster', 'faster')
    """
    with np.errstate(divide="ignore"):
        logs = np.log(table.capped(r_max).times)
    pairs = list(itertools.combinations(range(len(table.submissions)), 2))
    evidence = [_evidence(logs[a], logs[b]) for a, b in pairs]
    corrected = [holm([answers[question][1] for answers, _, _ in evidence]) for question in (0, 1)]
    judged = []
    for number, (a, b) in enumerate(pairs):
        answers, censored, telling = evidence[number]
        here, elsewhere = (
            Comparison(
                table.submissions[a],
                table.submissions[b],
                ratio,
                p[number],
                verdict(ratio, p[number], 0.0, alpha=alpha),
            )
            for (ratio, _), p in zip(answers, corrected, strict=True)
        )
        judged.append(PairOfSubmissions(here, elsewhere, censored, telling))
    return judged


Answer = tuple[Interval, float | None]
"""A ratio with its interval, and an uncorrected p value."""


def _evidence(first: np.ndarray, second: np.ndarray) -> tuple[tuple[Answer, Answer], int, int]:
    """Answers to both questions about logs (workload, study), the number of censored pairs and of telling workloads."""
    differences = _pairs(first, second)
    telling = [workload for workload in differences if workload.size]
    censored = sum(int((np.abs(workload) == BEYOND).sum()) for workload in telling)
    if not telling:
        nothing = (Interval(math.nan, None, None, 0, LEVEL), None)
        return (nothing, nothing), 0, 0
    if censored:
        here, elsewhere = np.concatenate(telling), np.array([np.median(workload) for workload in telling])
        return (_by_ranks(here), _by_ranks(elsewhere)), censored, len(telling)
    means = np.array([workload.mean() for workload in telling])
    squares = sum(float(((workload - workload.mean()) ** 2).sum()) for workload in telling)
    freedom = sum(workload.size - 1 for workload in telling)
    share = sum(1 / workload.size for workload in telling) / means.size**2
    count = sum(workload.size for workload in telling)
    within = _by_t(float(means.mean()), squares * share / freedom if freedom else None, freedom, count)
    between = float(np.var(means, ddof=1) / means.size) if means.size > 1 else None
    return (within, _by_t(float(means.mean()), between, means.size - 1, means.size)), 0, len(telling)


def _pairs(first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
    """Log ratios of each workload's pairs; those that say nothing (both miss, or one was not made) are left out."""
    with np.errstate(invalid="ignore"):
        ratio = np.clip(first - second, -BEYOND, BEYOND)
    return [workload[~np.isnan(workload)] for workload in ratio]  # infinite less infinite is NaN


def _by_t(shift: float, variance: float | None, freedom: int, n: int) -> Answer:
    from scipy.stats import t

    if variance is None:
        return Interval(math.exp(shift), None, None, n, LEVEL), None
    error = math.sqrt(variance)
    p = float(2 * t.sf(abs(shift) / error, freedom)) if error else float(not shift)
    reach = float(t.ppf((1 + LEVEL) / 2, freedom)) * error
    return Interval(math.exp(shift), math.exp(shift - reach), math.exp(shift + reach), n, LEVEL), p


def _by_ranks(logs: np.ndarray) -> Answer:
    return paired_shift([1.0] * logs.size, np.exp(logs).tolist(), LEVEL), _signed_rank(logs)


def _signed_rank(logs: np.ndarray) -> float:
    """The exact two-sided p value of Wilcoxon's signed ranks, ties sharing theirs: misses are many ties.

    Equal times speak for neither, and are left out; ratios are equal that differ by rounding.
    """
    from scipy.stats import rankdata

    logs = logs[logs.round(12) != 0]
    ranks = np.rint(2 * rankdata(np.abs(logs).round(12))).astype(int)
    chances = np.ones(1)  # of each sum of doubled ranks, every sign as likely as the other
    for rank in ranks:
        chances = (np.concatenate([chances, np.zeros(rank)]) + np.concatenate([np.zeros(rank), chances])) / 2
    above = int(ranks[logs > 0].sum())
    return min(1.0, 2 * float(min(chances[: above + 1].sum(), chances[above:].sum())))


def noise(table: StudyTable) -> float | None:
    """Return the standard deviation of a study's log time beside the other submissions' of the same seeds (0.1: 10 %).

    What all submissions share in a study (its seeds, the machine at that time) is taken out, as pairs take it out.
    Pooled over workloads, on each over the submissions that reached its target in all studies; None where no two did.

    Example:
        >>> round(noise(StudyTable(("a", "b"), ("w",), np.array([[[1.0, 1.2]], [[2.0, 2.0]]]))), 3)
        0.091
    """
    squares, freedom = 0.0, 0
    for times in table.times.transpose(1, 0, 2):
        logs = np.log(times[np.isfinite(times).all(axis=1)])
        if len(logs) > 1:
            rest = logs - logs.mean(axis=1, keepdims=True) - logs.mean(axis=0) + logs.mean()
            squares += float((rest**2).sum())
            freedom += (logs.shape[0] - 1) * (logs.shape[1] - 1)
    return float(np.sqrt(squares / freedom)) if freedom else None


@dataclass(frozen=True)
class RacePlan:
    """The smallest ratios that a race finds with a given power.

    Attributes:
        noise: standard deviation of a study's log time, see :func:`noise`.
        here: ratio for these workloads; infinite where no ratio is found.
        elsewhere: ratio for workloads like these.
    """

    noise: float
    here: float
    elsewhere: float


def detectable(
    noise: float, shape: tuple[int, int, int], *, differ: float = 0.15, power: float = 0.8, alpha: float = 1 - LEVEL
) -> RacePlan:
    """Return what a race can find: the ratio of times of two submissions that is found with ``power``.

    t with noise sqrt(2 / (workloads studies)) as its error, compared with ``alpha`` over the number of pairs of
    submissions: the first step of Holm's correction, which the pair that differs most must pass.

    Args:
        noise: standard deviation of a study's log time.
        shape: numbers of submissions, workloads and studies.
        differ: standard deviation of the true log ratio from workload to workload, for the second question.
        power: how often it is to be found.
        alpha: level over all pairs.

    Raises:
        InputError: fewer than two submissions, or a noise that is not positive.

    Example:
        >>> plan = detectable(0.10, (2, 5, 3))
        >>> round(plan.here, 3), round(plan.elsewhere, 2)
        (1.12, 1.33)
    """
    submissions, workloads, studies = shape
    if submissions < 2 or workloads < 1 or studies < 1 or not noise > 0:
        raise InputError(
            f"got {submissions} submissions, {workloads} workloads, {studies} studies and noise {noise:g}; expected at "
            "least 2, 1, 1 and a positive number: nothing can be planned without"
        )
    level = alpha / math.comb(submissions, 2)
    within = noise * math.sqrt(2 / (workloads * studies))
    between = math.sqrt((differ**2 + 2 * noise**2 / studies) / workloads)
    here = _smallest_ratio(within, workloads * (studies - 1), level, power)
    return RacePlan(noise, here, _smallest_ratio(between, workloads - 1, level, power))


def _smallest_ratio(error: float, freedom: int, level: float, power: float) -> float:
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if freedom < 1:
        return math.inf
    beyond = float(t.isf(level / 2, freedom))
    shift = brentq(lambda shift: float(nct.sf(beyond, freedom, shift)) - power, 1e-6, 10 * beyond + 10)
    return math.exp(shift * error)
