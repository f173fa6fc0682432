"""Claims of a run's report, derived from its files, so that the rules judge real runs and not only what an author
writes down. The types of claims and their fields are listed in :mod:`deep500.results.rules.claim_types`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.report.figures import Figure
from deep500.report.page import view
from deep500.results.claims import BY as BY
from deep500.results.claims import derive as claims_of_files
from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.record import Record
from deep500.results.rules import CLAIMS


def write_claims(path: Path) -> list[dict[str, Any]]:
    """Write ``claims.json``: what the report of a run claims, and what an author wrote there before.

    Args:
        path: results folder with its statistics and summary.

    Raises:
        ResultsError: the folder cannot be read or written.
    """
    claims = [*authors_claims(path), *({**claim, "by": BY} for claim in derive(Record(path)))]
    write_atomic(path / CLAIMS, to_json({"claims": claims}) + "\n")
    return claims


def derive(record: Record) -> list[dict[str, Any]]:
    """Derive the claims of what a run's report shows: what follows from its files, and every plot."""
    claims = claims_of_files(record)
    return [*claims, *plot_claims(figures_of(view(record, claims=[*authors_claims(record.path), *claims])))]


def authors_claims(path: Path) -> list[Any]:
    """The claims in a folder that its author wrote."""
    before = read_json(path / CLAIMS).get("claims", []) if (path / CLAIMS).exists() else []
    return [claim for claim in before if not isinstance(claim, Mapping) or claim.get("by") != BY]


def figures_of(shown: Mapping[str, Any]) -> Iterator[Figure]:
    """All plots of a run's page."""
    for figures in shown["figures"].values():
        yield from figures
    for figure in (
        *shown["curves"],
        *(exhibit["figure"] for exhibit in shown["exhibits"] if "figure" in exhibit),
        shown["breakdown"],
        *shown["bounds"],
        *shown["scaling_figures"],
        shown["ranks_figure"],
        *(shown["recomputation"] or {"figures": ()})["figures"],
    ):
        if figure is not None:
            yield figure


def plot_claims(figures: Iterator[Figure] | Sequence[Figure]) -> list[dict[str, Any]]:
    """Return what was drawn, once per question and kind of mark, with the smallest n."""
    drawn: dict[tuple[str, str], dict[str, Any]] = {}
    for claim in (claim for figure in figures for claim in figure.claims):
        key = (claim["question"], claim["kind"])
        if key not in drawn or claim["n"] < drawn[key]["n"]:
            drawn[key] = claim
    return list(drawn.values())
