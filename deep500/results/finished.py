"""A run that has ended, as exports and queries read it: of one that failed, what its seeds came to before.

The summary of a failed run judges nothing. Its seeds that were trained to their end have values all the same; a seed
that never began is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.measure.standing import OBSERVATION
from deep500.results.files import read_json, read_lines
from deep500.results.layout import check_layout
from deep500.results.outcomes import FAILED, UNJUDGED, MetricOutcome, outcomes
from deep500.results.record import MANIFEST, METRICS, SUMMARY, Record


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended, finished or failed.

    Attributes:
        path: the results folder.
        manifest, summary: its files.
        curve: the lines of all epochs.
        notes: entries of ``seeds.json`` by seed as text, of seeds that were trained to their end.
        seeds: those that began.
        metrics: their outcomes.
    """

    path: Path
    manifest: Mapping[str, Any]
    summary: Mapping[str, Any]
    curve: Sequence[dict[str, Any]]
    notes: Mapping[str, Mapping[str, Any]]
    seeds: Sequence[int]
    metrics: Sequence[MetricOutcome]

    @property
    def labels(self) -> list[str]:
        """Words that stand wherever a number of the run does."""
        return list(self.summary["labels"])

    def lines(self, seed: int) -> list[dict[str, Any]]:
        """The epochs of a seed."""
        return [line for line in self.curve if line["seed"] == seed]

    def is_whole(self, seed: int) -> bool:
        """Whether a seed was trained to its end."""
        return self.summary.get("status") != "failed" or str(seed) in self.notes


def read_finished(path: Path) -> EndedRun:
    """The run in a folder.

    Raises:
        ResultsError: it is unfinished, damaged, or of another version.
    """
    manifest = read_json(path / MANIFEST)
    if not (path / SUMMARY).exists():
        raise ResultsError(f"{path}: got an unfinished run; expected a finished one: go on with --resume {path}")
    check_layout(path)
    summary, record = read_json(path / SUMMARY), Record(path)
    curve, notes, seeds = read_lines(path / METRICS), record.seeds(), list(manifest["seeds"])
    if summary.get("status") == "failed":
        known = {line["seed"] for line in curve} | {launch for _, launch in record.samples.names()}
        left = [seed for seed in seeds if str(seed) not in notes]
        failed = [seed for seed in left if seed in known] or left[:1]
        seeds = [seed for seed in seeds if str(seed) in notes or seed in failed]
        about = (manifest.get("resolved") or {}).get("metrics") or ()
        values = [record.finished_seed(seed) or {} for seed in seeds]
        metrics = [_unjudged(facts, [of_seed.get(facts["name"]) for of_seed in values], summary) for facts in about]
        summary = {**summary, "metrics": metrics}
    return EndedRun(path, manifest, summary, curve, notes, seeds, outcomes({**manifest, "seeds": seeds}, summary))


def _unjudged(facts: Mapping[str, Any], values: list[float | None], summary: Mapping[str, Any]) -> dict[str, Any]:
    """A metric of a run that failed, in the form of ``summary.json``."""
    open_ = facts.get("target") is None or {"stand-in data", "dry run"} & {*summary["labels"]}
    return {
        **{name: facts.get(name) for name in ("name", "unit", "direction", "target")},
        **{"values": values, "value": None, "low": None, "high": None},
        **{"verdict": UNJUDGED if open_ else FAILED, "reason": "the run failed", "standing": OBSERVATION},
    }
