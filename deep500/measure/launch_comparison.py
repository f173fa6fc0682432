"""Two groups of launches: how much slower is the second, with an interval that holds over launches.

Samples of one launch say nothing of the next one (see :mod:`deep500.measure.launches`), so two launches can lie 5 %
apart that ran the same code. From twelve launches on, on both sides, the interval is that of the shift of the
logarithms of the launches' medians (Hodges and Lehmann 1963) by the exact ranks of Mann and Whitney's test (Hollander,
Wolfe and Chicken 2014, section 4.3), if nothing shows that launches depend on those before them (:func:`dependence`):
they would be worth fewer than they are, and with fewer than twelve nobody can tell. Otherwise there is an interval only
with a *floor*: how far launches lie apart, declared or measured elsewhere. It is added to what the samples within the
launches leave open (Zou and Donner 2008, who add asymmetric intervals). Two to six launches show by Student's t if they
lie farther apart than that. Where there is more than one interval, the widest counts.

Launches that were measured in turns are pairs: :func:`paired_shift`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deep500.errors import InputError
from deep500.measure.comparison import rounds_needed
from deep500.measure.launches import launches_needed, over_launches
from deep500.measure.quantiles import Estimate
from deep500.measure.statistics import Interval, log_ratios

FEWEST_FOR_RANKS = 7
"""From this many launches on, on both sides, ranks of launches are part of an interval."""

FEWEST_ALONE, INDEPENDENT = 12, 0.2
"""From this many launches on ranks decide without a floor, if the p value of their dependence is not below this."""

MOST_EXACT = 10_000
"""With more differences between two groups the ranks of their interval come from the normal distribution."""


@dataclass(frozen=True)
class Floor:
    """The scatter between launches of the same work, beyond what their samples show.

    Attributes:
        sd: standard deviation of the logarithm of a launch's time: 0.02 is 2 %.
        freedom: degrees of freedom with which it was measured; infinite where it was declared.
        source: between what, and how it is known, in words.
    """

    sd: float
    freedom: float = math.inf
    source: str = "between launches, declared"

    def __post_init__(self) -> None:
        if not 0 < self.sd < 1 or not self.freedom >= 1:
            raise InputError(
                f"got a floor of {self.sd} with {self.freedom} degrees of freedom; expected a relative standard "
                "deviation between 0 and 1, such as 0.02, and 1 or more"
            )

    def __str__(self) -> str:
        return f"{100 * self.sd:.2g} % {self.source}"


@dataclass(frozen=True)
class LaunchComparison:
    """The comparison of two groups of launches.

    Attributes:
        ratio: the second's reported median over the first's, with an interval over launches if there is one; ``n`` is
            the number of launches on the smaller side.
        p: two-sided p value that there is no difference; None without an interval.
        basis: what both hold over, in words.
        reason: why there is no interval, in words; empty if there is one.
        test: what the p value is of; of several tests it is the largest.
    """

    ratio: Interval
    p: float | None
    basis: str
    reason: str = ""
    test: str = ""


Evidence = tuple[float, float, float, str, str]
"""Low end and high end of a log ratio, p value, what it holds over, and the test."""
RANKS, STUDENT, FLOORED = "Mann and Whitney's, of launches", "Student's t, of launches", "Student's t with the floor"


def compare_launches(
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    floor: Floor | None = None,
    medians: tuple[float, float] | None = None,
    processes: tuple[int, int] = (1, 1),
    level: float = 0.95,
    shared: bool = False,
) -> LaunchComparison:
    """Compare two groups of launches that were not measured in turns.

    Args:
        first, second: samples of every launch after its warm-up, in the order in which they were taken.
        floor: how far launches of the same work lie apart; without one, fewer than twelve launches, or some that depend
            on each other, show nothing.
        medians: what is reported as the median of either side; as :func:`over_launches` reports it if not given.
        processes: how many processes the launches of either side ran in: only those average the floor.
        level: of the interval.
        shared: whether the launches of a side share a process: without a floor they show nothing then.

    Raises:
        InputError: a side without launches, or samples that are no finite numbers.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> a, b = ([m * rng.normal(1, 0.02, 200) for m in k * rng.normal(1, 0.01, 12)] for k in (1.0, 1.1))
        >>> found = compare_launches(a, b)
        >>> 1.05 < found.ratio.low < found.ratio.median < found.ratio.high < 1.15, found.p < 0.001, found.basis
        (True, True, 'over 12 launches')
        >>> compare_launches(a[:1], b[:1]).reason
        'one launch each'
    """
    sides, fewest = (first, second), min(len(first), len(second))
    before, after = medians or (_median(first, level), _median(second, level))
    if not min(before, after, *(float(np.median(launch)) for side in sides for launch in side)) > 0:
        ratio = Interval(after / before if before else math.nan, None, None, fewest, level)
        return LaunchComparison(ratio, None, _words(sides), "times of 0: the clock is too coarse")
    logs = [np.log([np.median(launch) for launch in side]) for side in sides]
    evidence = [] if shared and floor is None else _own_evidence(logs, _words(sides), level, alone=floor is None)
    known = [over_launches(side, 0.5, level, differ_p=math.nan).estimate for side in sides] if floor else []
    if floor is not None and all(estimate.low is not None and estimate.low > 0 for estimate in known):
        outer = floor.sd * math.sqrt(1 / processes[0] + 1 / processes[1])
        ends = _floored(math.log(after / before), known, outer, floor.freedom, level)
        evidence.append((*ends, f"{_words(sides)}, {floor}", FLOORED))
    if not evidence:
        why = _open(sides, logs, shared) if floor is None else "too few samples within the launches"
        return LaunchComparison(Interval(after / before, None, None, fewest, level), None, _words(sides), why)
    return _widest(evidence, after / before, fewest, level)


def _median(side: Sequence[np.ndarray], level: float) -> float:
    """The median that :func:`over_launches` reports."""
    enough = len(side) >= launches_needed(level)
    return float(np.median([np.median(launch) for launch in side] if enough else np.concatenate(list(side))))


def _own_evidence(logs: Sequence[np.ndarray], words: str, level: float, alone: bool) -> list[Evidence]:
    """Return what the launches' medians show by themselves.

    Few launches of one run do not show what runs differ by: Student's t alone would call 68 % of pairs unlike that are
    not, with three launches 1 % apart and runs 3 % apart.
    """
    a, b = logs
    fewest = min(a.size, b.size)
    if fewest >= FEWEST_FOR_RANKS and not (alone and (fewest < FEWEST_ALONE or dependence(logs) < INDEPENDENT)):
        return [(*shift_interval(a, b, level), mann_whitney(a, b), words, RANKS)]
    if fewest > 1 and not alone:
        return [(*_student(a, b, level), f"{words}, Student's t", STUDENT)]
    return []


def _widest(evidences: Sequence[Evidence], ratio: float, launches: int, level: float) -> LaunchComparison:
    low, high, _, basis, _ = max(evidences, key=lambda evidence: evidence[1] - evidence[0])
    p = max(evidence[2] for evidence in evidences)
    # reported medians are not the middle of the launches' shifts: where they lie outside, the interval reaches them
    ends = min(math.exp(low), ratio), max(math.exp(high), ratio)
    return LaunchComparison(Interval(ratio, *ends, launches, level), p, basis, "", ", ".join(e[4] for e in evidences))


def shift_interval(first: np.ndarray, second: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of the shift from the first to the second, by the ranks of Mann and Whitney's test.

    Raises:
        InputError: too few values for the level (four on both sides for 95 %).

    Example:
        >>> shift_interval(np.arange(5.0), np.arange(5.0) + 10)
        (7.0, 13.0)
    """
    return _central(np.subtract.outer(second, first).ravel(), _mann_whitney_counts(first.size, second.size), level)


