"""The part of a run that follows from its other files, computed again: values of seeds, summary, claims, rules.

Each function compares what is written with what follows, and names in words what does not fit. What a file does not
hold is not compared: that it is missing is for the rules to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deep500.metrics import (
    Metric,
    TestAccuracy,
    TestLoss,
    TestQuality,
    Throughput,
    TimeToAccuracy,
    TimeToQuality,
    TrainingAccuracy,
    TrainingLoss,
    TrainingTime,
    VarianceOverSeeds,
)
from deep500.results.claims import BY, derive
from deep500.results.files import to_json
from deep500.results.quiet import BUSY, RANKS_CHANGED, disturbed, mixed, taints
from deep500.results.rules import NOT_APPLICABLE, RULES, RULES_FILE, RunView, check, summary_of
from deep500.results.verdict import Circumstances, MetricResult, SeedNotes, judge, overall
from deep500.training.statistics import FIELDS, EpochRecord, TrainingStatistics

PLAIN = (TestAccuracy, TrainingAccuracy, TestLoss, TrainingLoss)
OF_METRICS = "deep500.metrics."
"""Where the metrics are defined that are known here; one of a user's own with the same name is another."""

OF_QUALITY, TO_QUALITY = "deep500.metrics.quality:TestQuality", "deep500.metrics.speed:TimeToQuality"

TRAINED = ("train_loss", "train_accuracy")


@dataclass
class Declared(Metric):
    """A metric that is not known here, by what the manifest says of it."""

    name: str
    unit: str
    direction: Any
    kind: Any

    def measure(self, statistics: Any) -> float | None:
        """It cannot be measured again."""
        return None


def metric_of(name: str) -> Metric | None:
    """The metric of a name that is a function of the curve alone; None for any other.

    Example:
        >>> metric_of("time_to_accuracy_97.5"), metric_of("step_latency_p50")
        (TimeToAccuracy(97.5), None)
    """
    plain = [metric for kind in PLAIN for metric in (kind(), kind(True))]
    known = {known_metric.name: known_metric for known_metric in (*plain, TrainingTime(), Throughput())}
    if name in known:
        return known[name]
    begin, _, rest = name.rpartition("_")
    if begin == "time_to_accuracy":
        try:
            return TimeToAccuracy(float(rest))
        except ValueError:
            return None
    inner = metric_of(name.removeprefix("variance_of_")) if name.startswith("variance_of_") else None
    return None if inner is None else VarianceOverSeeds(inner)


def statistics_of(lines: Sequence[Mapping[str, Any]], final: Mapping[str, Any] | None = None) -> TrainingStatistics:
    """The training statistics of one seed's lines of ``metrics.jsonl``, and what the test data said in the end."""
    names = {*FIELDS} - {"epoch", "complete"}
    known: list[dict[str, Any]] = [{name: line.get(name) for name in names} for line in lines]
    for line, facts in zip(lines, known, strict=True):
        more = {name: value for name, value in line.items() if name not in FIELDS}
        facts["checks"] = line.get("checks", [])
        facts["qualities"] = {n: v for n, v in more.items() if n.startswith(("train_", "test_"))}
    statistics = TrainingStatistics(
        [EpochRecord(line["epoch"] - 1, **facts) for line, facts in zip(lines, known, strict=True)]
    )
    if final:
        statistics.final = EpochRecord(len(lines))
        statistics.final.put("test", {name.removeprefix("test_"): value for name, value in final.items()})
    return statistics


def seed_problems(run: RunView) -> list[str]:
    """Values of seeds that do not follow from the curve."""
    problems = []
    metrics = {facts["name"]: metric for facts, metric in _declared(run) if not isinstance(metric, Declared)}
    for seed, entry in run.seeds.items():
        lines = [line for line in run.curve if str(line["seed"]) == seed]
        if entry.get("stopped_by") and _events(run):
            continue  # it may have been stopped within an epoch, which the curve does not hold
        statistics = statistics_of(lines, entry.get("final"))
        for name, metric in metrics.items():
            got, expected = entry["values"].get(name), _plain(metric.measure(statistics))
            if got != expected:
                problems.append(f"seeds.json: {name} of seed {seed} is {got}; {expected} follows from metrics.jsonl")
    return problems


def _events(run: RunView) -> Any:
    return run.manifest.get("resolved", {}).get("recipe", {}).get("events")


