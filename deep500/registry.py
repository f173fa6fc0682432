"""Find backends by name: the folders of ``deep500/frameworks`` and the entry points ``deep500.frameworks`` of others.

This is the only place of the core where a framework gets imported, and only when it is asked for by name.
Packages whose files register themselves (kernels, gradient rules, data sets) are read by :func:`import_modules`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from deep500.errors import InputError, MissingBackend, MissingPackage, UnknownBackend, nearest

BACKENDS = {  # backend: (the module it needs, the extra that installs it)
    "reference": ("numpy", "reference"),
    "pytorch": ("torch", "pytorch"),
    "jax": ("jax", "jax"),
    "tensorflow": ("tensorflow", "tensorflow"),
    "onnxruntime": ("onnxruntime", "onnxruntime"),
}
"""Built-in backends; others come through entry points."""

OBJECTS = {  # package in which a type is defined: the backend whose ``importing.py`` knows its objects
    "torch": "pytorch",
    "keras": "tensorflow",
    "tensorflow": "tensorflow",
    "flax": "jax",
    "equinox": "jax",
    "jax": "jax",
    "jaxlib": "jax",
}
"""Whose objects are whose."""


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


def load_package(package: str, extra: str, purpose: str) -> Any:
    """An optional package; raises :class:`MissingPackage` with the line that installs it.

    Example:
        >>> load_package("json", "none", "to read JSON").loads("[1]")
        [1]
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPackage(
            f"got no package {package!r}; expected it {purpose}: pip install 'deep500[{extra}]'"
        ) from error


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
        UnknownBackend: no such backend.
        MissingBackend: its framework is not installed. A framework that is installed but broken
            raises its own error.
    """
    for entry in entry_points(group="deep500.frameworks"):
        if entry.name == name and name not in BACKENDS:
            return entry.load()
    if name not in BACKENDS:
        raise UnknownBackend(f"got backend {name!r}; expected one of the known ones: {nearest(name, backend_names())}")
    require(name)
    return importlib.import_module(f"deep500.frameworks.{name}")


def framework_of(value: Any) -> str | None:
    """The backend whose framework defined the type of an object, or a base of it; None if none did.

    Example:
        >>> framework_of(3) is None
        True
    """
    for base in type(value).__mro__:
        backend = OBJECTS.get(base.__module__.partition(".")[0])
        if backend is not None:
            return "pytorch" if backend == "tensorflow" and _runs_on_torch(value) else backend
    return None


def _runs_on_torch(value: Any) -> bool:
    """Whether a Keras model is a module of PyTorch: Keras runs on one framework in a process."""
    return any(base.__module__.partition(".")[0] == "torch" for base in type(value).__mro__)


def loaded_frameworks() -> list[str]:
    """The backends with an ``importing.py`` whose frameworks are imported in this process."""
    return [name for name in dict.fromkeys(OBJECTS.values()) if BACKENDS[name][0] in sys.modules]


def load_importer(backend: str, file: str = "importing") -> ModuleType:
    """``importing.py`` of a backend, which turns objects of its framework into networks, without the backend itself.

    It is loaded by its path: an object of one framework is also converted in a process that measures another one. So
    are the other files that it consists of (``file``).
    """
    name = f"deep500.frameworks.{backend}.{file}"
    if name not in sys.modules:
        require(backend)
        folder = importlib.import_module("deep500.frameworks").__path__[0]
        spec = importlib.util.spec_from_file_location(name, Path(folder) / backend / f"{file}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
