"""The scatter of one recipe's runs on this machine, from earlier runs beside the ones that are compared.

Runs that were made alike (same settings, same environment) and yet took other times show what differs between processes
and between times of day, which nothing within a run shows. Each group of such runs counts with one degree of freedom
less than it has runs; groups of other settings count too, since a spread is relative.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import ResultsError
from deep500.measure.fingerprint import fingerprint
from deep500.measure.launch_comparison import Floor
from deep500.results.files import read_json
from deep500.results.record import MANIFEST, full_hash
from deep500.results.sealing import SUMS
from deep500.results.stats import STATS

MOST_RUNS = 50
"""At most so many of the newest runs are read."""

FEWEST_FREEDOM = 3
"""With fewer degrees of freedom (four runs alike have three) a spread says next to nothing."""

MACHINE = ("cpu", "cores", "usable_cores", "memory_bytes", "machine")
"""Facts of an environment that are the same on one machine."""


def floor_from_earlier(runs: Sequence[Path], series: str, launches: int) -> Floor | None:
    """The spread between earlier runs in the folders of some runs, as a floor for comparing these.

    Args:
        runs: those that are compared; they do not count themselves.
        series: whose medians.
        launches: how many of each: the median over that many launches varies less than that of one.

    Returns:
        None where the runs are of different machines, or fewer earlier ones are alike than show anything.
    """
    mine = [read_json(run / MANIFEST) for run in runs]
    if len({full_hash(_machine(manifest)) for manifest in mine}) > 1:
        return None
    groups: dict[str, list[float]] = {}
    for manifest, stats in _earlier(runs):
        medians = [launch["median"] for launch in stats["series"].get(series, {}).get("launches", ())][:launches]
        here = manifest.get("recipe") == mine[0].get("recipe") and _machine(manifest) == _machine(mine[0])
        if here and not manifest.get("dry_run") and len(medians) == launches and min(medians) > 0:
            groups.setdefault(_settings(manifest), []).append(math.log(float(np.median(medians))))
    alike = [group for group in groups.values() if len(group) > 1]
    freedom = sum(len(group) - 1 for group in alike)
    squares = sum(float(np.var(group)) * len(group) for group in alike)
    if freedom < FEWEST_FREEDOM or not squares:
        return None
    return Floor(math.sqrt(squares / freedom), freedom, f"between {freedom + len(alike)} earlier runs")


def _earlier(runs: Sequence[Path]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Manifest and figures of the newest finished runs beside these, without any that were altered."""
    mine = {run.resolve() for run in runs}
    folders = {run.parent for run in mine}
    beside = {place.parent for folder in folders for place in folder.glob(f"*/{SUMS}")} - mine
    for run in sorted(beside, key=lambda run: run.name, reverse=True)[:MOST_RUNS]:
        try:
            if _as_sealed(run):
                yield read_json(run / MANIFEST), read_json(run / STATS)
        except (ResultsError, OSError):
            continue  # it counts as little as one that is not there


def _as_sealed(run: Path) -> bool:
    """Return whether the two files that are read here are those that were sealed."""
    sealed = (run / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    return all(
        f"{hashlib.sha256((run / name).read_bytes()).hexdigest()}  {name}" in sealed for name in (MANIFEST, STATS)
    )


def _machine(manifest: Mapping[str, Any]) -> list[Any]:
    environment = manifest.get("environment") or {}
    return [environment.get(name) for name in MACHINE]


def _settings(manifest: Mapping[str, Any]) -> str:
    """The same for two runs that differ in nothing but seeds and the time of day."""
    values = dict((manifest.get("resolved") or {}).get("recipe") or {})
    values.pop("seed", None)
    facts = [values, *(manifest.get(name) for name in ("recipe_sha256", "backend", "device", "ranks"))]
    return full_hash([*facts, fingerprint(manifest.get("environment") or {})])
