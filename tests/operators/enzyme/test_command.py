"""``deep500 tools operator``: what it says of an operator, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deep500.cli import main
from tests.operators.enzyme_sources import elementwise
from tests.operators.enzyme_units import needs_engine

BODY = "for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * SCALE;\nif (n > 100000) y[4] = x[3];"


@pytest.mark.long
@needs_engine
def test_all_that_a_check_saw_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaled.cpp"
    file.write_text(elementwise("scaled", BODY))
    assert main(["tools", "operator", str(file), "--define", "SCALE=3", "--input", "float64:N", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["right"] and told["jvp"] is True and told["ran"] == told["blocks"] - 1 and told["exact_points"] > 1
    assert "y[4] = x[3]" in told["warnings"][0]


@needs_engine
def test_what_cannot_be_derived_is_said_and_the_exit_code_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.cpp").write_text(elementwise("broken", "y[0] = nothing;"))
    assert main(["tools", "operator", str(tmp_path / "broken.cpp")]) == 1
    assert "undeclared identifier 'nothing'" in capsys.readouterr().out
