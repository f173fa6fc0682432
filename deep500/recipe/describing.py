"""Values of a recipe as results record them: JSON that is the same in every process, and the files they came from."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx

from deep500.devices import Device
from deep500.loading import OWN_MODULE, RECIPE_MODULE
from deep500.networks.objects import fingerprint
from deep500.registry import OBJECTS


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


def source_of(key: str, value: Any) -> dict[str, str | None] | None:
    """The file of an object of the user's own that a recipe imports: key, ``module:Name``, and the file's SHA-256.

    None for what is ours or a framework's, and for what the recipe's own file holds, which is recorded anyway.
    """
    value = value.func if isinstance(value, functools.partial) else value
    maker = value if hasattr(value, "__qualname__") else type(value)
    name = str(getattr(maker, "__module__", ""))
    if name.partition(".")[0] in ("builtins", "deep500", "onnx", "__main__", *OBJECTS) or name.startswith(
        RECIPE_MODULE
    ):
        return None
    digest = digest_of(sys.modules.get(name))
    return None if digest is None else {"key": key, "name": _qualified(maker), "sha256": digest}


def sources_of(key: str, value: Any) -> list[dict[str, str | None]]:
    """:func:`source_of` of a value, or of each in a list or dict, and the files beside it from which it imports."""
    elements = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else [value]
    sources: list[dict[str, str | None]] = []
    for element in elements:
        first = source_of(key, element)
        if first is not None:
            maker = element.func if isinstance(element, functools.partial) else element
            module = sys.modules[(maker if hasattr(maker, "__qualname__") else type(maker)).__module__]
            others = [{"key": key, "name": path.name, "sha256": digest_of(other)} for path, other in _beside(module)]
            sources += [source for source in (first, *others) if source not in sources]
    return sources


def _beside(module: ModuleType) -> list[tuple[Path, ModuleType]]:
    """Modules in a module's folder from which it imports, directly or through others."""
    start = Path(str(module.__file__))
    seen, todo = {start: module}, [module] if "site-packages" not in start.parts else []
    while todo:
        for value in list(vars(todo.pop()).values()):
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            other = sys.modules.get(name) if isinstance(name, str) else None
            path = Path(getattr(other, "__file__", None) or "/")
            if other is not None and path.parent == start.parent and path not in seen:
                seen[path] = other
                todo.append(other)
    del seen[start]
    return sorted(seen.items())


def digest_of(module: ModuleType | None) -> str | None:
    """SHA-256 of a module's file, None where it has none."""
    path = getattr(module, "__file__", None)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path is not None and Path(path).is_file() else None
