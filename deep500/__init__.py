"""Deep500: a deep learning meta-framework. ``import deep500 as d5`` shows the names that ``__init__.pyi`` lists, each
loaded when it is first used; no framework is imported."""

import ast as _ast
from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import Any as _Any

if not (_Path(__file__).parent / "frameworks").is_dir():  # a checkout without symlinks, as on Windows
    __path__.append(str(_Path(__file__).parent.parent))

__version__ = "1.0.0.dev0"

_STUB = _ast.parse(_Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_MODULES = {
    alias.name: str(node.module) for node in _STUB.body if isinstance(node, _ast.ImportFrom) for alias in node.names
}  # name -> the module that it is imported from
__all__ = list(_MODULES)


def __getattr__(name: str) -> _Any:  # PEP 562: asked once per name
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    known = vars(_import_module(_MODULES[name]))
    value = known[name] if name in known else _import_module(f"{_MODULES[name]}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__.copy()
