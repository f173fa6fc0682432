"""The version of a results folder's files: asked before any figure is made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.reading import validate
from deep500.results.files import read_json, read_lines
from deep500.results.formats import OF_A_RUN
from deep500.results.record import MANIFEST, SCHEMA, SUMMARY
from deep500.results.samples import JOURNAL
from deep500.results.stats import SCHEMA as STATS_SCHEMA
from deep500.results.stats import STATS


def check_layout(path: Path, *, of_a_run: bool = True) -> None:
    """Refuse a folder that another version wrote, or that is damaged.

    Args:
        path: results folder.
        of_a_run: require all files of a recipe run; without it missing files are accepted, since rules look at
            comparisons too, and at folders that others made.

    Raises:
        ResultsError: with the file and what is wrong with it.
    """
    manifest = read_json(path / MANIFEST)
    _schema(path / MANIFEST, manifest.get("schema", None if of_a_run else SCHEMA), SCHEMA)
    if of_a_run:
        validate(manifest, OF_A_RUN[MANIFEST], path / MANIFEST)
    if (path / SUMMARY).exists():
        summary = read_json(path / SUMMARY)
        if of_a_run:
            validate(summary, OF_A_RUN[SUMMARY], path / SUMMARY)
            _one_value_per_seed(path / SUMMARY, summary, len(manifest["seeds"]))
    if (path / STATS).exists():
        stats = read_json(path / STATS)
        _schema(path / STATS, stats.get("schema", STATS_SCHEMA), STATS_SCHEMA)
        if of_a_run:
            _as_many_samples(path, stats["series"])


def _schema(path: Path, got: object, expected: str) -> None:
    if got != expected:
        raise ResultsError(f"{path}: got schema {got!r}; expected {expected!r}: read it with the version that wrote it")


def _one_value_per_seed(path: Path, summary: Mapping[str, Any], seeds: int) -> None:
    for metric in summary["metrics"]:
        if len(metric["values"]) != seeds:
            raise ResultsError(
                f"{path}: got {len(metric['values'])} values of {metric['name']!r}; expected {seeds}, one per seed: "
                "restore the file"
            )


def _as_many_samples(path: Path, series: Mapping[str, Any]) -> None:
    """Figures must be of the samples that are there: of how many, they say themselves."""
    counted: Counter[tuple[str, int]] = Counter()
    for block in read_lines(path / JOURNAL):
        counted[block["series"], block["launch"]] += block["n"]
    for name, stat in series.items():
        for launch in stat["launches"]:
            there = counted[name, launch["launch"]]
            if launch["n"] != there or launch["cut"]["index"] > there:
                raise ResultsError(
                    f"{path / STATS}: got {launch['n']} samples of {name}.{launch['launch']}, {launch['cut']['index']} "
                    f"of them cut; expected {there}, which {JOURNAL} counts: restore the files"
                )
