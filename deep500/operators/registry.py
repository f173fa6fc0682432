"""Operators by name: what makes a custom operator a node of domain ``deep500`` in every network and backend.

``@register_op("Name")`` enters a factory. A plugin is a folder ``<name>/`` with a file ``<name>.py`` (or
``__init__.py``) that does so; plugins are found in ``custom_ops/`` of the project, through entry points of the group
``deep500.custom_ops``, and by path (:func:`load_plugin`, or a recipe's ``'custom_ops': ['path']``).
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from deep500.errors import Deep500Error, InputError, UnsupportedOperator, nearest
from deep500.operators.base import CustomOp, Descriptors

DOMAIN = "deep500"
"""ONNX domain of custom operators."""

RESERVED = frozenset({"CustomGradient", "StopGradient"})
"""Names in that domain that no operator may take: nodes which decide where gradients flow."""

GRADIENT = "Grad"
"""Ending of a gradient node's type."""

BUILT_IN = Path(__file__).resolve().parents[1] / "custom_ops"
"""Folder of the plugins that come with Deep500."""

Factory = Callable[..., CustomOp]
Registered = TypeVar("Registered", bound=Factory)

_factories: dict[str, Factory] = {}
_pure: set[str] = set()
_living: dict[str, WeakSet[CustomOp]] = {}
_loaded: dict[Path, ModuleType] = {}


def register_op(name: str, *, pure: bool = False) -> Callable[[Registered], Registered]:
    """Decorator: enter a class or function under the name that nodes use.

    A class derived from :class:`CustomOp` is called with the node's attributes, a function with the descriptors of the
    node's inputs first, so that it can build for their dtype: ``def gelu(inputs, approximate="none") -> CustomOp``.
    One operator per name, attributes and input descriptors serves all nodes, ranks and pieces of a batch, so backward
    must not read what forward left in it: such an operator is refused.

    Args:
        name: what nodes call it.
        pure: promises that forward gives the same for the same inputs and changes nothing else, as an operator
            does that keeps no state and draws no random numbers. Recomputation may then call it again instead of
            keeping what it returned.

    Raises:
        InputError: the name is no identifier, or ends with ``Grad``, or another factory has it.

    Example:
        >>> import deep500 as d5
        >>> @d5.register_op("DocTwice")
        ... class Twice(d5.CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return 2 * inputs[0]
        >>> find_operator("DocTwice", {}, [d5.tensordesc((3,))])
        <Twice>
    """

    def enter(factory: Registered) -> Registered:
        if not name.isidentifier() or name.endswith(GRADIENT):
            raise InputError(f"got operator name {name!r}; expected an identifier that does not end with {GRADIENT!r}")
        if name in RESERVED:
            raise InputError(
                f"got operator name {name!r}; expected another one, it decides where gradients flow: rename it"
            )
        if "num_outputs" in inspect.signature(factory).parameters:
            raise InputError(
                f"operator {name!r}: got an argument num_outputs; expected another name, gradient nodes use this one"
            )
        known = _factories.get(name)
        if known is not None and _origin(known) != _origin(factory):
            raise InputError(
                f"got a second operator {name!r} ({_origin(factory)}; the first: {_origin(known)}); expected a new "
                "name: rename it"
            )
        _factories[name] = factory
        (_pure.add if pure else _pure.discard)(name)
        forget_operators()
        return factory

    return enter


def _origin(factory: Factory) -> str:
    """Return where a factory stands: its file, since a plugin may be imported under two names, else its module."""
    file = getattr(sys.modules.get(factory.__module__), "__file__", None)
    place = str(Path(file).resolve()) if file else factory.__module__
    return f"{place}: {factory.__qualname__}"


def operator_names() -> list[str]:
    """Names of all registered operators, those of all plugins that can be found included."""
    _find_plugins()
    return sorted(_factories)


def operator_summary(name: str) -> str:
    """Return a registered operator's line in lists: the first of its docstring; nothing is made or compiled."""
    return (_factories[name].__doc__ or "").strip().partition("\n")[0]


def is_registered(name: str) -> bool:
    """Return whether nodes of this type (a gradient's too) can be made."""
    base = name.removesuffix(GRADIENT)
    if base not in _factories:
        _find_plugins()
    return base in _factories


def is_pure(name: str) -> bool:
    """Return whether an operator was registered with ``pure=True``; False for what no plugin provides.

    Example:
        >>> import deep500 as d5
        >>> @d5.register_op("DocPure", pure=True)
        ... class DocPure(d5.CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return 2 * inputs[0]
        >>> is_pure("DocPure"), is_pure("DocTwice")
        (True, False)
    """
    return is_registered(name) and name in _pure


