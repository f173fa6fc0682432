"""Every environment variable of ours stands on its page, and the page names none that nothing reads."""

from __future__ import annotations

import re
from pathlib import Path

import deep500

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\bDEEP500_(?!H\b|EXPORT\b)[A-Z][A-Z_]*[A-Z]\b")


def test_the_page_and_the_code_name_the_same_variables() -> None:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "deep500").rglob("*.py"))
    read = {name for text in texts for name in NAME.findall(text)}
    read |= set(NAME.findall((ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")))
    told = set(NAME.findall((ROOT / "docs" / "environment.md").read_text(encoding="utf-8")))
    assert len(read) >= 9 and read == told


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {deep500.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
