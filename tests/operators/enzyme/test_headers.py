"""Headers are parsed once for each kind of compilation, and again where what was made of them is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from deep500.operators.enzyme.engine import Clang
from deep500.operators.enzyme.headers import FILE, HEADERS, parsed_headers

CLANG = Clang(("zig", "c++"), "zig 1", is_zig=True)


def test_headers_are_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each compiler and each set of switches; what is cut short is not taken."""
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path / "cache"))
    commands = []

    def compiled(command: list[str]) -> int:
        commands.append(command)
        Path(command[-1]).write_text("parsed")
        return 0

    first = parsed_headers(CLANG, ["-O2"], compiled)
    assert first == parsed_headers(CLANG, ["-O2"], compiled) and len(commands) == 1
    assert commands[0][:3] == ["zig", "c++", "-O2"] and str(HEADERS[0]) in commands[0]
    file = Path(first[-1])
    assert first[:3] == ["-Xclang", "-include-pch", "-Xclang"] and file.name == FILE and file.read_text() == "parsed"
    other = parsed_headers(CLANG, ["-O2", "-ffast-math"], compiled)
    newer = parsed_headers(Clang(("zig", "c++"), "zig 2", is_zig=True), ["-O2"], compiled)
    assert len({first[-1], other[-1], newer[-1]}) == len(commands) == 3
    file.write_text("par")
    assert parsed_headers(CLANG, ["-O2"], compiled) == first and len(commands) == 4 and file.read_text() == "parsed"


def test_a_compiler_that_cannot_parse_them_goes_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))
    assert parsed_headers(CLANG, [], lambda command: 1) == [] and not list(tmp_path.rglob(FILE))
