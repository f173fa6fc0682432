"""Exported files through the command: what comes out opens in ONNX Runtime and is equal.

Five of the thirty, rewritten by formula; all of them, timed: ``python -m tests.benchmarks.exported``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
from tests.benchmarks.exported.check import optimize
from tests.benchmarks.exported.models import LIGHT, MODELS

REWRITTEN = {"repvgg", "recurrent cell"}


@pytest.mark.parametrize("name", LIGHT)
def test_an_exported_file_comes_back_sound(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))
    outcome = optimize(name, tmp_path, 4.0, pairs=1, measure=False)
    assert outcome.good, outcome.row()
    assert not (outcome.same and name in REWRITTEN), "nothing was rewritten, so that nothing was checked"


def test_there_are_thirty() -> None:
    assert len(MODELS) == 30 and set(LIGHT) <= set(MODELS)