def _declared(run: RunView) -> list[tuple[dict[str, Any], Metric]]:
    """The metrics of the resolved recipe: what is said of each, and the metric."""
    pairs: list[tuple[dict[str, Any], Metric]] = []
    for facts in run.manifest.get("resolved", {}).get("metrics", []):
        known = metric_of(facts["name"]) if str(facts.get("class", "")).startswith(OF_METRICS) else None
        if facts.get("class") == OF_QUALITY:
            best, _, name = str(facts["name"]).rpartition("test_")
            known = TestQuality(name, facts["unit"], facts["direction"], bool(best))
        if facts.get("class") == TO_QUALITY and "arguments" in facts:
            known = _time_to(facts["arguments"])
        metric: Metric = Declared(*(facts.get(name) for name in ("name", "unit", "direction", "kind")))
        pairs.append((facts, known or metric))
    return pairs


def _time_to(made_of: Mapping[str, Any]) -> TimeToQuality:
    field, unit, direction = (made_of[name] for name in ("field", "unit", "direction"))
    plain = {metric.field: metric for metric in (TestAccuracy(), TestLoss())}
    metric = plain.get(field) or TestQuality(field.removeprefix("test_"), unit, direction)
    return TimeToQuality(metric, made_of["target"], made_of["every"])


def own_metrics(manifest: Mapping[str, Any]) -> list[str]:
    """Metrics of a run's author, whose values nothing here computes again: each with the file that they come from.

    Example:
        >>> facts = {"name": "gap", "class": "recipe:Gap"}
        >>> own_metrics({"resolved": {"metrics": [facts]}, "recipe_sha256": "0123456789abcdef"})
        ['gap (recipe:Gap, SHA-256 0123456789ab of its file)']
    """
    resolved = manifest.get("resolved") or {}
    noted = [source for source in resolved.get("own") or () if source["key"] == "METRICS"]
    digests = {str(source["name"]).rpartition(":")[0].rpartition("/")[2]: source["sha256"] for source in noted}
    words = []
    for facts in resolved.get("metrics") or ():
        module = str(facts.get("class", OF_METRICS)).partition(":")[0]
        if not module.startswith(OF_METRICS):
            digest = manifest.get("recipe_sha256") if module == "recipe" else digests.get(module)
            file = "no file is known" if digest is None else f"SHA-256 {digest[:12]} of its file"
            words.append(f"{facts['name']} ({facts['class']}, {file})")
    return words


def summary_problems(run: RunView) -> list[str]:
    """A summary whose values, verdicts or labels do not follow from the seeds and the recipe."""
    summary, manifest = run.summary, run.manifest
    if not summary or not run.seeds or "metrics" not in manifest.get("resolved", {}):
        return []
    problems = _differ("labels", summary.get("labels"), _labels(run))
    problems += _differ("seeds", summary.get("seeds"), manifest["seeds"])
    if summary.get("status") != "finished":
        return problems + _differ("verdict", summary.get("verdict"), "FAILED")
    written = {metric["name"]: metric for metric in summary.get("metrics", [])}
    results = []
    for facts, metric in _declared(run):
        result = _judged(run, facts, metric)
        got = written.pop(facts["name"], None)
        if got is None:
            problems.append(f"summary.json: no {facts['name']}, which the recipe is judged by")
            continue
        is_declared = isinstance(metric, Declared) and "combine" not in _base_of(facts)
        names = ("values", "target", "unit", "direction") if is_declared else tuple(result.as_dict())
        expected = _plain(result.as_dict())
        problems += [
            f"summary.json: {field} of {facts['name']} is {_short(got.get(field))}; {_short(expected[field])} follows"
            for field in names
            if field not in got or got[field] != expected[field]
        ]
        results.append(result if not is_declared else _as_written(result, got))
    problems += [f"summary.json: {name} is no metric of the recipe" for name in written]
    if not problems:
        problems += _differ("verdict", summary.get("verdict"), overall(results))
    return problems


