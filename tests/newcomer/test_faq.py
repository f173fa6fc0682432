"""The errors on the page of questions are those that the commands print, letter for letter."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from deep500 import cli

pytest.importorskip("torch")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faq.md"
ERRORS = re.findall(r"^```text\n\$ deep500 (.*)\n(deep500: error: .*)\n```", PAGE.read_text("utf-8"), re.MULTILINE)


def test_twenty_errors() -> None:
    assert len(ERRORS) == PAGE.read_text("utf-8").count("```text") == 20


@pytest.mark.parametrize(("words", "line"), ERRORS, ids=[words for words, _ in ERRORS])
def test_it_says_so(
    words: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA_ROOT", raising=False)
    assert cli.main(shlex.split(words)) in (2, 3)
    said = [text for text in capsys.readouterr().err.splitlines() if text.startswith("deep500: error: ")]
    pattern = ".*".join(map(re.escape, line.split("...")))
    assert len(said) == 1 and re.fullmatch(pattern, said[0]), said
