"""A newcomer's session: a fresh environment with the wheel and nothing else, an empty folder, the pages in order.

What the environment has besides Deep500 are the core's dependencies, by links: a framework that is installed here
cannot be imported there, as after ``pip install deep500``. Tutorials that need one say so and are left out.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_packaging import borrowed, checkout, distributions, make_environment, run
from tests.test_packaging import install as install_wheel
from tests.test_tutorials import NEEDS, cells, order

__all__ = ["borrowed", "checkout", "distributions"]  # fixtures
pytestmark = [pytest.mark.long, pytest.mark.slow]

FRAMEWORKS = re.compile(
    r"(torch|tensorflow|keras|jax|flax|optax|onnxruntime|mpi4py)\b|(torch|tensorflow|jax|onnxruntime)", re.I
)


@pytest.fixture(scope="module")
def newcomer(distributions: Path, borrowed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of a fresh environment, whose Python has no framework."""
    few = tmp_path_factory.mktemp("few")
    for entry in borrowed.iterdir():
        if not FRAMEWORKS.match(entry.name):
            (few / entry.name).symlink_to(entry.resolve())
    python = make_environment(tmp_path_factory.mktemp("newcomer") / "venv", few)
    install_wheel(python, *distributions.glob("*.whl"))
    return python.parent


def test_no_framework_is_there(newcomer: Path, tmp_path: Path) -> None:
    code = "from deep500.registry import BACKENDS, is_installed as i; print([n for n in BACKENDS if i(n)])"
    assert run(newcomer / "python", "-c", code, cwd=tmp_path).strip() == "['reference']"


def test_the_lines_of_the_install_page(newcomer: Path, tmp_path: Path) -> None:
    said = run(newcomer / "deep500", "run", "digits_lenet", "--backend", "reference", "--quiet", cwd=tmp_path)
    assert "verdict: PASSED" in said
    assert "reference" in run(newcomer / "deep500", "tools", "info", cwd=tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all pages, as a newcomer has: what a page leaves may not be in the way of another."""
    return tmp_path_factory.mktemp("work")


@pytest.mark.parametrize("name", [name for name in order() if name not in NEEDS])
def test_the_tutorials_in_order(newcomer: Path, folder: Path, name: str) -> None:
    """Cells as a newcomer runs them: files are written, commands run, Python goes on where it was."""
    script = ["import os, shlex, subprocess, sys", "os.environ['MPLBACKEND'] = 'Agg'"]
    script += ["os.environ['PATH'] = os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH']"]
    for cell in cells(name):
        if cell.startswith("%%writefile "):
            first, _, body = cell.partition("\n")
            script.append(f"open({first.split()[1]!r}, 'w').write({body!r})")
        elif cell.startswith("!"):
            for line in cell.splitlines():
                script.append(f"assert subprocess.run(shlex.split({line[1:]!r})).returncode in (0, 1)")
        else:
            script.append(cell)
    (folder / "tutorial.py").write_text("\n".join(script), encoding="utf-8")
    run(newcomer / "python", "tutorial.py", cwd=folder)
