"""The package of custom_ops/README.md: installed by pip, its operator is found by entry point, and runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HANG
from tests.test_docs import TUTORIALS, write_files

ROOT = Path(__file__).resolve().parents[2]
USE = """
import numpy as np, deep500 as d5
from deep500.operators import find_operator, operator_names
assert "ISRU" in operator_names()
op = find_operator("ISRU", {"a": 2.0}, [d5.tensordesc((3,))])
print(op.spec.file, d5.check_op_gradient(op, [np.array([-1, 0.5, 2], "float32")]).ok)
"""


@pytest.mark.slow
def test_an_installed_package_is_found_by_entry_point(tmp_path: Path) -> None:
    write_files(TUTORIALS[0], tmp_path)
    site = tmp_path / "site"
    offline = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "pip", "install", *offline, "--target", str(site), "."], tmp_path, "")
    assert (site / "isru" / "isru.cpp").is_file()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    source, ok = _run([sys.executable, "-c", USE], elsewhere, f"{site}{os.pathsep}{ROOT}").split()
    assert Path(source) == site / "isru" / "isru.cpp" and ok == "True"
    assert "ISRU" in _run([sys.executable, "-m", "deep500", "list"], elsewhere, f"{site}{os.pathsep}{ROOT}")
    assert "ISRU" not in _run([sys.executable, "-m", "deep500", "list"], elsewhere, str(ROOT))


def _run(command: list[str], folder: Path, path: str) -> str:
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=HANG
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
