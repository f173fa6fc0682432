"""With ``--json`` every command prints one JSON object and nothing else."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from deep500 import cli
from deep500.networks import create
from tests.results.report_cases import finished

TEXT = {"rules"}
"""Commands whose answer is a text for people: rules as they are written."""


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name not in TEXT])
def test_every_command_has_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*cli.TWO_WORDS.get(command, command).split(), "--help"]) == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("report RUN", "files"),
        ("verify RUN", "problems"),
        ("publish check RUN", "R1"),
        ("publish export RUN --to csv", "files"),
        ("query 'SELECT recipe FROM runs' --out RUNS", "rows"),
        ("list models", "models"),
        ("tools env", "sha256"),
        ("new scheme ring", "files"),
        ("tools cache", "libraries"),
        ("optimize mlp.onnx -o out.onnx --budget 0 --no-measure", "files"),
    ],
)
def test_it_is_one_object(
    words: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"RUN": str(finished(tmp_path / "runs").path), "RUNS": "runs"}
    create("mlp", shape=(4,), classes=3).to_onnx(Path("mlp.onnx"))
    typed = [places.get(word, word) for word in shlex.split(words)]
    capsys.readouterr()
    assert cli.main([*typed, "--json"]) in (0, 1)
    said = json.loads(capsys.readouterr().out)
    assert key in said and all(Path(file).exists() for file in said.get("files", ()))
