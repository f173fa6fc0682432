"""The reference of the site: every public name on exactly one page, and no page of hundreds of entries."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path

import pytest

import deep500

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference.py"
MOST = 60
"""Entries of a page."""


@pytest.mark.long
@pytest.mark.backend("pytorch", "tensorflow", "jax", "onnxruntime")
def test_every_public_name_has_one_place() -> None:
    written = runpy.run_path(str(REFERENCE))
    pages = {module: names for modules in written["entries"]().values() for module, names in modules.items()}
    counted = Counter(f"{module}.{name}" for module, names in pages.items() for name in names)
    assert max(counted.values()) == 1 and max(map(len, pages.values())) <= MOST
    assert "from_native" in pages["deep500.frameworks.pytorch"] and "Executor" in pages["deep500.frameworks.jax"]
    texts = dict(written["pages"]())
    assert set(texts) == {*(f"{module}.md" for module in pages), "index.md", "commands.md"}
    unplaced = [name for name in deep500.__all__ if f"{{py:obj}}`{name}`" in texts["index.md"]]
    assert not unplaced, f"{unplaced}: name their modules in docs/reference.py"
    assert "## deep500 compare" in texts["commands.md"] and "--backend" in texts["commands.md"]
