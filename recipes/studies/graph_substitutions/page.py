"""The tables as one page in the report's style, which loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from deep500.report.rendering import asset
from deep500.results.files import write_atomic


def write_page(path: Path, title: str, about: Sequence[str], tables: Mapping[str, str]) -> Path:
    """Write the page; returns its path. Raises ResultsError if it cannot be written.

    Args:
        path: of the file.
        title: of the page.
        about: lines below it: the machine, and what is wrong.
        tables: heading -> text in columns.
    """
    style = asset("report.css")
    body = [
        Markup('<p class="brand">Deep500</p><h1>{}</h1>').format(title),
        *(Markup("<p>{}</p>").format(line) for line in about),
    ]
    body += [Markup("<section><h2>{}</h2><pre>{}</pre></section>").format(*pair) for pair in tables.items()]
    write_atomic(
        path,
        str(
            Markup(
                '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{}</title>'
                '<meta name="viewport" content="width=device-width"><style>{}\npre {{overflow-x: auto}}</style></head>'
                "<body><main>{}</main></body></html>\n"
            ).format(title, Markup(style), Markup("\n").join(body))
        ),
    )
    return path
