"""``division.json``: how a network was divided among ranks, node by node, for the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.formats import DIVISION_SCHEMA

DIVISION = "division.json"


def write_division(folder: Path, plan: Any, rows: Sequence[Any]) -> None:
    """Write it into a results folder.

    Args:
        folder: of the run.
        plan: a :class:`~deep500.transformations.parallel.plan_file.ParallelPlan`.
        rows: of its :meth:`~deep500.transformations.parallel.plan_file.ParallelPlan.explain`.
    """
    facts = {name: getattr(plan, name) for name in ("ranks", "seconds", "nbytes", "memory")}
    content = {"schema": DIVISION_SCHEMA, **facts, "nodes": [row._asdict() for row in rows]}
    write_atomic(folder / DIVISION, to_json(content) + "\n")


def read_division(folder: Path) -> dict[str, Any] | None:
    """That of a results folder; None where the network was not divided."""
    return read_json(folder / DIVISION) if (folder / DIVISION).exists() else None
