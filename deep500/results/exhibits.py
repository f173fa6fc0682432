"""``exhibits.json``: what a task shows besides curves, see :mod:`deep500.tasks.gallery`; of a run's first seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.reading import validate
from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.formats import EXHIBITS_SCHEMA, FILES

EXHIBITS = "exhibits.json"


def write_exhibits(path: Path, task: str, seed: int, exhibits: Sequence[Mapping[str, Any]]) -> None:
    """Write them into a results folder.

    Raises:
        ResultsError: an exhibit that is not as its kind has it.
    """
    content = {"schema": EXHIBITS_SCHEMA, "task": task, "seed": seed, "exhibits": list(exhibits)}
    validate(content, FILES[EXHIBITS], path / EXHIBITS)
    write_atomic(path / EXHIBITS, to_json(content) + "\n")


def add_exhibits(path: Path, seed: int, exhibits: Sequence[Mapping[str, Any]]) -> None:
    """Write what metrics show behind what the task does."""
    if exhibits:
        task = read_json(path / EXHIBITS)["task"] if (path / EXHIBITS).exists() else ""
        write_exhibits(path, task, seed, [*read_exhibits(path), *exhibits])


def read_exhibits(path: Path) -> list[dict[str, Any]]:
    """Those of a results folder; none if it has no such file."""
    return read_json(path / EXHIBITS)["exhibits"] if (path / EXHIBITS).exists() else []