def paired_shift(first: Sequence[float], second: Sequence[float], level: float = 0.95) -> Interval:
    """Median of ``second[i] / first[i]`` of costs measured in turns, with the exact interval of signed ranks.

    The interval is the one that belongs to Wilcoxon's test (ranks of the means of all pairs of log ratios, Hollander,
    Wolfe and Chicken 2014, section 3.3). Unlike :func:`deep500.measure.paired_ratio` it assumes that log ratios scatter
    symmetrically, which turns in random order provide, and it needs fewer pairs: six for an interval of 95 %, and with
    eight it is two thirds as wide.

    Raises:
        InputError: not the same number of positive costs on both sides.

    Example:
        >>> paired_shift([1.0] * 8, [1.1, 1.2, 1.1, 1.0, 1.2, 1.1, 1.1, 1.1]).low > 1
        True
    """
    logs = log_ratios(first, second)
    middle = float(np.median(logs))
    if not has_paired_interval(logs.size, level):
        return Interval(math.exp(middle), None, None, logs.size, level)
    low, high = paired_difference(logs, level)
    return Interval(math.exp(middle), math.exp(min(low, middle)), math.exp(max(high, middle)), logs.size, level)


def has_paired_interval(pairs: int, level: float = 0.95) -> bool:
    """Whether so many pairs have an interval of signed ranks: six for 95 %."""
    return bool(2 * _signed_rank_counts(pairs)[0] <= 1 - level)


