"""What was planned and measured for one network or several, as a page of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deep500.results.files import write_atomic
from deep500.results.recomputation import RecomputationRecord
from deep500.results.report import render_template
from deep500.results.report_recomputation import recomputation_view


def write_page(path: Path, title: str, about: Sequence[str], records: Mapping[str, RecomputationRecord]) -> Path:
    """Write one page that loads nothing from anywhere; returns its path. Raises ResultsError if that fails.

    Args:
        path: of the file.
        title: of the page.
        about: lines below it, such as the machine.
        records: by the name of their part of the page.
    """
    parts = [(name, recomputation_view(record)) for name, record in records.items()]
    write_atomic(path, render_template("recomputation_page.html.j2", title=title, about=about, parts=parts))
    return path
