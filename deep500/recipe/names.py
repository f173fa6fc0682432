"""Between objects and names: whose backend an object is, its namesake in another one, names for the record."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from deep500.devices import Device
from deep500.errors import RecipeError, nearest
from deep500.registry import load_backend

PREFIX = "deep500.frameworks."
RECIPE_MODULE = "deep500_recipe_"
"""What the names of loaded recipe files begin with in ``sys.modules``."""


def backend_of(value: Any) -> str | None:
    """Name of the backend that a class or function was defined in, None if in none.

    ``functools.partial`` is looked through, and so are names that a backend re-exports from elsewhere: they belong to
    no backend and need no re-targeting.
    """
    value = value.func if isinstance(value, functools.partial) else value
    module = getattr(value, "__module__", None) or ""
    return module.removeprefix(PREFIX).partition(".")[0] if module.startswith(PREFIX) else None


def retarget(value: Any, framework: str) -> Any:
    """The object of the same name in another backend; what comes from no backend is returned as it is.

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
    name = getattr(value, "__qualname__", "")
    return lookup(load_backend(framework), name, f"--framework {framework}: {name!r} of backend {source!r}")


def lookup(module: ModuleType, name: str, what: str) -> Any:
    """An attribute of a backend by its public name; raises RecipeError with the nearest one."""
    public = list(getattr(module, "__all__", [n for n in dir(module) if not n.startswith("_")]))
    if name not in public:
        raise RecipeError(f"got {what}; expected a name in {module.__name__}: {nearest(name, public)}")
    return getattr(module, name)


def resolve_name(key: str, name: str, old: Any) -> Any:
    """What a name typed on the command line means for a key that holds a callable.

    It is looked up in the backend of the present value, then among the flat names of ``deep500``. Text that looks like
    a path, or a zoo or data set name, stays text for the keys that accept it.
    """
    if key in ("model", "dataset"):
        return name
    source = backend_of(old)
    if source is not None:
        return lookup(load_backend(source), name, f"{key}={name}")
    return lookup(sys.modules["deep500"], name, f"{key}={name}")


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
    if dataclasses.is_dataclass(value):
        return {"class": kind, **{f.name: describe(getattr(value, f.name)) for f in dataclasses.fields(value)}}
    fields = {n: v for n, v in getattr(value, "__dict__", {}).items() if not n.startswith("_")}
    return {"class": kind, **{n: describe(v) for n, v in fields.items() if _is_plain(v)}}


def _qualified(value: Any) -> str:
    """``module:name``; the recipe file's own module is called ``recipe`` by whatever door it came in."""
    module = str(value.__module__)
    return f"{'recipe' if module == '__main__' or module.startswith(RECIPE_MODULE) else module}:{value.__qualname__}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str, Device)) or hasattr(value, "dtype")