def _base_of(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is known of how a metric combines seeds: those of Deep500 that observe a run take the median, as do
    those of others that say so."""
    known = str(facts.get("class", "")).startswith(OF_METRICS) or facts.get("over_seeds") == "median"
    return ("combine",) if known else ()


def _as_written(result: MetricResult, got: Mapping[str, Any]) -> MetricResult:
    from dataclasses import replace

    return replace(result, verdict=got.get("verdict", ""), reason=got.get("reason", ""))


def _judged(run: RunView, facts: Mapping[str, Any], metric: Metric) -> MetricResult:
    name, seeds = facts["name"], [str(seed) for seed in run.manifest["seeds"]]
    values = [_number(run.seeds.get(seed, {}).get("values", {}).get(name)) for seed in seeds]
    data = run.manifest.get("data", {})
    stand_in, disturbing = any(half.get("stand_in") for half in data.values()), taints(run.curve, run.manifest)
    about = Circumstances(bool(run.manifest.get("dry_run")), stand_in, disturbing)
    notes = [
        SeedNotes(**run.seeds.get(seed, {}).get("notes", {}).get(name, {}), lasted=_lasted(run, seed)) for seed in seeds
    ]
    return judge(metric, facts.get("target"), values, about, notes)


def _lasted(run: RunView, seed: str) -> float | None:
    """Return a seed's seconds of training and validation, as :class:`deep500.recipe.session.Session` counts them."""
    lines = [line for line in run.curve if str(line["seed"]) == seed]
    times = [line.get(key) for line in lines for key in ("train_seconds", "test_seconds")]
    known = [seconds for seconds in times if seconds is not None]
    return float(sum(known)) if known else None


def _labels(run: RunView) -> list[str]:
    manifest = run.manifest
    facts = (
        (manifest.get("dry_run"), "dry run"),
        (any(half.get("stand_in") for half in manifest.get("data", {}).values()), "stand-in data"),
        (manifest.get("opened"), "open division"),
        (mixed(manifest), RANKS_CHANGED),
        (disturbed(run.curve, manifest), BUSY),
    )
    return [label for applies, label in facts if applies]


def claim_problems(run: RunView) -> list[str]:
    """Claims of the report that do not follow from the run's files, and those that were taken out."""
    if not run.has("claims.json") or not run.is_of_recipe or not run.has("seeds.json"):
        return []
    expected = _plain([{**claim, "by": BY} for claim in derive(run.record)])
    got = [c for c in run.all_claims if isinstance(c, Mapping) and c.get("by") == BY and c.get("type") != "plot"]
    gone = [claim for claim in expected if claim not in got]
    new = [claim for claim in got if claim not in expected]
    problems = [f"claims.json: no {_named(claim)}, which follows from the samples" for claim in gone]
    return problems + [f"claims.json: {_named(claim)} does not follow from the samples" for claim in new]


def _named(claim: Mapping[str, Any]) -> str:
    about = claim.get("series") or claim.get("of") or claim.get("quantity") or claim.get("scheme") or ""
    return f"{claim['type']}{f' of {about}' if about else ''}"


def rule_problems(run: RunView) -> list[str]:
    """Findings in ``rules.json`` that another look does not confirm; of the ledger's only where it is at hand.

    A rule that is not there must not apply: rules came later than some folders.
    """
    written = run._json(RULES_FILE).get("rules", {})
    known = [name for name in written if name in RULES and (name != "F3" or run.ledger)]
    missing = [name for name in RULES if run.is_of_recipe and name not in written]
    fresh = check(run.path, only=[*known, *missing]) if known or missing else {}
    absent = [f"rules.json: {name} was taken out" for name in missing if fresh[name].status != NOT_APPLICABLE]
    words = [
        f"rules.json: {field} of {name} is not what the rule says"
        for name in known
        for field, text in (("rule", summary_of(RULES[name])), ("fix", fresh[name].fix))
        if written[name].get(field) != text
    ]
    return (
        [*absent, *words]
        + [
            f"rules.json: {name} is said to be {_short(written[name].get('status'))} "
            f"({_short(written[name].get('reason'))}); it is {fresh[name].status} ({_short(fresh[name].reason)})"
            for name in known
            if (written[name].get("status"), written[name].get("reason")) != (fresh[name].status, fresh[name].reason)
        ]
        + [f"rules.json: {name} is no rule" for name in written if name not in RULES]
    )


def _differ(what: str, got: Any, expected: Any) -> list[str]:
    return [] if got == expected else [f"summary.json: {what} is {_short(got)}; {_short(expected)} follows"]


def _plain(value: Any) -> Any:
    """Return a value as it is after being written and read."""
    return json.loads(to_json({"value": value}))["value"]


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:67]}..."
