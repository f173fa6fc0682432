"""Whether this version reads the files of a results folder: asked before any figure is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.results.files import read_json
from deep500.results.record import MANIFEST, SCHEMA, SUMMARY
from deep500.results.stats import SCHEMA as STATS_SCHEMA
from deep500.results.stats import STATS

PARTS = {
    "recipe": str,
    "started": str,
    "division": str,
    "seeds": list,
    "resolved": dict,
    "data": dict,
    "device": dict,
    "argv": list,
    "warnings": list,
}
"""What a run's manifest holds, and of what type it is."""


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
    schema = manifest.get("schema", None if of_a_run else SCHEMA)
    _expect(path / MANIFEST, schema == SCHEMA, f"schema {schema!r}", repr(SCHEMA))
    if of_a_run:
        _parts(path / MANIFEST, manifest, PARTS)
    if (path / SUMMARY).exists():
        summary = read_json(path / SUMMARY)
        _parts(path / SUMMARY, summary, {"metrics": list, **({"verdict": str} if of_a_run else {})})
        for metric in summary["metrics"]:
            _expect(path / SUMMARY, isinstance(metric, Mapping), f"metric {metric!r}", "an object")
            _parts(path / SUMMARY, metric, {"name": str, "values": list})
    if (path / STATS).exists():
        stats = read_json(path / STATS)
        schema = stats.get("schema", STATS_SCHEMA)
        _expect(path / STATS, schema == STATS_SCHEMA, f"schema {schema!r}", repr(STATS_SCHEMA))
        _parts(path / STATS, stats, {"series": dict})
        for stat in stats["series"].values():
            _parts(path / STATS, stat, {"launches": list, "estimates": list})


def _parts(path: Path, content: Mapping[str, Any], parts: Mapping[str, type]) -> None:
    wrong = [
        f"{name} {content[name]!r:.40}" if name in content else f"no {name}"
        for name, kind in parts.items()
        if not isinstance(content.get(name), kind)
    ]
    _expect(path, not wrong, ", ".join(wrong), ", ".join(f"{name}: {kind.__name__}" for name, kind in parts.items()))


def _expect(path: Path, holds: bool, got: str, expected: str) -> None:
    if not holds:
        raise ResultsError(f"{path}: got {got}; expected {expected}: read it with the version that wrote it")
