"""The tables as one page in the report's style, which loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from deep500.pages.rendering import render_page
from deep500.results.files import write_atomic


def write_page(path: Path, title: str, about: Sequence[str], tables: Mapping[str, str]) -> Path:
    """Write the page; returns its path. Raises ResultsError if it cannot be written.

    Args:
        path: of the file.
        title: of the page.
        about: lines below it: the machine, and what is wrong.
        tables: heading -> text in columns.
    """
    write_atomic(path, render_page("text_tables.html.j2", title=title, about=about, tables=tables))
    return path
