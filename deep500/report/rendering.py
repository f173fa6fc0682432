"""Pages about runs: how intervals and standings of ``stats.json`` are written on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deep500.measure.launches import basis
from deep500.pages.rendering import render_page
from deep500.results.files import to_json
from deep500.results.verdict import standing_words


def render_template(name: str, **content: Any) -> str:
    """A page about runs, see :func:`deep500.pages.rendering.render_page`."""
    filters: dict[str, Callable[..., Any]] = {"pretty": to_json, "basis": holds_over, "standing": standing_words}
    return render_page(name, filters, **content)


def holds_over(estimate: Mapping[str, Any]) -> str:
    """Say what an interval in ``stats.json`` holds over."""
    return basis(estimate["launches"], estimate["ci"].get("cluster") or "")
