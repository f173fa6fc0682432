"""The qualities of two runs, judged before their times: is what the second reaches as good as what the first does?

A run that computes something worse is no faster way to the same result, whatever its steps take. Each metric of kind
``quality`` is compared over seeds: in pairs where both runs trained the same seeds, else as two groups. The p value is
that of a permutation test of the mean difference (Fisher 1935; signs of the pairs, or members of the groups), exact up
to ten thousand arrangements and drawn from a fixed seed beyond, so that ties, which fractions of a test set have, cost
nothing. The interval is that of ranks (Hodges and Lehmann 1963).

Metrics that have a target are what the runs were made for: their p values are corrected for each
other (Holm), and not for those of the other metrics, which are corrected for each other. So whoever names one more
metric does not blind the test of the target. Of either family 5 % of comparisons without a difference end in a word,
half of them in "worse": of both together at most 5 %. What so few seeds could not show however large it is is "not
tested", with the seeds that could show it, and never "no loss shown".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from deep500.measure.comparison import holm, rounds_needed
from deep500.measure.launch_comparison import paired_difference, shift_interval

BETTER, WORSE, NO_LOSS, UNTESTED = "better", "worse", "no loss shown", "not tested"
ALPHA, FEWEST_EACH = 0.05, 4
"""Level of the tests of a family; with fewer seeds in one of two groups there is no interval."""


@dataclass(frozen=True)
class QualityComparison:
    """One metric of quality in both runs.

    Attributes:
        metric: its name.
        unit: of ``first``, ``second``, ``difference`` and its interval.
        first, second: medians over seeds.
        difference: median of second minus first over pairs of seeds, else of the medians.
        low, high: its 95 % interval, of this metric alone; None with too few seeds.
        p: two-sided, Holm-corrected over the metrics with a target, or over those without; None with too few seeds.
        test: what the p value belongs to, and how many seeds; without one, how many could be tested.
        verdict: ``better``, ``worse``, ``no loss shown`` (nothing significant), or ``not tested`` (it looks worse, and
            so few seeds could not have shown it).
        targets: whether either run reached its target (``PASSED``, ``FAILED``), None without one.
        paired: whether ``difference`` is the median over pairs of seeds, which that of the medians need not equal;
            None of one seed each, whose values they are.
    """

    metric: str
    unit: str
    first: float
    second: float
    difference: float
    low: float | None
    high: float | None
    p: float | None
    test: str
    verdict: str
    targets: tuple[str | None, str | None]
    paired: bool | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the second is significantly worse, or misses a target that the first reached."""
        return self.verdict == WORSE or self.targets == ("PASSED", "FAILED")

    @property
    def is_open(self) -> bool:
        """Whether the second looks worse, and nobody knows if that is chance."""
        return self.verdict == UNTESTED

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        ends = "" if self.low is None else f" [{self.low:+.4g}, {self.high:+.4g}]"
        p = "" if self.p is None else f"p {self.p:.2g}, "
        reached = "" if None in self.targets else f"; target: {self.targets[0]} -> {self.targets[1]}"
        change, medians = "difference", ""
        if self.paired is not None:
            change, medians = "median difference of pairs" if self.paired else "difference of medians", "medians "
        return (
            f"{self.metric}: {self.verdict}, {medians}{self.first:.6g} -> {self.second:.6g}{unit}, {change} "
            f"{self.difference:+.4g}{ends} ({p}{self.test}){reached}"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "targets": list(self.targets)}


def compare_qualities(
    manifests: Sequence[Mapping[str, Any]], summaries: Sequence[Mapping[str, Any]]
) -> tuple[QualityComparison, ...]:
    """Compare the metrics of kind ``quality`` that both runs have.

    Args:
        manifests, summaries: ``manifest.json`` and ``summary.json`` of the two runs, the base first.

    Example:
        >>> facts = {"name": "accuracy", "kind": "quality", "direction": "higher", "unit": "%"}
        >>> manifest = {"resolved": {"metrics": [facts]}, "seeds": list(range(8))}
        >>> runs = [{"metrics": [{"name": "accuracy", "values": [v] * 8, "verdict": "PASSED"}]} for v in (96, 45)]
        >>> print(str(*compare_qualities([manifest] * 2, runs)).partition(" (")[0])
        accuracy: worse, medians 96 -> 45 %, median difference of pairs -51 [-51, -51]
    """
    facts = [
        {m.get("name"): m for m in (manifest.get("resolved") or {}).get("metrics") or ()} for manifest in manifests
    ]
    shared = [name for name in facts[0] if name in facts[1] and _is_compared(facts[0][name], facts[1][name])]
    families: dict[bool, list[tuple[QualityComparison, float | None, str]]] = {True: [], False: []}
    for name in shared:
        sides = [_by_seed(manifest, summary, name) for manifest, summary in zip(manifests, summaries, strict=True)]
        if all(values for values, _ in sides):
            (first, before), (second, after) = sides
            quality, least, seeds = _compare(first, second, str(facts[0][name].get("direction")))
            quality = replace(quality, metric=name, unit=str(facts[0][name].get("unit") or ""), targets=(before, after))
            families[any(side[name].get("target") is not None for side in facts)].append((quality, least, seeds))
    judged = {quality.metric: quality for family in families.values() for quality in _corrected(family)}
    return tuple(judged[name] for name in shared if name in judged)


