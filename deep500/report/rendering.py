"""Templates, style and script of pages, and how numbers are written on them."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deep500.measure.launches import basis
from deep500.measure.units import unit_for
from deep500.results.files import to_json
from deep500.results.verdict import standing_words

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


def asset(name: str) -> str:
    """The text of ``report.css`` or ``report.js``, for pages that are written elsewhere."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def render_template(name: str, **content: Any) -> str:
    """One of the pages in ``templates`` as text: all is escaped, and no script can run but the page's own."""
    from markupsafe import Markup

    script = asset("report.js")
    # the page's own policy lets this script run and no other, whatever a name in a manifest may hold
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return _environment().get_template(name).render(script=Markup(script), script_sha256=digest, **content)


@functools.cache  # compiling the templates takes longer than many a run that is reported
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["number"] = format_number
    environment.filters["pretty"] = to_json
    environment.filters["time"] = format_time
    environment.filters["unit"] = lambda seconds: unit_for(seconds)[1]
    environment.filters["basis"] = holds_over
    environment.filters["standing"] = standing_words
    environment.filters["words"] = lambda name: str(name).replace("_", " ")
    return environment


def holds_over(estimate: Mapping[str, Any]) -> str:
    """Say what an interval in ``stats.json`` holds over."""
    return basis(estimate["launches"], estimate["ci"].get("cluster") or "")


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
