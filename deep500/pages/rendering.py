"""Pages from templates: all is escaped, nothing is loaded from anywhere, and no script runs but the page's own."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deep500.measure.units import unit_for

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
SCRIPT = "report.js"


def render_page(template: str, filters: Mapping[str, Callable[..., Any]] | None = None, **content: Any) -> str:
    """One of the pages in ``templates`` as text.

    Args:
        template: its file.
        filters: functions that it uses by name, beside ``number``, ``time``, ``under``, ``unit`` and ``words``.
        content: its variables.

    Example:
        >>> text = render_page("findings.html.j2", lines=["They agree."], figures=[], tables=[])
        >>> ">They agree.</h1>" in text, "src=" in text
        (True, False)
    """
    from markupsafe import Markup

    script = (TEMPLATES / SCRIPT).read_text(encoding="utf-8")
    # the page's own policy lets this script run and no other, whatever a name in a manifest may hold
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    environment = _environment()
    environment.filters.update(filters or {})
    return environment.get_template(template).render(script=Markup(script), script_sha256=digest, **content)


@functools.cache  # compiling the templates takes longer than many a run that is reported
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = format_number
    environment.filters["under"] = _name_cells
    environment.filters["time"] = format_time
    environment.filters["unit"] = lambda seconds: unit_for(seconds)[1]
    environment.filters["words"] = lambda name: str(name).replace("_", " ")
    return environment


def _name_cells(row: str, names: Sequence[str]) -> str:
    """Give each cell of a row its column's name, which a phone shows before it."""
    from markupsafe import Markup, escape

    columns = iter(names)
    return Markup(re.sub(r"<t[dh]\b", lambda cell: f'{cell[0]} data-head="{escape(next(columns))}"', row))


def format_number(value: Any) -> str:
    """A number in at most four significant digits (integers whole), ``not measured`` for None.

    Example:
        >>> format_number(97.4567), format_number(60000), format_number(None)
        ('97.46', '60000', 'not measured')
    """
    if value is None:
        return "not measured"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_time(seconds: Any, like: float | None = None, bare: bool = False) -> str:
    """Seconds in a unit that suits them, or that suits ``like``; without the unit's name if ``bare``.

    Example:
        >>> format_time(0.0021), format_time(0.0021, like=3.0, bare=True)
        ('2.1 ms', '0.0021')
    """
    factor, unit = unit_for(seconds if like is None else like)
    return f"{factor * seconds:.4g}" if bare else f"{factor * seconds:.4g} {unit}"
