"""The comparison of systems, "faster" said only with evidence: paired log ratios, Wilcoxon's test, Holm's correction.

Samples come in pairs that were measured in turns, so that drift of the machine hits both. The words come from
:func:`verdict` alone. They are judged against the *noise floor*, which an A/A control measures: the same system twice,
in two processes, within the same turns. What is not farther apart than the control is not called a difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deep500.errors import InputError
from deep500.measure.statistics import Interval, paired_ratio

FASTER, SLOWER, EQUIVALENT, UNRESOLVED = "faster", "slower", "equivalent", "unresolved"

MARGIN = 0.02
"""The smallest effect of interest: ratios from 1/(1 + MARGIN) to 1 + MARGIN are the same for all practical purposes."""


@dataclass(frozen=True)
class Comparison:
    """Two systems: the median of ``first / second`` with its interval, the corrected p value and what follows.

    Attributes:
        ratio: cost of the first over that of the second; below 1 the first is faster.
        p: of Wilcoxon's signed-rank test on the log ratios, Holm-corrected over all pairs compared together; None where
            there are too few pairs.
        verdict: what the first is, compared with the second: ``faster``, ``slower``, ``equivalent`` or ``unresolved``.
    """

    first: str
    second: str
    ratio: Interval
    p: float | None
    verdict: str

    def __str__(self) -> str:
        p = "not tested" if self.p is None else f"p={self.p:.2g}"
        ends = "" if self.ratio.low is None else f" (95% CI {self.ratio.low:.3f}-{self.ratio.high:.3f}, {p})"
        known = {
            FASTER: f"{self.first} is faster than {self.second}",
            SLOWER: f"{self.second} is faster than {self.first}",
            EQUIVALENT: f"{self.first} and {self.second} are equivalent",
        }
        words = known.get(self.verdict, f"{self.first} or {self.second}: unresolved")
        return f"{words}: time ratio {self.first}/{self.second} {self.ratio.median:.3f}{ends}"


def verdict(ratio: Interval, p: float | None, noise: float | None, margin: float = MARGIN, alpha: float = 0.05) -> str:
    """The one place where a comparison turns into a word.

    * ``equivalent``: the whole interval lies within the margin, and so does the noise floor.
    * ``faster``, ``slower``: p < alpha, and the whole interval lies beyond 1 by more than the noise floor.
    * ``unresolved``: everything else, above all too few pairs or a control that was not measured.

    Args:
        ratio: of costs, see :class:`Comparison`.
        p: corrected p value.
        noise: :func:`noise_floor` of the A/A control, None if it has none.
        margin: smallest relative difference of interest.
        alpha: level of the test.

    Example:
        >>> verdict(Interval(0.8, 0.7, 0.9, 20), p=0.001, noise=0.01)
        'faster'
    """
    if ratio.low is None or ratio.high is None or noise is None:
        return UNRESOLVED
    low, high, same = math.log(ratio.low), math.log(ratio.high), math.log1p(margin)
    # equivalence first: a difference can be significant and yet smaller than the margin
    if -same <= low and high <= same and noise <= same:
        return EQUIVALENT
    if p is not None and p < alpha and (high < -noise or low > noise):
        return FASTER if high < 0 else SLOWER
    return UNRESOLVED


def noise_floor(control: Interval) -> float | None:
    """Return how far from 1 the interval of an A/A control reaches, as a log ratio; None where there is no interval."""
    if control.low is None or control.high is None:
        return None
    return max(abs(math.log(control.low)), abs(math.log(control.high)))


def signed_rank(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float | None:
    """Two-sided p value of Wilcoxon's signed-rank test on ``log(a / b)``; None with fewer than six pairs."""
    logs = np.log(np.asarray(a, np.float64)) - np.log(np.asarray(b, np.float64))
    if logs.size < 6:
        return None
    if not logs.any():
        return 1.0  # the test is undefined where nothing differs
    from scipy.stats import wilcoxon

    return float(wilcoxon(logs, zero_method="pratt" if (logs == 0).any() else "wilcox").pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction (Holm 1979), in the order given; what was not tested (None) does not count.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    tested = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for done, (p, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - done) * p))
        corrected[place] = largest
    return corrected


def rounds_needed(pairs: int, alpha: float = 0.05) -> int:
    """Fewest turns with which Wilcoxon's test (smallest p: 2^(1 - n)) can find a difference after Holm's correction.

    Example:
        >>> rounds_needed(1), rounds_needed(10)
        (6, 9)
    """
    return max(6, math.floor(1 + math.log2(pairs / alpha)) + 1)


def compare_all(
    samples: dict[str, Sequence[float]], control: Interval, margin: float = MARGIN, alpha: float = 0.05
) -> list[Comparison]:
    """Every pair of systems, in the order of ``samples``, whose i-th values were measured in the same turn.

    Raises:
        InputError: fewer than two systems, or not the same number of samples for each.
    """
    names = list(samples)
    if len(names) < 2 or len({len(values) for values in samples.values()}) != 1:
        counts = {name: len(values) for name, values in samples.items()}
        raise InputError(
            f"got samples {counts}; expected at least two systems measured in the same turns: measure both"
        )
    pairs = [(a, b) for place, a in enumerate(names) for b in names[place + 1 :]]
    # all pairs are corrected together: of the 45 pairs of ten systems two would differ by chance
    corrected = holm([signed_rank(samples[a], samples[b]) for a, b in pairs])
    noise, comparisons = noise_floor(control), []
    for (a, b), p in zip(pairs, corrected, strict=True):
        ratio = paired_ratio(samples[a], samples[b])
        comparisons.append(Comparison(a, b, ratio, p, verdict(ratio, p, noise, margin, alpha)))
    return comparisons
