"""What is loaded is what is used: lines of Deep500 behind five things, by their imports and as they run.

The *static closure* of modules is what importing them loads: each module's imports at module level (also in ``try``,
``with``, ``if`` and classes; not ``if TYPE_CHECKING``, not inside functions), every package around a module, because
its ``__init__.py`` runs, for a name that a lazy face shows (also ``face.Name`` in a class's header) the module that it
is loaded from, and for a package that calls ``import_modules`` (kernels, gradient rules, data sets) all of its modules.
A backend is the module that ``load_backend`` imports by name, and its gradient descent; a recipe's run is the runner
and such a backend. Lines are those of the files, comments and docstrings too.

Beside it each thing is done in a new process, where what functions import counts as well: a graph is edited, LeNet is
built and trained for a step, a recipe is run for an epoch.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import HANG
from tests.test_rooms import ROOT, modules

FILES = modules()
NUMPY = ("deep500.frameworks.reference", "deep500.training.optimizers.descent")
PYTORCH = ("deep500.frameworks.pytorch", "deep500.frameworks.pytorch.optimizers")
EDIT = "from deep500.networks.graph import Graph; g = Graph(); g.add_input('x', ('N', 3)); g.add_output('x')"
STEP = """
import numpy as np, deep500 as d5, deep500.frameworks.{} as d5fw
optimizer = d5fw.GradientDescent(d5fw.from_model(d5.add_loss(d5.networks.create("lenet"))), "loss", lr=0.1)
optimizer.step({{"input": np.ones((2, 3, 32, 32), np.float32), "label": np.arange(2)}})
"""
RUN = """
import sys
from deep500.cli import main
main(["run", "digits_lenet", "epochs=1", "--open", "--quiet", "--out", sys.argv[1]])
"""
# fmt: off
THINGS = {  # name: (modules, lines at most by their imports, what is done, lines at most then)
    "graph": (("deep500.networks.graph",), 3_100, EDIT, 3_100),
    "trainer": (("deep500.training.trainer",), 9_000, "import deep500 as d5; d5.Trainer", 9_000),
    "numpy": (NUMPY, 12_000, STEP.format("reference"), 14_600),
    "pytorch": (PYTORCH, 21_000, STEP.format("pytorch"), 22_500),
    "recipe": (("deep500.recipe.runner", *PYTORCH), 46_000, RUN, 50_500),
}
# fmt: on
NEEDS = {"pytorch": [pytest.mark.backend("pytorch")], "recipe": [pytest.mark.backend("pytorch")]}
NAMES = [pytest.param(name, marks=NEEDS.get(name, ())) for name in THINGS]


@cache
def tree(module: str) -> ast.Module:
    """The syntax tree of a module of the package."""
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def for_checkers(node: ast.stmt) -> bool:
    """Whether a statement is an ``if TYPE_CHECKING``."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def statements(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when a module is imported."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = [] if for_checkers(node) else getattr(node, "body", [])
            parts = [inner, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
            parts += [handler.body for handler in getattr(node, "handlers", [])]
            yield from (found for part in parts for found in statements(part))


def shown(package: str) -> dict[str, tuple[str, str]]:
    """Names that a lazy face shows -> the module, and the name there."""
    blocks = [node for node in tree(package).body if for_checkers(node)]
    lines = [line for block in blocks for line in ast.walk(block) if isinstance(line, ast.ImportFrom)]
    return {alias.asname or alias.name: (str(line.module), alias.name) for line in lines for alias in line.names}


def sources(place: str, name: str) -> Iterator[str]:
    """The modules that ``from place import name`` loads."""
    while f"{place}.{name}" not in FILES and place in FILES and FILES[place].name == "__init__.py":
        yield place
        if name not in shown(place):
            return
        place, name = shown(place)[name]
    yield f"{place}.{name}" if f"{place}.{name}" in FILES else place


def loaded_by(module: str) -> Iterator[str]:
    """What importing a module imports next."""
    aliases = {}
    for node in statements(tree(module).body):
        for alias in node.names:
            if isinstance(node, ast.Import):
                yield alias.name
            else:
                yield from sources(str(node.module), alias.name)
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for kind in (node for node in tree(module).body if isinstance(node, ast.ClassDef)):
        for part in (n for header in (*kind.bases, *kind.keywords) for n in ast.walk(header)):
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in aliases:
                yield from sources(aliases[part.value.id], part.attr)
    if "import_modules(__name__)" in ast.unparse(tree(module)) and FILES[module].name == "__init__.py":
        yield from (other for other in FILES if other.rpartition(".")[0] == module)


def closure(*roots: str) -> set[str]:
    """The static closure of modules; see the top of this file."""
    found, left = set[str](), list(roots)
    while left:
        module = left.pop()
        if module in FILES and module not in found:
            found.add(module)
            left += [module.rpartition(".")[0], *loaded_by(module)]
    return found


def lines(names: set[str]) -> int:
    """Lines of the files of modules."""
    return sum(FILES[name].read_text(encoding="utf-8").count("\n") for name in names)


def really_loaded(code: str, *arguments: object) -> set[str]:
    """The modules of Deep500 in a new process after some code."""
    code += "\nimport sys; print('', *[n for n in sys.modules if n.partition('.')[0] == 'deep500'], sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()) & FILES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_the_closure_is_what_importing_loads(name: str) -> None:
    """The measure is true: neither more nor fewer modules than Python loads."""
    roots = THINGS[name][0]
    assert closure(*roots) == really_loaded(f"import {', '.join(roots)}")


@pytest.mark.parametrize("name", THINGS)
def test_what_a_thing_imports_is_within_its_budget(name: str) -> None:
    roots, budget, *_ = THINGS[name]
    names = closure(*roots)
    assert len(names) > 10 and lines(names) <= budget, f"{name}: {lines(names)} lines, import where it is used"


@pytest.mark.parametrize("name", NAMES)
def test_what_a_thing_loads_while_it_runs_is_within_its_budget(name: str, tmp_path: Path) -> None:
    roots, _, code, budget = THINGS[name]
    names = really_loaded(code, tmp_path)
    assert closure(*roots) <= names, "the closure counts what is not needed"
    assert lines(names) <= budget, f"{name}: {lines(names)} lines, import where it is used"