def paired_difference(differences: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of the shift of pairs by signed ranks, of the means of all two of their differences.

    Raises:
        InputError: too few pairs for the level (six for 95 %).

    Example:
        >>> paired_difference(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))
        (1.0, 6.0)
    """
    means = np.add.outer(differences, differences)[np.triu_indices(differences.size)] / 2
    return _central(means, _signed_rank_counts(differences.size), level)


def pairs_to_find(effect: float, scatter: float, power: float = 0.8, level: float = 0.95) -> int:
    """Return the number of pairs that Wilcoxon's test needs to find an effect.

    n = ((z_level + z_power) * scatter / log(1 + effect))^2 * pi / 3: that of the mean, by the efficiency of signed
    ranks for normal log ratios (Noether 1987), and never fewer than the test needs to show anything.

    Args:
        effect: relative difference, such as 0.03.
        scatter: standard deviation of the pairs' log ratios.
        power: how often it is to be found.
        level: of the interval that goes with the test.

    Raises:
        InputError: an effect or a scatter that is not positive.

    Example:
        >>> pairs_to_find(0.03, 0.05), pairs_to_find(0.03, 0.005)
        (24, 6)
    """
    from scipy.stats import norm

    if not effect > 0 or not scatter >= 0:
        raise InputError(f"got an effect of {effect} and a scatter of {scatter}; expected a positive and one from 0 on")
    quantiles = float(norm.ppf((1 + level) / 2) + norm.ppf(power))
    return max(rounds_needed(1), math.ceil((quantiles * scatter / math.log1p(effect)) ** 2 * math.pi / 3))


def dependence(groups: Sequence[np.ndarray]) -> float:
    """One-sided p value that no value depends on the one before it, by the ratio of von Neumann, of ranks.

    ``RVN = sum (R[i] - R[i+1])^2 / sum (R[i] - mean R)^2`` is about normal with mean 2 and the variance
    ``4 (n - 2) (5 n^2 - 2 n - 9) / (5 n (n + 1) (n - 1)^2)`` (Bartels 1982); groups are put together (Stouffer).

    Raises:
        InputError: a group of fewer than four values, of which any order is likely.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> dependence([rng.random(12), rng.random(12)]) > 0.2, dependence([np.arange(12.0)]) < 0.001
        (True, True)
    """
    from scipy.stats import norm, rankdata

    if not groups or min(group.size for group in groups) < 4:
        raise InputError(f"got groups of {[group.size for group in groups]} values; expected 4 or more in each")
    scores = []
    for group in groups:
        n, ranks = group.size, rankdata(group)
        squares = float(np.sum((ranks - ranks.mean()) ** 2))
        ratio = float(np.sum(np.diff(ranks) ** 2)) / squares if squares else 2.0
        variance = 4 * (n - 2) * (5 * n**2 - 2 * n - 9) / (5 * n * (n + 1) * (n - 1) ** 2)
        scores.append((ratio - 2) / math.sqrt(variance))
    return float(norm.cdf(sum(scores) / math.sqrt(len(scores))))


def _open(sides: Sequence[Sequence[np.ndarray]], logs: Sequence[np.ndarray], shared: bool) -> str:
    """Why launches alone decide nothing."""
    if min(map(len, sides)) < FEWEST_ALONE:
        return _few(sides)
    if shared:
        return "the launches of a side share a process"
    return f"launches depend on those before them, by von Neumann's ratio with p {dependence(logs):.2g}"


def _words(sides: Sequence[Sequence[np.ndarray]]) -> str:
    counts = sorted({len(side) for side in sides})
    return "over " + " and ".join("one launch" if count == 1 else f"{count} launches" for count in counts)


def _few(sides: Sequence[Sequence[np.ndarray]]) -> str:
    counts = [len(side) for side in sides]
    words = ["one launch" if count == 1 else f"{count} launches" for count in counts]
    return f"{words[0]} each" if counts[0] == counts[1] else f"{words[0]} and {words[1]}"


def _student(first: np.ndarray, second: np.ndarray, level: float) -> tuple[float, float, float]:
    """Student's t for two groups of equal variance; Welch's, with two degrees of freedom, would show nothing."""
    from scipy.stats import t

    shift, freedom = float(second.mean() - first.mean()), first.size + second.size - 2
    squares = float(np.var(first) * first.size + np.var(second) * second.size)
    error = math.sqrt(squares / freedom * (1 / first.size + 1 / second.size))
    if not error:  # launches that do not differ at all
        return shift, shift, 0.0 if shift else 1.0
    reach = float(t.ppf((1 + level) / 2, freedom)) * error
    return shift - reach, shift + reach, float(2 * t.sf(abs(shift) / error, freedom))


def _floored(
    shift: float, known: Sequence[Estimate], outer: float, freedom: float, level: float
) -> tuple[float, float, float]:
    """Interval and p value of a shift between two estimates, beside a standard deviation from elsewhere."""
    from scipy.stats import t

    ends = np.array([(estimate.value, estimate.low, estimate.high) for estimate in known], np.float64)
    (a, below_a, above_a), (b, below_b, above_b) = np.log(ends).tolist()
    reach = float(t.ppf((1 + level) / 2, freedom))
    low = shift - math.sqrt((b - below_b) ** 2 + (above_a - a) ** 2 + (reach * outer) ** 2)
    high = shift + math.sqrt((above_b - b) ** 2 + (a - below_a) ** 2 + (reach * outer) ** 2)
    error = (shift - low if shift > 0 else high - shift) / reach
    return low, high, float(2 * t.sf(abs(shift) / error, freedom))


def mann_whitney(first: np.ndarray, second: np.ndarray) -> float:
    """Two-sided p value of Mann and Whitney's test."""
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(first, second).pvalue)


