"""The view that rules have of a run: the files of one results folder, and the claims that are made from it.

Claims are in ``claims.json``; their types and fields are in :mod:`deep500.results.rules.claim_types`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from deep500.results.files import read_json, read_lines
from deep500.results.record import MANIFEST, METRICS, SEEDS, SUMMARY, Record
from deep500.results.rules.claim_types import sound
from deep500.results.samples import SampleStore
from deep500.results.stats import STATS

CLAIMS, LEDGER = "claims.json", "ledger.jsonl"
PASS, FAIL, MISSING, NOT_APPLICABLE = "pass", "fail", "missing", "not applicable"
FLAGGED = (FAIL, MISSING)
"""States that make ``deep500 publish check`` end with 1."""
LARGEST_CHECKPOINT = 2**28
"""Bytes of the largest checkpoint that is read to compare facts with it."""


@dataclass(frozen=True)
class RuleFinding:
    """The finding of a rule: ``pass``, ``fail``, ``missing`` or ``not applicable``, why, and what to do about it.

    ``missing``: the rule is about this run, and does not find what it needs to judge it.
    """

    status: str
    reason: str
    fix: str = ""


def passed(reason: str) -> RuleFinding:
    """The rule holds."""
    return RuleFinding(PASS, reason)


def failed(reason: str, fix: str) -> RuleFinding:
    """The rule is broken."""
    return RuleFinding(FAIL, reason, fix)


def missing(reason: str, fix: str) -> RuleFinding:
    """The folder lacks what the rule needs."""
    return RuleFinding(MISSING, reason, fix)


def not_applicable(reason: str) -> RuleFinding:
    """The run does nothing that the rule is about."""
    return RuleFinding(NOT_APPLICABLE, reason)


@dataclass
class RunView:
    """A results folder as rules see it; what a run does not have is empty.

    ``more`` are claims beyond those in the folder, such as those of a page that compares it with another.
    """

    path: Path
    manifest: dict[str, Any] = field(default_factory=dict)
    more: Sequence[dict[str, Any]] = ()

    def __post_init__(self) -> None:
        self.manifest = read_json(self.path / MANIFEST)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """``summary.json``."""
        return self._json(SUMMARY)

    def newest_file(self, seed: int) -> Path | None:
        """The file of a seed's newest checkpoint; None where there is none, or one too large for a comparison."""
        newest = list_checkpoints(self.path / "checkpoints" / f"seed-{seed}")[-1:]
        return newest[0] if newest and newest[0].stat().st_size <= LARGEST_CHECKPOINT else None

    def newest_checkpoint(self, seed: int) -> dict[str, Any] | None:
        """The content of :meth:`newest_file`, see :func:`~deep500.results.checkpoint.load_checkpoint`."""
        return None if (file := self.newest_file(seed)) is None else load_checkpoint(file)

    @cached_property
    def series(self) -> dict[str, dict[str, Any]]:
        """The series of ``stats.json``."""
        return self._json(STATS).get("series", {})

    @cached_property
    def curve(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        return read_lines(self.path / METRICS)

    @cached_property
    def seeds(self) -> dict[str, dict[str, Any]]:
        """``seeds.json``."""
        return self._json(SEEDS)

    @cached_property
    def ledger(self) -> list[dict[str, Any]]:
        """The runs of the recipe's family, beside the runs themselves; where there is none, within this one."""
        beside = self.path.absolute().parent / LEDGER
        return read_lines(beside if beside.exists() else self.path / LEDGER)

    @property
    def samples(self) -> SampleStore:
        """The samples."""
        return self.record.samples

    @cached_property
    def record(self) -> Record:
        """Reads the folder."""
        return Record(self.path)

    @property
    def is_of_recipe(self) -> bool:
        """Return whether it is the run of a recipe, and not a comparison or a folder of another program."""
        return "recipe" in self.manifest and "seeds" in self.manifest and "comparison" not in self.manifest

    @property
    def is_finished(self) -> bool:
        """Return whether a recipe was trained to its end."""
        return self.is_of_recipe and self.summary.get("status") == "finished"

    def claims(self, *types: str) -> list[dict[str, Any]]:
        """Claims of these types that are sound."""
        return [claim for claim in self.sound_claims if claim["type"] in types]

    @cached_property
    def sound_claims(self) -> list[dict[str, Any]]:
        """All claims with a known type and known fields."""
        return sound(self.all_claims)

    @cached_property
    def all_claims(self) -> list[Any]:
        """The claims as they were written, also those that rule D1 refuses."""
        return [*self._json(CLAIMS).get("claims", []), *self.more]

    def has(self, name: str) -> bool:
        """Return whether a file of this name is in the folder."""
        return (self.path / name).exists()

    def _json(self, name: str) -> dict[str, Any]:
        return read_json(self.path / name) if (self.path / name).exists() else {}
