"""What a test needs, read from what it calls: no test says by hand that it starts a process or a compiler.

``process``: it, a helper or a fixture of it starts an interpreter, ranks, a browser or a compiler. ``study`` and
``workshop``: the folders of that name. ``slow``: it took long when all tests ran last. ``unit``: none of these, nor
``long``, ``mpi`` or ``gpu``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from tests import slow

STARTS = frozenset(
    ["subprocess", "multiprocessing", "Popen", "compile_custom_cppop", "compile_custom_cppop_inline", "load_inline"]
)
"""Names in a function's code that start a process, a compiler's included."""
FOLDERS = {"studies": "study", "workshop": "workshop"}
NOT_UNIT = frozenset({"process", "study", "workshop", "slow", "long", "mpi", "gpu"})
DEAR = 2.0
"""Rows of a table that took more seconds of processor time are for ``make test-long``; the cheapest row always runs."""


def mark(item: pytest.Item) -> None:
    """Add the markers that follow from a test's folder and from what it calls."""
    for part in item.path.parts:
        if part in FOLDERS:
            item.add_marker(FOLDERS[part])
    if any(map(starts_process, _functions(item))):
        item.add_marker("process")
    if item.nodeid in _seconds():
        item.add_marker("slow")
    if not NOT_UNIT.intersection(marker.name for marker in item.iter_markers()):
        item.add_marker("unit")


def crossed_too_often(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Rows of tables of ranks that repeat: 1, 2, 3, 5 are enough on the reference, 3 on other backends and on MPI.

    A table is thinned out only if three ranks are a row of it: otherwise its numbers mean something.
    """
    tables: dict[tuple[object, ...], set[object]] = {}
    rows = []
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        ranks = params.get("ranks", params.get("size"))
        if isinstance(ranks, int) and item.path.parent.name == "distributed":
            table = (item.path, getattr(item, "originalname", ""))
            tables.setdefault(table, set()).add(ranks)
            elsewhere = str(params.get("backend", "reference")) != "reference" or item.get_closest_marker("mpi")
            rows.append((item, table, ranks in ((3,) if elsewhere else (1, 2, 3, 5))))
    return [item for item, table, kept in rows if not kept and {2, 3} <= tables[table]]


def dear_rows(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Rows of parametrised tests that repeat for long what a cheaper row of the same test holds."""
    tables: dict[tuple[object, ...], list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec"):
            tables.setdefault((item.path, getattr(item, "originalname", "")), []).append(item)
    dear: list[pytest.Item] = []
    for table in tables.values():
        ordered = sorted(table, key=lambda item: _seconds().get(item.nodeid, 0.0))
        dear += [item for item in ordered[1:] if _seconds().get(item.nodeid, 0.0) > DEAR]
    return dear


@functools.cache
def _seconds() -> dict[str, float]:
    return slow.seconds()


def _functions(item: pytest.Item) -> Iterator[Callable[..., Any]]:
    """The test and its fixtures."""
    yield getattr(item, "function", len)
    information = getattr(item, "_fixtureinfo", None)  # the only place where pytest keeps them
    for definitions in information.name2fixturedefs.values() if information else ():
        yield from (definition.func for definition in definitions)


def starts_process(function: Callable[..., Any]) -> bool:
    """Whether a function of the tests, or one of the tests' that it calls, names one of :data:`STARTS`."""
    return isinstance(function, FunctionType) and _reaches(function)


@functools.cache
def _reaches(function: FunctionType) -> bool:
    seen, todo = {function}, [function]
    while todo:
        current = todo.pop()
        names = set(names_of(current.__code__))
        if names & STARTS:
            return True
        for called in _called(current, names):
            if called not in seen:
                seen.add(called)
                todo.append(called)
    return False


def _called(function: FunctionType, names: set[str]) -> Iterator[FunctionType]:
    """Functions and methods of the tests that a function names, also as ``module.function``."""
    for name in names:
        value = function.__globals__.get(name)
        if not getattr(value, "__module__", getattr(value, "__name__", "")).startswith("tests."):
            continue
        if isinstance(value, ModuleType):
            members = [vars(value).get(member) for member in names]
        else:
            members = list(vars(value).values()) if isinstance(value, type) else [value]
        yield from (member for member in members if isinstance(member, FunctionType))


def names_of(code: CodeType) -> Iterator[str]:
    """The names in a function's code, that of functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_of(constant)
