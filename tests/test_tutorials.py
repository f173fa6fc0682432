"""Tutorials are notebooks that the site executes; here their cells run as plain scripts, so that none of them rots.

Cells have to be Python, ``%%writefile NAME``, or lines that begin with ``!deep500``.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from deep500 import cli

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "tutorials"
CELL = re.compile(r"^```\{code-cell\} ipython3\n(.*?)^```", re.DOTALL | re.MULTILINE)
NEEDS = {"own_model": ("pytorch",), "compare": ("pytorch", "onnxruntime")}
"""Backends of the pages that say so; all others run with `deep500` alone."""


def order() -> list[str]:
    """The tutorials in the order of the site."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    return re.findall(r"^tutorials/(\w+)$", index, re.MULTILINE)


def cells(name: str) -> list[str]:
    return CELL.findall((FOLDER / f"{name}.md").read_text(encoding="utf-8"))


def test_the_site_has_every_tutorial() -> None:
    assert sorted(order()) == sorted(path.stem for path in FOLDER.glob("*.md")) and order()[0] == "tour"


@pytest.mark.parametrize("name", order())
def test_its_cells_are_of_the_kinds_that_run_here_and_use_the_public_interface(name: str) -> None:
    assert len(cells(name)) >= 2
    assert any("plt.subplots" in cell for cell in cells(name)), "a tutorial has a picture"
    text = "\n".join(cells(name))
    assert text.count("```{code-cell}") == 0 and not re.search(r"\b_\w+\.|\._[a-z]|import _|^:tags:", text, re.M)
    assert all(line.startswith("!deep500 ") for line in text.splitlines() if line.startswith(("!", "%%bash")))


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.backend(*NEEDS.get(name, ("reference",)))) for name in order()]
)
def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cells from top to bottom, in one empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {"__name__": "__main__"}
    for cell in cells(name):
        if cell.startswith("%%writefile "):
            first, _, body = cell.partition("\n")
            Path(first.split()[1]).write_text(body, encoding="utf-8")
        elif cell.startswith("!"):
            for line in cell.splitlines():
                with contextlib.redirect_stdout(io.StringIO()) as said:
                    code = cli.main(shlex.split(line)[1:])
                assert said.getvalue() and code in (0, 1), line  # 1: a target was missed, or a rule
        else:
            exec(compile(cell, f"{name}.md", "exec"), namespace)  # our own text
