"""What rules look at: the files of one results folder, and the claims that are made from it.

``claims.json`` holds what the run's report says (written by :mod:`deep500.report.claims`), and what a text or a table
of its author says beyond that, so that it can be checked:
``{"claims": [{"type": "speedup", ...}, ...]}``. Types and their fields:

==============  ======================================================================================================
``speedup``     ``value``, ``base``: {``kind``: serial-best | parallel-1 | other, ``seconds``, ``low``, ``high``}
``aggregate``   ``kind`` of the metric: cost | rate | ratio | count | quality, ``mean``: arithmetic | harmonic | total |
                geometric, ``note`` (why geometric)
``centre``      ``series``, ``statistic``: mean | median, ``interval``: t | rank | bootstrap | none
``comparison``  ``verdict``: faster | slower | equivalent | unresolved, ``p``, ``corrected`` (Holm), ``effect``: [low,
                high] as ratios, ``margin``
``percentile``  ``series``, ``q``, ``value``
``parallel``    ``ranks``, ``sync``: barrier | window | none, ``summary``: max | median | pooled, ``rank_p``
``rate``        ``flops`` per second, ``counted_flops`` and ``seconds`` behind it, ``bound`` (None: not known),
                ``dtype``, ``peak_dtype``, ``sparse``; for the roofline ``bytes`` and ``roofs``: {``flops``,
                ``bandwidth``}
``scaling``     ``rows``: [{``processes``, ``seconds``, ``global_batch``, ``quality``, ``quality_low``}],
                ``bounds``: [...], ``labels``: [strong | weak]
``plot``        ``kind``: line | bar | violin | box | ecdf | quantile | scatter, ``x``: ordered | categorical,
                ``from_zero``, ``level`` and ``n`` in the caption
``breakdown``   ``parts``: {name: seconds}, ``wall``
``input``       ``source``: disk | memory | synthetic, ``end_to_end``, ``cold``, ``labelled``
``baseline``    ``device`` and ``own_device``: {``year``, ``peak_flops``}, ``normalised``, ``tuning_runs``,
                ``own_tuning_runs``, ``measures``: [time_to_accuracy, final_accuracy, cost, ...]
``headline``    ``quantity``: speed | quality, ``config_sha256``
``workload``    ``shape``, ``native_shape``, ``flops_per_sample``, ``fixed_flops_per_sample``
==============  ======================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from deep500.results.files import read_json, read_lines
from deep500.results.record import MANIFEST, METRICS, SUMMARY
from deep500.results.stats import STATS

CLAIMS, LEDGER = "claims.json", "ledger.jsonl"
PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "not applicable"


@dataclass(frozen=True)
class Finding:
    """What a rule says of a run: ``pass``, ``fail`` or ``not applicable``, why, and for a failure what to do."""

    status: str
    reason: str
    fix: str = ""


def passed(reason: str) -> Finding:
    """The rule holds."""
    return Finding(PASS, reason)


def failed(reason: str, fix: str) -> Finding:
    """The rule is broken."""
    return Finding(FAIL, reason, fix)


def not_applicable(reason: str) -> Finding:
    """The run does nothing that the rule is about."""
    return Finding(NOT_APPLICABLE, reason)


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

    @cached_property
    def series(self) -> dict[str, dict[str, Any]]:
        """The series of ``stats.json``."""
        return self._json(STATS).get("series", {})

    @cached_property
    def curve(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        return read_lines(self.path / METRICS)

    @cached_property
    def ledger(self) -> list[dict[str, Any]]:
        """The runs of the recipe's family, beside the runs themselves or within this one."""
        own = self.path / LEDGER
        return read_lines(own if own.exists() else self.path.parent / LEDGER)

    def claims(self, *types: str) -> list[dict[str, Any]]:
        """Claims of these types."""
        return [claim for claim in self._claims if claim.get("type") in types]

    @cached_property
    def _claims(self) -> list[dict[str, Any]]:
        return [*self._json(CLAIMS).get("claims", []), *self.more]

    def _json(self, name: str) -> dict[str, Any]:
        return read_json(self.path / name) if (self.path / name).exists() else {}
