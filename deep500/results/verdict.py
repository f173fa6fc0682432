"""Turn measured values into verdicts. The words come from here alone, so no report can say more than was judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from deep500.measure.standing import OBSERVATION, RESULT, headline
from deep500.notebooks import folded
from deep500.results.outcomes import FAILED as FAILED
from deep500.results.outcomes import PASSED as PASSED
from deep500.results.outcomes import UNJUDGED as UNJUDGED
from deep500.results.outcomes import interval_over_seeds, is_of_time, judged_by_validation, outcome

MOST_REASONS = 3
"""Most reasons of seeds that a remark lists."""

TWO_SPLITS = "two splits: qualities are those of the validation data, which tuning may have seen (validation_split=0.1)"
"""Remark beside a verdict without test data."""


@dataclass(frozen=True)
class MetricResult:
    """One metric over all seeds.

    Attributes:
        name: the metric's own, as the next two.
        unit: of the values.
        direction: ``"higher"`` or ``"lower"`` (is better).
        target: the acceptable value, None if there is none.
        values: one per seed, in the order of the seeds; None where it was not measured.
        value: what is judged: the median over the seeds, None if one is missing.
        low, high: smallest and largest value (the spread), or what ``remark`` says; None for a single seed.
        verdict: PASSED, FAILED or UNJUDGED.
        reason: why it is UNJUDGED, or FAILED without a number; else empty.
        remark: what must be said beside the value; why it was not measured, where that is known.
        details: the numbers behind the value, one mapping per seed.
        standing: ``"result"`` where it has an interval (:func:`deep500.results.outcomes.interval_over_seeds`), else
            ``"observation"``.
    """

    name: str
    unit: str
    direction: str
    target: float | None
    values: list[float | None]
    value: float | None
    low: float | None
    high: float | None
    verdict: str
    reason: str = ""
    remark: str = ""
    details: list[dict[str, Any]] = field(default_factory=list)
    standing: str = OBSERVATION

    @property
    def label(self) -> str:
        """The verdict with its reason: ``UNJUDGED (stand-in data)``."""
        return f"{self.verdict} ({self.reason})" if self.reason else self.verdict

    def as_dict(self) -> dict[str, Any]:
        """Return the entry in ``summary.json``."""
        return asdict(self)


def metric_from(content: Mapping[str, Any]) -> MetricResult:
    """The inverse of :meth:`MetricResult.as_dict`; fields that another version added are left out."""
    return MetricResult(**{field.name: content[field.name] for field in fields(MetricResult) if field.name in content})


@dataclass(frozen=True)
class Circumstances:
    """Reasons that keep a run, or its quality metrics, from being judged.

    Attributes:
        dry_run: the run was too small to judge anything.
        stand_in: the data are not those that the recipe names.
        disturbed: others used the machine, or the number of ranks changed: times are observations, without intervals.
    """

    dry_run: bool = False
    stand_in: bool = False
    disturbed: bool = False


@dataclass(frozen=True)
class SeedNotes:
    """Notes on a metric's value of one seed besides the value.

    Attributes:
        reason: why there is none, else empty.
        details: the numbers behind it; ``lasted`` among them where the metric counts other seconds than the next.
        lasted: seconds of training and validation; None if that was not measured.
    """

    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    lasted: float | None = None


def judge(
    metric: Any,
    target: float | None,
    values: Sequence[float | None],
    about: Circumstances,
    notes: Sequence[SeedNotes] = (),
) -> MetricResult:
    """Compare what the metric makes of all seeds (mostly their median) with the target, in the metric's direction.

    Args:
        metric: a :class:`deep500.metrics.Metric`; its ``passes`` decides.
        target: the acceptable value, which itself passes; None judges nothing.
        values: one per seed, None for "not measured", which misses every target.
        about: in a dry run nothing is judged; on stand-in data rates are (samples/s), but neither quality nor times,
            since other data are learnt otherwise and are fewer.
        notes: one per seed, or none.
    """
    combined = metric.combine(values, [note.details.get("lasted", note.lasted) for note in notes])
    value, details = combined.value, [dict(note.details) for note in notes]
    reasons = (
        (about.dry_run, "dry run"),
        (target is None, "no target"),
        (about.stand_in and metric.kind != "rate", "stand-in data"),
    )
    reason = next((why for applies, why in reasons if applies), "")
    # without a value it fails: else a target could be met by not measuring
    verdict = UNJUDGED if reason else PASSED if metric.passes(value, target) else FAILED
    reason = "not measured" if verdict == FAILED and value is None else reason
    judged = MetricResult(
        metric.name,
        metric.unit,
        metric.direction,
        target,
        list(values),
        value,
        combined.low,
        combined.high,
        verdict,
        reason,
        "; ".join(text for text in (combined.remark, combined.interval, *_reasons(value, notes)) if text),
        details if any(details) else [],
        RESULT,
    )
    disturbed = about.disturbed and is_of_time(metric)
    if not disturbed and interval_over_seeds(judged.as_dict()) is not None:
        return judged
    judged = replace(judged, standing=OBSERVATION)
    if combined.low is None or not judged.remark:
        return judged
    # an interval of the metric's own: an observation has none, and does not name it either
    first = combined.remark if combined.interval else ""
    remark = "; ".join(text for text in (first, *_reasons(value, notes)) if text)
    return replace(judged, low=None, high=None, remark=remark)


def _reasons(value: float | None, notes: Sequence[SeedNotes]) -> list[str]:
    """Why seeds have no value, where all together have none."""
    why = list(dict.fromkeys(note.reason for note in notes if note.reason)) if value is None else []
    more = [f"and {len(why) - MOST_REASONS} reasons more"] if len(why) > MOST_REASONS else []
    return [*why[:MOST_REASONS], *more]


def splits_remark(manifest: Mapping[str, Any]) -> str:
    """Which data qualities are of, where their names do not say it; empty where they do.

    Example:
        >>> facts = {"name": "best_test_accuracy", "class": "deep500.metrics.quality:TestAccuracy"}
        >>> splits_remark({"data": {"train": {}, "test": {}}, "resolved": {"metrics": [facts]}}).partition(";")[0]
        'three splits: best_test_accuracy is of the validation data, as epochs are'
    """
    data, declared = manifest.get("data") or {}, (manifest.get("resolved") or {}).get("metrics") or ()
    if not data or "test" not in data:
        return TWO_SPLITS if data else ""
    names = [str(facts["name"]) for facts in declared if judged_by_validation(facts)]
    if not names:
        return ""
    sentence = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} of the validation data, as epochs are"
    return f"three splits: {sentence}; the test data are judged once, after them"


def overall(metrics: Sequence[MetricResult]) -> str:
    """FAILED if one failed, else PASSED if one passed, else UNJUDGED with the first reason."""
    if any(m.verdict == FAILED for m in metrics):
        return FAILED
    if any(m.verdict == PASSED for m in metrics):
        return PASSED
    return next((m.label for m in metrics), f"{UNJUDGED} (no metrics)")


def repetition_sentence(content: Mapping[str, Any]) -> str:
    """How a run with ``--repeat auto`` arrived at its number of seeds, from what ``summary.json`` says of it.

    Example:
        >>> repetition_sentence({"seeds": 8, "seconds": 41.0, "budget": 60.0, "level": 0.95, "precision": 0.05,
        ...                      "achieved": {"step": 0.031}, "reached": True})
        'precision reached: 8 seeds until every 95 % interval over seeds was within 5 % (step 3.1 %); 41 of 60 s'
    """
    seeds = f"{content['seeds']} seed{'' if content['seeds'] == 1 else 's'}"
    widths = ", ".join(f"{name} {_percent(width)}" for name, width in content["achieved"].items())
    goal = f"{100 * content['level']:g} % interval over seeds was within {100 * content['precision']:g} % ({widths})"
    spent = f"{content['seconds']:.3g} of {content['budget']:g} s"
    if content["reached"]:
        return f"precision reached: {seeds} until every {goal}; {spent}"
    return f"precision NOT reached: the budget ended after {seeds}, before every {goal}; {spent}"


def standing_words(estimate: Mapping[str, Any]) -> str:
    """Name an estimate of ``stats.json`` beside its value: a result, a missed result, an observation.

    Example:
        >>> standing_words({"standing": "observation", "reason": "30 samples of a time series, 50 are needed"})
        'observation (30 samples of a time series, 50 are needed)'
    """
    target = estimate.get("target") or {}
    cause = estimate.get("reason") or target.get("cause", "")
    return headline(estimate["standing"], target.get("achieved"), target.get("rel"), cause)


def _percent(part: float | None) -> str:
    return "no interval" if part is None else f"{100 * part:.2g} %" if part < 1 else f"{100 * part:.0f} %"


@dataclass(frozen=True)
class RecipeResult:
    """The result of a recipe run; truthy when every judged metric passes.

    A run in which nothing could be judged (stand-in data, dry run, no targets) is truthy, since nothing was missed;
    its ``verdict`` says ``UNJUDGED`` and why.

    Attributes:
        verdict: PASSED, FAILED or ``UNJUDGED (reason)``.
        metrics: one :class:`MetricResult` per entry of METRICS.
        path: the results folder, report: its HTML page.
        labels: what must be said wherever a number of this run appears, such as ``"stand-in data"``.
    """

    verdict: str
    metrics: list[MetricResult] = field(default_factory=list)
    path: str = ""
    report: str = ""
    labels: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.verdict.startswith(FAILED)

    @property
    def exit_code(self) -> int:
        """0 when no target was missed, else 1."""
        return 0 if self else 1

    def _repr_html_(self) -> str:
        lines = [f"{m.name}: {outcome(m.as_dict(), self.labels).sentence}" for m in self.metrics]
        labels = f" [{', '.join(self.labels)}]" if self.labels else ""
        return folded(f"{self.verdict}{labels}", "\n".join([*lines, f"report: {self.report or 'none'}"]), opened=True)

    def __getitem__(self, name: str) -> MetricResult:
        """The metric of that name; raises KeyError."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(name)
