"""Claims of comparisons, for the rules: speedups with their base (R1), words with the test behind them (R7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deep500.compare.result import ComparisonResult
from deep500.compare.runs import SeriesComparison
from deep500.measure.comparison import MARGIN
from deep500.measure.statistics import Interval

ABOUT = ("R1", "R3", "R4", "R7", "R12")
"""The rules that judge comparisons, beside those that judge every run."""


def run_claims(
    series: Sequence[SeriesComparison], medians: Mapping[str, Sequence[Mapping[str, Any] | None]]
) -> list[dict[str, Any]]:
    """Of two runs: a ratio per series, of the medians of both, the first of which is the base.

    Args:
        series: the comparisons.
        medians: per series the estimates of both medians, as ``stats.json`` holds them; None where there is none.
    """
    claims = [_comparison(compared.series, compared.ratio, compared.p, compared.verdict) for compared in series]
    for compared in series:
        base = medians[compared.series][0]
        if base is not None:
            size, text = compared.samples[0], "the first run" + ", a sample" * compared.by_sample
            known = {"seconds": base["value"], "low": base["ci"]["low"], "high": base["ci"]["high"]}
            ends = {name: None if end is None else end / size for name, end in known.items()}
            claims.append(
                {
                    "type": "speedup",
                    "of": compared.series,
                    "value": 1 / compared.ratio.median,
                    "base": {"kind": "other", "text": text, **ends},
                }
            )
    return claims


def framework_claims(result: ComparisonResult) -> list[dict[str, Any]]:
    """Of several frameworks on one piece of work: a ratio per pair, whose second is the base."""
    claims = []
    for label, timing in result.timings.items():
        for compared in timing.comparisons:
            base = timing.interval(compared.second)
            claims.append(
                _comparison(
                    f"{label}: {compared.first}, {compared.second}", compared.ratio, compared.p, compared.verdict
                )
            )
            claims.append(
                {
                    "type": "speedup",
                    "of": f"{label}: {compared.first}",
                    "value": 1 / compared.ratio.median,
                    "base": {
                        "kind": "other",
                        "text": compared.second,
                        "seconds": base.median,
                        "low": base.low,
                        "high": base.high,
                    },
                }
            )
    return claims


def _comparison(subject: str, ratio: Interval, p: float | None, verdict: str) -> dict[str, Any]:
    effect = None if ratio.low is None else [ratio.low, ratio.high]
    return {
        "type": "comparison",
        "of": subject,
        "verdict": verdict,
        "p": p,
        "corrected": "Holm",
        "effect": effect,
        "margin": MARGIN,
    }