def _central(values: np.ndarray, probabilities: np.ndarray, level: float) -> tuple[float, float]:
    """The ordered values between the ranks that leave at most (1 - level) / 2 of a symmetric statistic on each side."""
    tail = np.flatnonzero(np.cumsum(probabilities) <= (1 - level) / 2 * (1 + 1e-12))
    if not tail.size:
        raise InputError(f"got {values.size} differences; expected enough for an interval of {level:.0%}: measure more")
    ordered, cut = np.sort(values), int(tail[-1])
    return float(ordered[cut]), float(ordered[ordered.size - 1 - cut])


@functools.cache
def _mann_whitney_counts(m: int, n: int) -> np.ndarray:
    """Probabilities of Mann and Whitney's U from 0 to m n where there is no difference.

    The largest of all values belongs to the first with probability m / (m + n), and then exceeds all of the second.
    Where m n > 10,000 they are those of the normal distribution with the same mean and variance.
    """
    if m * n > MOST_EXACT:
        from scipy.stats import norm

        steps = (np.arange(m * n + 2) - 0.5 - m * n / 2) / math.sqrt(m * n * (m + n + 1) / 12)
        return np.diff(norm.cdf(steps))
    row = [np.ones(1)] * (n + 1)  # of i and 0, 1, ... n values
    for i in range(1, m + 1):
        below, row = row, [np.ones(1)]
        for j in range(1, n + 1):
            whole = np.zeros(i * j + 1)
            whole[j:] += i / (i + j) * below[j]
            whole[: i * (j - 1) + 1] += j / (i + j) * row[j - 1]
            row.append(whole)
    return row[n]


@functools.cache
def _signed_rank_counts(n: int) -> np.ndarray:
    """Probabilities of the sum of Wilcoxon's positive ranks from 0 to n (n + 1) / 2 where there is no difference."""
    whole = np.ones(1)
    for rank in range(1, n + 1):
        whole = np.concatenate([whole, np.zeros(rank)]) / 2 + np.concatenate([np.zeros(rank), whole]) / 2
    return whole
