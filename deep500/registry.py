"""Find backends by name: the folders of ``deep500/frameworks`` and the entry points ``deep500.frameworks`` of others.

This is the only place of the core where a framework gets imported, and only when it is asked for by name.
Packages whose files register themselves (kernels, gradient rules, data sets) are read by :func:`import_modules`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from deep500.errors import InputError, MissingBackend, nearest

BACKENDS = {  # backend: (the module it needs, the extra that installs it)
    "reference": ("numpy", "reference"),
    "pytorch": ("torch", "pytorch"),
    "jax": ("jax", "jax"),
    "tensorflow": ("tensorflow", "tensorflow"),
    "onnxruntime": ("onnxruntime", "onnxruntime"),
}
"""Built-in backends; others come through entry points."""


def import_modules(package: str) -> None:
    """Import every module of a package, so that what they register is known: a new file is found by itself."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")


def backend_names() -> list[str]:
    """Names of all backends that can be asked for, installed or not, built-in ones first."""
    return [*BACKENDS, *sorted({e.name for e in entry_points(group="deep500.frameworks")} - set(BACKENDS))]


def is_installed(name: str) -> bool:
    """Whether the framework behind a backend can be found (it is not imported)."""
    return name not in BACKENDS or importlib.util.find_spec(BACKENDS[name][0]) is not None


def require(name: str) -> None:
    """Raise :class:`MissingBackend` with the line that installs it unless a built-in backend's framework is there.

    Also raises InputError where :func:`check_folder` does. The first statement of every backend's ``__init__``, so that
    ``import deep500.frameworks.X`` tells the cure too.
    """
    if not is_installed(name):
        needed, extra = BACKENDS[name]
        raise MissingBackend(
            f"backend {name!r}: got no package {needed!r}; expected it installed: pip install 'deep500[{extra}]'"
        )
    check_folder()


def check_folder() -> None:
    """Raise InputError where this process works in a folder that was deleted.

    There paths have no meaning, and libraries of a framework end the process (oneMKL, which PyTorch loads).
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise InputError(
            "got a working folder that was deleted; expected one that exists: change to another with cd"
        ) from None


def load_backend(name: str) -> ModuleType:
    """Import a backend by name and return its module.

    Raises:
        MissingBackend: no such backend, or its framework is not installed. A framework that is installed but broken
            raises its own error.
    """
    for entry in entry_points(group="deep500.frameworks"):
        if entry.name == name and name not in BACKENDS:
            return entry.load()
    if name not in BACKENDS:
        raise MissingBackend(f"got backend {name!r}; expected one of the known ones: {nearest(name, backend_names())}")
    require(name)
    return importlib.import_module(f"deep500.frameworks.{name}")