def find_operator(name: str, attributes: Mapping[str, Any], inputs: Descriptors) -> CustomOp:
    """The operator of a node.

    Args:
        name: the node's type; ``<Name>Grad`` gives the gradient (its attribute ``num_outputs`` counts the operator's
            outputs).
        attributes: the node's.
        inputs: what is known of the node's inputs.

    Raises:
        UnsupportedOperator: no plugin provides it.
        InputError: its factory refuses the attributes or inputs.
    """
    if not is_registered(name):
        raise UnsupportedOperator(
            f"got custom operator {name!r}, which no plugin provides; expected a registered one "
            f"({nearest(name, _factories)}): load its plugin with deep500.load_plugin('path/to/folder') or a recipe's "
            "'custom_ops': ['path/to/folder']"
        )
    values = {key: _plain(value) for key, value in attributes.items()}
    if name.endswith(GRADIENT):
        count = values.pop("num_outputs", None)
        if not isinstance(count, int) or not 1 <= count <= len(inputs) // 2:
            raise InputError(
                f"custom operator {name!r}: got num_outputs={count!r} and {len(inputs)} inputs; expected output "
                "gradients, inputs and as many outputs: let with_gradient() make such nodes"
            )
        from deep500.operators.python_op import GradientOp

        forward_inputs = inputs[count : len(inputs) - count]
        return GradientOp(find_operator(name.removesuffix(GRADIENT), values, forward_inputs), count)
    return _make(name, _factories[name], _Attributes(values, repr(sorted(values.items()))), tuple(inputs))


@dataclass(frozen=True)
class _Attributes:
    """Values, equal to those that are written alike: 2, 2.0 and True make operators of their own."""

    values: dict[str, Any] = field(compare=False)
    text: str


@lru_cache(maxsize=4096)
def _make(name: str, factory: Factory, attributes: _Attributes, inputs: tuple[Any, ...]) -> CustomOp:
    op = _call(name, factory, attributes.values, inputs)
    op.make_again = lambda: _call(name, factory, attributes.values, inputs)
    _living.setdefault(name, WeakSet()).add(op)
    return op


def living_operators(names: Iterable[str]) -> list[CustomOp]:
    """Made operators of these names that something still holds."""
    return [op for name in names for op in _living.get(name, ())]


def forget_operators() -> None:
    """Make new operators from here on: a run begins with none that an earlier one has called."""
    _make.cache_clear()


def _call(name: str, factory: Factory, attributes: Mapping[str, Any], inputs: tuple[Any, ...]) -> CustomOp:
    leading = () if inspect.isclass(factory) else (inputs,)
    try:
        inspect.signature(factory).bind(*leading, **attributes)
    except TypeError as error:
        raise InputError(
            f"custom operator {name!r}: got attributes {attributes}; expected those of "
            f"{inspect.signature(factory)} ({error}): correct the node"
        ) from error
    try:
        op = factory(*leading, **attributes)
    except Deep500Error:
        raise
    except Exception as error:
        raise InputError(
            f"custom operator {name!r}: got {type(error).__name__} ({error}) from its factory with {attributes}; "
            "expected an operator: correct the node's attributes or the factory"
        ) from error
    if not isinstance(op, CustomOp):
        raise InputError(f"custom operator {name!r}: got {op!r} from its factory; expected a CustomOp: return one")
    return op


def _plain(value: Any) -> Any:
    """An attribute as a hashable Python value; whole arrays become nested tuples."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def load_plugin(path: str | Path) -> ModuleType:
    """Load the plugin in a folder (or a Python file) and return its module; loading it twice does nothing.

    Raises:
        InputError: there is no plugin at that path, or it cannot be imported.
    """
    place = Path(path).expanduser().resolve()
    file = place if place.is_file() else _entry_file(place)
    if file is None:
        raise InputError(
            f"got plugin {str(path)!r}; expected a Python file, or a folder with {place.name}.py or __init__.py in it: "
            "see custom_ops/README.md"
        )
    if file not in _loaded:
        _import(file)
    return _loaded[file]


def load_plugins(paths: Iterable[str | Path]) -> list[ModuleType]:
    """:func:`load_plugin` for every path."""
    return [load_plugin(path) for path in paths]


def _entry_file(folder: Path) -> Path | None:
    files = (folder / f"{folder.name}.py", folder / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def _import(file: Path) -> None:
    name = f"deep500_plugin_{file.stem}_{sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = _loaded[file] = module  # before it runs: it may itself look for operators
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name], _loaded[file]
        raise InputError(
            f"got plugin {str(file)!r}, whose import raised {type(error).__name__}: {error}; expected one that "
            "imports: mend it"
        ) from error


@lru_cache(maxsize=1)
def _find_plugins() -> Sequence[ModuleType]:
    """Load the plugins that come with Deep500 and those of entry points."""
    folders = sorted(f for f in BUILT_IN.iterdir() if f.is_dir() and _entry_file(f)) if BUILT_IN.is_dir() else []
    return [*load_plugins(folders), *map(_entry, entry_points(group="deep500.custom_ops"))]


def _entry(entry: EntryPoint) -> ModuleType:
    try:
        return entry.load()
    except Exception as error:
        raise InputError(
            f"got plugin {entry.name!r} ({entry.value}), whose import raised {type(error).__name__}: {error}; expected "
            "one that imports: mend or uninstall its package"
        ) from error
