"""Between objects and names: what a name means, whose backend an object is, its namesake in another one, names for
the record.

A built-in is named by its name. What a user wrote is named ``path.py:Name`` or ``module:Name``, in recipes, in
``key=value`` words and in the options of other commands.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx

from deep500.devices import Device
from deep500.errors import RecipeError, nearest
from deep500.loading import OWN_MODULE, RECIPE_MODULE, module_of
from deep500.networks.objects import fingerprint
from deep500.registry import OBJECTS, backend_of, explaining_missing, load_backend

HOMES = {
    "optimizer": "deep500.training.optimizers",
    "scheme": "deep500.distributed.schemes",
    "train_sampler": "deep500.training.data.samplers",
    "validation_sampler": "deep500.training.data.samplers",
}
"""Where the built-ins of a key are, besides those of a backend."""

_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_OWN = re.compile(rf"(?P<place>.+\.py|{_DOTTED}):(?P<name>{_DOTTED})")


def retarget(value: Any, framework: str) -> Any:
    """The object of the same name in another backend; what comes from no backend is returned as it is.

    Args:
        value: of a recipe; what is in a dict, list or tuple is exchanged one by one.
        framework: the other backend's name, as :func:`backend_of` gives it.

    Raises:
        MissingBackend: there is no such backend, or its framework is not installed.
        RecipeError: the other backend has no object of that name.
    """
    source = backend_of(value)
    if isinstance(value, Mapping):
        return {key: retarget(item, framework) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(retarget(item, framework) for item in value)
    if source is None or source == framework or not (callable(value) or isinstance(value, functools.partial)):
        return value
    if isinstance(value, functools.partial):
        return functools.partial(retarget(value.func, framework), *value.args, **value.keywords)
    name, home = getattr(value, "__qualname__", ""), importlib.import_module(HOMES["optimizer"])
    return _namesake(load_backend(framework), home, name, f"--framework {framework}: {name!r} of backend {source!r}")


def _namesake(backend: ModuleType, home: ModuleType, name: str, what: str) -> Any:
    """What a backend calls so; the built-in of the core, which runs on every backend, if it has none of its own."""
    return lookup(home if hasattr(home, name) and not hasattr(backend, name) else backend, name, what)


def lookup(module: ModuleType, name: str, what: str) -> Any:
    """An attribute of a backend by its public name; raises RecipeError with the nearest one."""
    public = list(getattr(module, "__all__", [n for n in dir(module) if not n.startswith("_")]))
    if name not in public:
        raise RecipeError(f"got {what}; expected a name in {module.__name__}: {nearest(name, public)}")
    return getattr(module, name)


def resolve_name(key: str, name: str, old: Any, folder: Path | None = None) -> Any:
    """What a name typed on the command line means for a key that holds a callable.

    A name of the user's own is loaded, see :func:`own_object`. Any other is looked up in the backend of the present
    value, then where the key's built-ins are. Names of the zoo, of data sets and of tasks stay text.

    Raises:
        RecipeError: there is no such name.
    """
    if is_own_name(key, name):
        return own_object(key, name, folder)
    if key in ("model", "dataset", "task"):
        return name
    source, home = backend_of(old), importlib.import_module(HOMES.get(key, "deep500"))
    if source is None:
        return lookup(home, name, f"{key}={name}")
    return _namesake(load_backend(source), home, name, f"{key}={name}")


def is_own_name(key: str, text: Any) -> bool:
    """Whether a value names something of the user's own, as ``path.py:Name`` or ``module:Name``.

    Example:
        >>> is_own_name("optimizer", "mine.py:Sign"), is_own_name("dataset", "imagefolder:photos")
        (True, False)
    """
    built_in = key == "dataset" and str(text).startswith("imagefolder:")
    return isinstance(text, str) and not built_in and _OWN.fullmatch(text) is not None


def own_object(key: str, text: str, folder: Path | None = None) -> Any:
    """The object that ``path.py:Name`` or ``module:Name`` names; its file is loaded once per process.

    Args:
        key: of the recipe, for the message.
        text: the name, for which :func:`is_own_name` holds.
        folder: of the recipe, where a relative path is looked for first; then in the current folder.

    Raises:
        RecipeError: no such file, module or name. What goes wrong in the user's file keeps its traceback.
    """
    module, name = _own_module(key, text, folder)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            public = [known for known in vars(value) if not known.startswith("_")]
            raise RecipeError(
                f"got {key}={text}; expected a name in {text.rpartition(':')[0]}: {nearest(part, public)}"
            )
        value = getattr(value, part)
    return value


def own_file(key: str, text: str, folder: Path | None = None) -> dict[str, str | None]:
    """What results record of a name of the user's own: key, name, and the SHA-256 of the file that it is in."""
    module, _ = _own_module(key, text, folder)
    path = getattr(module, "__file__", None)
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest() if path is not None and Path(path).is_file() else None
    return {"key": key, "name": text, "sha256": digest}


