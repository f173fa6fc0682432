"""Faces of packages: names of their modules, each loaded when it is first used (PEP 562)."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def load_when_used(package: str) -> None:
    """Let a package show the names that its ``__init__.py`` imports ``if TYPE_CHECKING``, without importing them.

    The last statement of an ``__init__.py``. Type checkers read the same lines; they may stand in an ``__init__.pyi``
    instead. ``__all__`` gets these names, those that the file imports outright ``as`` themselves, and those of the
    functions and classes that it defines. A name that one of the package's modules has too must be imported outright:
    importing that module would hide it.

    Example:
        >>> import deep500.measure
        >>> "Budget" in dir(deep500.measure), deep500.measure.Budget.__name__
        (True, 'Budget')
    """
    module = sys.modules[package]
    file = Path(str(module.__file__))
    stub = file.with_suffix(".pyi")
    statements = ast.parse((stub if stub.is_file() else file).read_text(encoding="utf-8")).body
    lazy = [node for node in statements if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    places = _imported(statements if stub.is_file() else [node for block in lazy for node in block.body])

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        place, original = places[name]
        if place == package:
            value = importlib.import_module(f"{package}.{original}")
        else:  # fromlist: also a name of another face, or a module that its package does not import
            value = getattr(importlib.__import__(place, fromlist=[original]), original)
        setattr(module, name, value)  # asked once per name
        return value

    defined = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == package]
    outright = [name for name, (_, original) in _imported(statements).items() if name == original]
    shown = {*places, *outright, *defined, *vars(module).get("__all__", ())}
    listed = sorted(name for name in shown if not name.startswith("_"))
    vars(module).update(__getattr__=load, __dir__=listed.copy, __all__=listed)


def _imported(statements: list[ast.stmt]) -> dict[str, tuple[str, str]]:
    """Names imported ``as`` something -> the module, and the name there."""
    imports = [node for node in statements if isinstance(node, ast.ImportFrom)]
    return {a.asname: (str(node.module), a.name) for node in imports for a in node.names if a.asname}


class NamedParts(Mapping[str, Any]):
    """A table of what modules define, ``{name: "module:Name"}``, each loaded when it is looked up.

    Example:
        >>> NamedParts({"descriptor": "deep500.tensors:TensorDescriptor"})["descriptor"].__name__
        'TensorDescriptor'
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> Any:
        place, _, original = self._places[name].partition(":")
        return getattr(importlib.import_module(place), original)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
