"""What ``deep500 new`` writes runs as it is, and its own test passes; nothing that exists is overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deep500 import cli
from deep500.recipe.skeletons import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_passes_its_own_test(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", kind, f"my_{kind}", "--out", str(tmp_path)]) == 0
    assert f"my_{kind}.py" in capsys.readouterr().out
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", f"test_my_{kind}.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    before = (tmp_path / f"my_{kind}.py").read_text()
    assert cli.main(["new", kind, f"my_{kind}", "--out", str(tmp_path)]) == 2
    assert "which exists" in capsys.readouterr().err and (tmp_path / f"my_{kind}.py").read_text() == before


@pytest.mark.parametrize("name", ["My", "class", "a-b", "1a", "__"])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new", "task", name, "--out", str(tmp_path)]) == 2
    assert "such as my_task" in capsys.readouterr().err and not list(tmp_path.iterdir())