def source_of(key: str, value: Any) -> dict[str, str | None] | None:
    """What results record of an object of the user's own that a recipe imports: as :func:`own_file`, named
    ``module:Name``.

    None for what is ours or a framework's, and for what the recipe's own file holds, which is recorded anyway.
    """
    value = value.func if isinstance(value, functools.partial) else value
    made_by = value if hasattr(value, "__qualname__") else type(value)
    name = str(getattr(made_by, "__module__", ""))
    if name.partition(".")[0] in ("builtins", "deep500", "onnx", "__main__", *OBJECTS):
        return None
    path = getattr(sys.modules.get(name), "__file__", None)
    if name.startswith(RECIPE_MODULE) or path is None or not Path(path).is_file():
        return None
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    return {"key": key, "name": _qualified(made_by), "sha256": digest}


def _own_module(key: str, text: str, folder: Path | None) -> tuple[ModuleType, str]:
    match = _OWN.fullmatch(text)
    assert match is not None
    place, name = match["place"], match["name"]
    if not place.endswith(".py"):
        return _import(place, f"{key}={text}"), name
    folders = [Path() if folder is None else folder, Path()]
    paths = [path for path in (directory / Path(place).expanduser() for directory in folders) if path.is_file()]
    if not paths:
        near = sorted({path.name for directory in folders for path in directory.glob("*.py")})
        raise RecipeError(
            f"got {key}={text}; expected the file {place} in the recipe's folder or the current one; "
            f"{nearest(place, near) if near else 'write it there'}"
        )
    return _file(paths[0].resolve()), name


def _file(path: Path) -> ModuleType:
    with explaining_missing():
        return module_of(path)


def _import(name: str, what: str) -> ModuleType:
    try:
        with explaining_missing():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise RecipeError(
            f"got {what}; expected a module that Python finds, {error.name!r} is none; install it, or name its file: "
            "path.py:Name"
        ) from error


def describe(value: Any) -> Any:
    """A value as JSON that is the same in every process: callables by qualified name, objects by class and fields."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Device):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if isinstance(value, functools.partial):
        return {"partial": describe(value.func), "args": describe(value.args), "kwargs": describe(value.keywords)}
    if callable(value) and hasattr(value, "__qualname__"):
        return _qualified(value)
    if isinstance(value, onnx.ModelProto):
        return {"class": "onnx:ModelProto", "sha256": hashlib.sha256(value.SerializeToString(True)).hexdigest()}
    return _describe_object(value)


def _describe_object(value: Any) -> Any:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        if getattr(value, "ndim", 1) == 0:
            return value.item()
        digest = hashlib.sha256(value.tobytes()).hexdigest()
        return {"array": str(value.dtype), "shape": list(value.shape), "sha256": digest}
    kind = _qualified(type(value))
    if hasattr(value, "content_hash"):
        return {"class": kind, "content": value.content_hash()}
    weights = fingerprint(value)
    if weights is not None:
        return {"class": kind, "weights": weights}
    if dataclasses.is_dataclass(value):
        return {"class": kind, **{f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}}
    fields = {n: v for n, v in getattr(value, "__dict__", {}).items() if not n.startswith("_")}
    return {"class": kind, **{n: describe(v) for n, v in fields.items() if _is_plain(v)}}


def _qualified(value: Any) -> str:
    """``module:name``; the recipe's own module is called ``recipe``, another file of the user's by the file's name."""
    module = str(value.__module__)
    if module == "__main__" or module.startswith(RECIPE_MODULE):
        module = "recipe"
    elif module.startswith(OWN_MODULE):
        module = Path(str(sys.modules[module].__file__)).name
    return f"{module}:{value.__qualname__}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, Device)) or hasattr(value, "dtype")
