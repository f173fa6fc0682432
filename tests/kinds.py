"""What a test needs, read from what it calls: no test says by hand that it starts a process or a compiler.

``process``: it, a helper or a fixture of it starts an interpreter, ranks, a browser or a compiler. ``study`` and
``workshop``: the folders of that name. ``unit``: none of these, nor ``slow``, ``long``, ``mpi`` or ``gpu``, which are
written by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

STARTS = frozenset(
    ["subprocess", "multiprocessing", "Popen", "compile_custom_cppop", "compile_custom_cppop_inline", "load_inline"]
)
"""Names in a function's code that start a process, a compiler's included."""
FOLDERS = {"studies": "study", "workshop": "workshop"}
NOT_UNIT = frozenset({"process", "study", "workshop", "slow", "long", "mpi", "gpu"})


def mark(item: pytest.Item) -> None:
    """Add the markers that follow from a test's folder and from what it calls."""
    for part in item.path.parts:
        if part in FOLDERS:
            item.add_marker(FOLDERS[part])
    if any(map(starts_process, _functions(item))):
        item.add_marker("process")
    if not NOT_UNIT.intersection(marker.name for marker in item.iter_markers()):
        item.add_marker("unit")


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
