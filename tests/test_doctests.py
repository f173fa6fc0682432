"""The examples in all docstrings: of the core, of every backend whose framework is installed, of the plugins."""

from __future__ import annotations

import doctest
import importlib
import os
from pathlib import Path

import pytest

import deep500
from tests.conftest import load_backend

PACKAGE = Path(deep500.__file__).parent
PROMPT = ">>> "


def sources() -> dict[str, str]:
    """Module name -> its source, of every module below ``deep500`` (links included) that has an example."""
    texts = {}
    for folder, _, names in os.walk(PACKAGE, followlinks=True):
        for path in (Path(folder, name) for name in names if name.endswith(".py")):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            text = path.read_text(encoding="utf-8")
            if PROMPT in text:
                texts[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = text
    return dict(sorted(texts.items()))


SOURCES = sources()


@pytest.mark.parametrize("name", SOURCES)
def test_the_examples_give_what_they_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("deep500.frameworks."):
        load_backend(name.split(".")[2])  # skips with the reason where the framework is missing
    monkeypatch.chdir(tmp_path)  # an example may write files
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0, "see the captured output for what was expected and what came"
    assert result.attempted == SOURCES[name].count(PROMPT), "an example stands where doctest does not look for it"


def test_all_parts_have_examples() -> None:
    parts = {name.split(".")[1] for name in SOURCES}
    assert parts >= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert sum(text.count(PROMPT) for text in SOURCES.values()) > 300
