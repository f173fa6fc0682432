"""Find backends by name: the folders of ``deep500/frameworks``, the entry points ``deep500.frameworks`` of others, and
any module or file that has a ``from_model``.

What a backend must supply: :mod:`deep500.networks.execution.executor`. Which backend an object belongs to is asked of
the modules that are loaded (:func:`backend_of`), so that those inside the project have no privilege.

This is the only place of the core where a framework gets imported, and only when it is asked for by name.
Packages whose files register themselves (kernels, gradient rules, data sets) are read by :func:`import_modules`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from deep500.errors import InputError, MissingBackend, MissingPackage, UnknownBackend, nearest
from deep500.loading import OWN_MODULE, RECIPE_MODULE, module_of

BUILT_IN, OUTSIDE = "deep500.frameworks.", "deep500.frameworks"
"""Prefix of the names of built-in backends' modules, and the group of other packages' entry points."""

BACKENDS = {  # backend: (the module it needs, the extra that installs it)
    "reference": ("numpy", "reference"),
    "pytorch": ("torch", "pytorch"),
    "jax": ("jax", "jax"),
    "tensorflow": ("tensorflow", "tensorflow"),
    "onnxruntime": ("onnxruntime", "onnxruntime"),
}
"""Built-in backends; others are entry points, modules or files."""

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
    return [*BACKENDS, *sorted({e.name for e in entry_points(group=OUTSIDE)} - set(BACKENDS))]


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


def load_backend(name: str, folder: Path | None = None) -> ModuleType:
    """Import a backend and return its module, which has a function ``from_model``.

    Args:
        name: a built-in one's, an entry point's, ``path.py`` or a module's.
        folder: where a relative path is looked for first; then in the current folder.

    Raises:
        UnknownBackend: no such backend.
        MissingBackend: its framework is not installed. A framework that is installed but broken
            raises its own error.
    """
    if name in BACKENDS:
        require(name)
        return importlib.import_module(BUILT_IN + name)
    with explaining_missing():
        module = _outside(name, folder)
    if not callable(getattr(module, "from_model", None)):
        raise UnknownBackend(
            f"got backend {name!r}, whose module has no from_model; expected a function from_model(network, device) "
            f"that returns a GraphExecutor: define it; {nearest(name, backend_names())}"
        )
    return module


def _outside(name: str, folder: Path | None) -> ModuleType:
    for entry in entry_points(group=OUTSIDE):
        if entry.name == name:
            module: ModuleType = entry.load()
            return module
    if name in _files:
        return _files[name]
    if name.endswith(".py"):
        return _backend_file(name, folder)
    if is_own_backend(name):
        return importlib.import_module(name)
    raise UnknownBackend(f"got backend {name!r}; expected one of the known ones: {nearest(name, backend_names())}")


def is_own_backend(name: str) -> bool:
    """Whether a name that no backend has is that of a file or of a module, which may be one."""
    if name in _files or name.endswith(".py"):
        return True
    try:
        return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) is not None and find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # no package around it; a module that hides its spec
        return False


_files: dict[str, ModuleType] = {}
"""Backends that were named by their files, by the files' names without ending."""


def _backend_file(text: str, folder: Path | None) -> ModuleType:
    places = [(around / Path(text).expanduser()).resolve() for around in (folder or Path(), Path())]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        near = sorted(file.name for file in places[-1].parent.glob("*.py"))
        raise UnknownBackend(
            f"got backend {text!r}, that is {places[0]}, where nothing is; expected a Python file: "
            f"{nearest(text, near) if near else 'write it there, deep500 new backend begins one'}"
        )
    module = _files.get(path.stem) or module_of(path)
    if path.stem in backend_names() or Path(str(module.__file__)).resolve() != path:
        raise UnknownBackend(
            f"got backend {text!r}, whose name {path.stem!r} another one has; expected a name of its own: rename it"
        )
    _files[path.stem] = module
    return module


def backend_of(value: Any) -> str | None:
    """Name of the backend that a class or function was defined in, as :func:`load_backend` takes it; None if in none.

    That is the outermost loaded package around its module, or this module itself, that defines a ``from_model``; a
    recipe's file is no backend. ``functools.partial`` is looked through, and so are names that a backend re-exports
    from elsewhere: they belong to no backend and need no re-targeting.

    Example:
        >>> backend_of(load_backend("reference").from_model), backend_of(len)
        ('reference', None)
    """
    value = value.func if isinstance(value, functools.partial) else value
    parts = str(getattr(value, "__module__", None) or "").split(".")
    around = (sys.modules.get(".".join(parts[:end])) for end in range(1, len(parts) + 1))
    home = next((module for module in around if module is not None and _is_backend(module)), None)
    return None if home is None else _name_of(home)


def _is_backend(module: ModuleType) -> bool:
    name, maker = module.__name__, vars(module).get("from_model")
    if maker is None or name == "__main__" or name.startswith(RECIPE_MODULE):
        return False
    return callable(maker) and f"{getattr(maker, '__module__', '')}.".startswith(f"{name}.")


def _name_of(home: ModuleType) -> str:
    name = home.__name__.removeprefix(BUILT_IN)
    if name in BACKENDS:
        return name
    for entry in entry_points(group=OUTSIDE):  # its module may take from_model from the one that defines it
        if getattr(sys.modules.get(entry.module), "from_model", None) is vars(home)["from_model"]:
            return entry.name
    return Path(str(home.__file__)).stem if name.startswith(OWN_MODULE) else name


def backend_modules() -> dict[str, str]:
    """The module of every backend that has a name, loaded or not."""
    others = {entry.name: entry.module for entry in entry_points(group=OUTSIDE)}
    return {**others, **{name: BUILT_IN + name for name in BACKENDS}}


@contextmanager
def standing_in(backend: ModuleType, names: Sequence[str]) -> Iterator[None]:
    """For a while let a backend be what is imported under the names of modules that are not loaded."""
    importlib.import_module(OUTSIDE)  # the package around them
    absent = [
        name for name in names if name not in sys.modules
    ]  # others may have put something there, and take it away
    sys.modules.update(dict.fromkeys(absent, backend))
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)


@contextmanager
def explaining_missing() -> Iterator[None]:
    """Raise MissingBackend with the line that installs it where a module is not found that is a backend's framework."""
    try:
        yield
    except ModuleNotFoundError as error:
        for name, (module, extra) in BACKENDS.items():
            if error.name == module:
                raise MissingBackend(
                    f"got a recipe for backend {name!r} but no {module!r}; expected it to be installed: "
                    f"pip install 'deep500[{extra}]'"
                ) from error
        raise


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
    name = f"{BUILT_IN}{backend}.{file}"
    if name not in sys.modules:
        require(backend)
        folder = importlib.import_module(OUTSIDE).__path__[0]
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
