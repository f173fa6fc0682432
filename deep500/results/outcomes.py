"""Outcomes of a run's metrics: the value, unit, interval and labels of each, as everything that shows them does.

Console, page, tables, SQL, MLflow, TensorBoard and MLPerf's log all read :func:`outcomes`. A figure is a result and has
an interval, or it is an observation and has none. A metric that is another quantity over the seeds, such as a variance,
has no values by seed: those are another metric's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from deep500.measure.quantiles import quantile
from deep500.measure.standing import OBSERVATION, RESULT
from deep500.pages.rendering import format_number

PASSED, FAILED, UNJUDGED = "PASSED", "FAILED", "UNJUDGED"

TIMES = ("s", "ms", "µs", "us", "ns", "min", "h")
SHARES = (
    *("roof_share", "io_share", "communication_share", "wait_share", "load_imbalance", "framework_overhead"),
    *("cpu_utilisation", "gpu_utilisation", "strong_scaling_efficiency", "weak_scaling_efficiency"),
    *("energy", "carbon", "cost"),
)
"""Metrics that follow from times, in other units than those of time."""

Ends = tuple[float, "float | None"]


@dataclass(frozen=True)
class SeedOutcome:
    """The outcome of a metric with one seed, in the metric's unit.

    Attributes:
        seed: its number.
        value: None if it was not measured.
        verdict: on this value; UNJUDGED where that on all seeds is.
    """

    seed: int
    value: float | None
    verdict: str


@dataclass(frozen=True)
class MetricOutcome:
    """The outcome of a metric over all seeds, and with each.

    Attributes:
        name, unit, direction, target: the metric's own.
        value: over the seeds, mostly their median; None if it was not measured.
        interval: its ends, the upper one None where a run may never get there; None for an observation.
        basis: what value and interval are, in words: ``95 % CI of the median of 7``.
        verdict: on the value, with its reason.
        data: what a quality is of, ``"test"`` or ``"validation"``; None for all else.
        labels: what must be said wherever the value appears.
        seeds: empty where the metric is another quantity over the seeds.
    """

    name: str
    unit: str
    direction: str
    target: float | None
    value: float | None
    interval: Ends | None
    basis: str
    verdict: str
    reason: str = ""
    data: str | None = None
    labels: tuple[str, ...] = ()
    seeds: tuple[SeedOutcome, ...] = ()

    @property
    def standing(self) -> str:
        """``"result"`` with an interval, ``"observation"`` without."""
        return OBSERVATION if self.interval is None else RESULT

    @property
    def text(self) -> str:
        """Value, interval and basis: ``93.5 % (observation: one seed)``."""
        if self.value is None:
            return f"not measured ({self.basis})" if self.basis else "not measured"
        value = f"{format_number(self.value)} {self.unit}".rstrip()
        if self.interval is None:
            return f"{value} ({self.basis})"
        low, high = ("never" if end is None else format_number(end) for end in self.interval)
        return f"{value} [{low}, {high}], {self.basis}"

    @property
    def sentence(self) -> str:
        """The text, the labels and the verdict: what an export says of all seeds together."""
        labels = f" [{', '.join(self.labels)}]" if self.labels else ""
        return f"{self.text}{labels}: {f'{self.verdict} ({self.reason})' if self.reason else self.verdict}"


def outcomes(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> list[MetricOutcome]:
    """All metrics of a finished run.

    Example:
        >>> metric = {"name": "loss", "unit": "", "direction": "lower", "target": 1.0, "values": [0.5], "value": 0.5,
        ...           "low": None, "high": None, "verdict": "PASSED", "standing": "observation"}
        >>> (loss,) = outcomes({"seeds": [7]}, {"metrics": [metric], "labels": ["stand-in data"]})
        >>> loss.sentence, loss.seeds[0]
        ('0.5 (observation: one seed) [stand-in data]: PASSED', SeedOutcome(seed=7, value=0.5, verdict='PASSED'))
    """
    labels = summary.get("labels", ())
    return [outcome(metric, labels, manifest) for metric in summary.get("metrics", ())]


def outcome(
    metric: Mapping[str, Any], labels: Sequence[str] = (), manifest: Mapping[str, Any] | None = None
) -> MetricOutcome:
    """One metric as ``summary.json`` has it; without a manifest neither what it is of nor values by seed."""
    about, interval = manifest or {}, interval_over_seeds(metric)
    seeds = about.get("seeds", ()) if unit_of_seeds(about, metric["name"]) is None else ()
    return MetricOutcome(
        metric["name"],
        metric["unit"],
        metric["direction"],
        metric["target"],
        metric["value"],
        interval,
        _basis(metric, interval),
        metric["verdict"],
        metric.get("reason", ""),
        data_of(about, metric["name"]),
        tuple(labels),
        tuple(
            SeedOutcome(seed, metric["values"][number], verdict_of_seed(metric, number))
            for number, seed in zip(range(len(metric["values"])), seeds, strict=False)
        ),
    )


def interval_over_seeds(metric: Mapping[str, Any]) -> Ends | None:
    """The ends of a metric's interval, None for an observation: the metric's own where ``remark`` names it, else that
    of the median of six seeds or more.

    Example:
        >>> metric = {"values": [3, 1, 4, 2, 6, 5], "low": 1, "high": 6, "standing": "result"}
        >>> interval_over_seeds(metric), interval_over_seeds({**metric, "standing": "observation"})
        ((1.0, 6.0), None)
        >>> interval_over_seeds({**metric, "remark": "variance over 6 seeds", "low": None, "high": None})
    """
    values = metric["values"]
    if metric["standing"] != RESULT:
        return None
    if metric.get("remark"):
        return None if metric.get("low") is None else (metric["low"], metric["high"])
    if not values or not all(value is not None and isfinite(value) for value in values):
        return None
    median = quantile(values, independent=True)
    return None if median.low is None else (median.low, median.high)


def _basis(metric: Mapping[str, Any], interval: Ends | None) -> str:
    number, remark = len(metric["values"]), str(metric.get("remark") or "")
    if metric["value"] is None:
        return remark or str(metric.get("reason") or "")
    if interval is not None:
        return remark or f"95 % CI of the median of {number}"
    spread = "" if metric.get("low") is None else f", {format_number(metric['low'])} to {format_number(metric['high'])}"
    return f"{OBSERVATION}: {remark or ('one seed' if number == 1 else f'median of {number}{spread}')}"


def is_of_time(metric: Any) -> bool:
    """Whether a metric depends on who else computes: times, rates, shares of times and what is paid by the hour.

    Args:
        metric: a :class:`deep500.metrics.Metric`.

    Example:
        >>> from deep500.metrics import IOShare, PeakMemory, TestAccuracy, Throughput, VarianceOverSeeds, WallTime
        >>> [is_of_time(metric) for metric in (WallTime(), Throughput(), IOShare(), TestAccuracy(), PeakMemory())]
        [True, True, True, False, False]
    """
    unit = str(metric.unit or "")
    return unit in TIMES or unit.endswith(tuple(f"/{time}" for time in TIMES)) or metric.name in SHARES


def judged_by_validation(facts: Mapping[str, Any]) -> bool:
    """Whether a metric is of the validation data though there may be test data: the best epoch, the time to a quality.

    Args:
        facts: what the manifest says of the metric.
    """
    module, _, kind = str(facts.get("class", "")).partition(":")
    name = str(facts.get("name", "")).removeprefix("variance_of_")
    of_epochs = name.startswith("best_test_") or kind in ("TimeToAccuracy", "TimeToQuality")
    return module.startswith("deep500.metrics.") and of_epochs


def data_of(manifest: Mapping[str, Any], name: str) -> str | None:
    """The data that a quality of the trained network is of: ``"test"`` or ``"validation"``; None for all else.

    Example:
        >>> names, made_by = ("test_loss", "best_test_loss"), "deep500.metrics.quality:TestLoss"
        >>> facts = [{"name": name, "class": made_by} for name in names]
        >>> manifest = {"data": {"train": {}, "validation": {}, "test": {}}, "resolved": {"metrics": facts}}
        >>> [data_of(manifest, name) for name in names]
        ['test', 'validation']
    """
    facts = _facts(manifest, name)
    if judged_by_validation(facts):
        return "validation"
    is_known = str(facts.get("class", "")).startswith("deep500.metrics.quality:")
    if not is_known or name.removeprefix("variance_of_").startswith(("train_", "best_train_")):
        return None
    return "test" if "test" in (manifest.get("data") or {}) else "validation"


def unit_of_seeds(manifest: Mapping[str, Any], name: str) -> str | None:
    """The unit of a metric's values by seed, where over the seeds it is another quantity (a variance); else None.

    Example:
        >>> facts = {"name": "variance_of_test_accuracy", "unit": "%²", "unit_of_seeds": "%"}
        >>> unit_of_seeds({"resolved": {"metrics": [facts]}}, "variance_of_test_accuracy")
        '%'
    """
    unit = _facts(manifest, name).get("unit_of_seeds")
    return None if unit is None else str(unit)


def _facts(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    declared = (manifest.get("resolved") or {}).get("metrics") or ()
    facts: Mapping[str, Any] = next((metric for metric in declared if metric.get("name") == name), {})
    return facts


def verdict_of_seed(metric: Mapping[str, Any], number: int) -> str:
    """The verdict on one seed's value of a metric in ``summary.json``; UNJUDGED where that of all seeds is.

    Example:
        >>> metric = {"verdict": "PASSED", "target": 90.0, "direction": "higher", "values": [95.0, 80.0, 91.0]}
        >>> [verdict_of_seed(metric, number) for number in range(3)]
        ['PASSED', 'FAILED', 'PASSED']
    """
    if metric["verdict"] not in (PASSED, FAILED) or metric["target"] is None:
        return UNJUDGED
    value, sign = metric["values"][number], 1 if metric["direction"] == "higher" else -1
    return PASSED if value is not None and sign * (value - metric["target"]) >= 0 else FAILED