def _is_compared(*facts: Mapping[str, Any]) -> bool:
    """Whether a metric is one of quality whose values by seed are of what it is called: those of a variance are not."""
    return all(side.get("kind") == "quality" and side.get("unit_of_seeds") is None for side in facts)


def _corrected(family: Sequence[tuple[QualityComparison, float | None, str]]) -> list[QualityComparison]:
    """Correct comparisons for each other, and leave open what their seeds could not have shown.

    Args:
        family: comparisons, each with the least p value that its number of seeds can give, and that number in words.
    """
    corrected = []
    p_values, attainable = holm([quality.p for quality, *_ in family]), holm([least for _, least, _ in family])
    for (quality, _, seeds), p, least in zip(family, p_values, attainable, strict=True):
        if p is None or least is None or least >= ALPHA:
            metrics = f", {len(family)} metrics" if len(family) > 1 else ""
            needed = f"{seeds}{metrics}: --repeat {rounds_needed(len(family), ALPHA)} could be tested"
            word = UNTESTED if quality.verdict == WORSE else NO_LOSS
            corrected.append(replace(quality, p=None, verdict=word, test=needed))
        else:
            corrected.append(replace(quality, p=p, verdict=NO_LOSS if p >= ALPHA else quality.verdict))
    return corrected


def _by_seed(manifest: Mapping[str, Any], summary: Mapping[str, Any], name: str) -> tuple[dict[int, float], str | None]:
    """The finite values of a metric by seed, and whether its target was reached."""
    metric: Mapping[str, Any] = next((m for m in summary.get("metrics", []) if m.get("name") == name), {})
    values = zip(summary.get("seeds") or manifest.get("seeds") or (), metric.get("values") or (), strict=False)
    known = {seed: float(v) for seed, v in values if isinstance(v, (int, float)) and math.isfinite(v)}
    word = metric.get("verdict")
    return known, word if word in ("PASSED", "FAILED") else None


def _compare(
    first: Mapping[int, float], second: Mapping[int, float], direction: str
) -> tuple[QualityComparison, float | None, str]:
    """Compare one metric by itself; also the least p value of so many seeds, None if too few, and these in words."""
    both = [seed for seed in first if seed in second]
    paired = len(both) == len(first) == len(second)
    a, b = (np.array([side[s] for s in (both if paired else side)]) for side in (first, second))
    middle = float(np.median(b - a) if paired else np.median(b) - np.median(a))
    gain = middle if direction == "higher" else -middle
    word = WORSE if gain < 0 else BETTER if gain > 0 else NO_LOSS
    medians, by = (float(np.median(a)), float(np.median(b))), paired if max(a.size, b.size) > 1 else None
    alone = QualityComparison("", "", *medians, middle, None, None, None, "", word, (None, None), by)
    seeds = f"{a.size} seed{'s' * (a.size > 1)}" if a.size == b.size else f"{a.size} and {b.size} seeds"
    least = 2 ** (1.0 - a.size) if paired else 2 / math.comb(a.size + b.size, a.size)
    if least >= ALPHA or (not paired and min(a.size, b.size) < FEWEST_EACH):
        return alone, None, seeds
    low, high = paired_difference(b - a) if paired else shift_interval(a, b)
    p = _permuted(b - a) if paired else _permuted(a, b)
    words = f"signs of {a.size} pairs of seeds" if paired else f"permutations of {a.size} and {b.size} seeds"
    return replace(alone, low=min(low, middle), high=max(high, middle), p=p, test=words), least, seeds


def _permuted(*groups: np.ndarray) -> float:
    """Two-sided p value of a permutation test of the mean, or of the difference of two means."""
    from scipy.stats import permutation_test

    if np.ptp(np.concatenate(groups)) == 0 and (len(groups) == 2 or not groups[0][0]):
        return 1.0  # nothing differs anywhere
    kind = "samples" if len(groups) == 1 else "independent"
    statistic = (lambda x, axis: x.mean(axis)) if len(groups) == 1 else (lambda x, y, axis: y.mean(axis) - x.mean(axis))
    drawn = np.random.default_rng(0)
    result = permutation_test(groups, statistic, permutation_type=kind, vectorized=True, n_resamples=10_000, rng=drawn)
    return float(result.pvalue)
