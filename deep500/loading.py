"""Load Python files of the user's: once per process, under a name of their own, with the files beside them in reach."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from deep500.errors import RecipeError

RECIPE_MODULE = "deep500_recipe_"
"""Prefix of the names of loaded recipe files in ``sys.modules``."""

OWN_MODULE = "deep500_own_"
"""Prefix of the names of other files of the user's in ``sys.modules``."""


def module_of(path: Path) -> ModuleType:
    """The module of a file: the one that is loaded already, were it the recipe itself, so that classes exist once."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).name == path.name and os.path.realpath(file) == str(path):
            return module
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]  # two folders may have files of the same name
    return load_file(path, f"{OWN_MODULE}{path.stem}_{digest}")


def load_file(path: Path, name: str) -> ModuleType:
    """Import a Python file under a name of its own.

    Raises:
        RecipeError: no Python file. What goes wrong in the file keeps its traceback.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecipeError(
            f"{path}: got '{error.strerror}'; expected a file that can be read: see its rights"
        ) from error
    if b"\0" in content:
        raise RecipeError(f"{path}: got NUL bytes; expected Python's text in UTF-8: save it as such, or name another")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RecipeError(f"got {path}; expected a Python file; give its name the ending .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pickle, inspect and dataclasses look their module up there
    try:
        with _neighbours(path.absolute().parent):
            spec.loader.exec_module(module)
    except SystemExit as leave:
        del sys.modules[name]
        raise RecipeError(
            f"{path}: got sys.exit({leave.code!r}) while it was read; expected definitions: move what ends the process "
            "below 'if __name__ == \"__main__\":'"
        ) from leave
    except BaseException:
        del sys.modules[name]
        raise
    if sys.stdout is None or sys.stdout.closed:
        sys.stdout = sys.__stdout__
        raise RecipeError(f"{path}: got a standard output that it closes; expected it open: leave sys.stdout as it is")
    return module


_FOLDERS: set[Path] = set()
"""Of the files that were loaded."""


@contextlib.contextmanager
def _neighbours(folder: Path) -> Iterator[None]:
    """Let a file import those beside it, as ``python file.py`` does: first of all now, last of all later on.

    Files of the same name beside a file that was loaded before are forgotten: they are others.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or not isinstance(file, str) or not (folder / f"{name}.py").is_file():
            continue
        if Path(file).parent in _FOLDERS - {folder} and Path(file).stem == name:
            del sys.modules[name]
    _FOLDERS.add(folder)
    place = str(folder)
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
        if place not in sys.path:
            sys.path.append(place)
