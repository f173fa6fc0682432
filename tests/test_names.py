"""Names say the thing: no class stands twice, no value has an empty name, no docstring begins with "What"."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("deep500", "frameworks", "recipes", "custom_ops")
EMPTY = set("one said told found made own each kept wanted given held of".split())


CLEAN = ["deep500", "frameworks", "recipes", "custom_ops"]
ALLOWED = {
    ("deep500/metrics/work.py", "of"),  # users write this and the next four: Flops(of="step")
    ("deep500/tasks/tokens.py", "of"),  # Characters.of(text)
    ("deep500/measure/sampling.py", "kept"),  # samples(...).kept
    ("deep500/distributed/timing.py", "kept"),  # the same of all ranks
    ("deep500/distributed/schemes/parameters.py", "held"),  # scheme.held()
    ("deep500/compare/bits.py", "of"),  # an entry of what --json prints
    ("deep500/transformations/recomputation/counting.py", "held"),  # an entry of the file of results
    ("deep500/transformations/substitutions/operators/convolution.py", "own"),  # shipped rules hash these statements
    ("deep500/results/recomputation.py", "kept"),  # an entry of the file of results
}


ENTRIES = {
    *(".ci", ".gitignore", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile"),
    *("README.md", "constraints.txt", "custom_ops", "deep500", "docs", "frameworks", "pyproject.toml", "recipes"),
    *("setup.py", "tests"),
}
"""Entries of the repository's root."""


def sources(place: str) -> Iterator[Path]:
    """Python files below a folder, or the file itself; the links within ``deep500`` lead to other places."""
    path = ROOT / place
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        if file.relative_to(ROOT).parts[:2] not in (("deep500", "frameworks"), ("deep500", "custom_ops")):
            yield file


def alike(places: list[str]) -> bool:
    """Whether classes must be named alike: those of several backends, and the forms of an optimizer of the core."""
    outside = [place for place in places if not place.startswith("frameworks/")]
    optimizers = all("/optimizers" in place for place in places) and len(outside) == 1
    return not outside or optimizers


def test_no_class_name_stands_twice() -> None:
    places = defaultdict(list)
    for file in (file for place in PLACES for file in sources(place)):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert len(places) > 500, "the sources were not read"
    twice = {name for name, found in places.items() if len(found) > 1 and not alike(found)}
    assert not twice, f"rename all but one of each: {twice}"


def vague(text: str) -> Iterator[str]:
    """The first line of a docstring that begins with neither a noun nor a verb."""
    if text.split(maxsplit=1)[:1] == ["What"]:
        yield text.strip().partition("\n")[0]


def empty_names(tree: ast.AST) -> Iterator[str]:
    """Names of values, arguments and functions that say nothing, and docstrings that begin with "What"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY:
            yield node.id
        elif isinstance(node, ast.arg) and node.arg in EMPTY:
            yield node.arg
        elif isinstance(node, ast.FunctionDef) and node.name.lstrip("_") in EMPTY:
            yield node.name
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # beside a constant, too
            yield from vague(str(node.value.value))


@pytest.mark.parametrize("place", CLEAN)
def test_names_say_the_thing(place: str) -> None:
    for file in sources(place):
        name = str(file.relative_to(ROOT))
        odd = set(empty_names(ast.parse(file.read_text(encoding="utf-8"))))
        assert {word for word in odd if (name, word) not in ALLOWED} == set(), name


def test_empty_names_are_found() -> None:
    code = (
        '"""What it is."""\nfor one in x: pass\ndef _of(held): return (made := held)\ndef count(): "Number of them."\n'
    )
    assert sorted(empty_names(ast.parse(code))) == ["What it is.", "_of", "held", "made", "one"]


def test_nothing_lies_about() -> None:
    """Files that a shell leaves behind (a listing called ``-``, ``nohup.out``) are not committed."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no repository: git lists no files")
    files = listed.stdout.splitlines()
    assert {name.partition("/")[0] for name in files} == ENTRIES
    assert [name for name in files if not re.fullmatch(r"[\w.][\w./ -]*", name)] == []
