"""The table from ONNX operators to functions on JAX arrays, and what those functions share.

An entry is a function ``f(*inputs, **attributes)``: inputs as arrays (None where an optional one is absent), attributes
as Python values with the schema's defaults filled in. It runs while JAX traces the network. Values that do not depend
on traced data are NumPy arrays; ``static`` names the positions of inputs that must be such (shapes, axes, bounds).
Functions marked ``host`` compute NumPy arrays from NumPy arrays (they ask :func:`xp` for the library to use); the
others are evaluated by JAX at trace time when all their inputs are known.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from deep500.errors import UnsupportedOperator

Array: TypeAlias = Any
"""A traced or concrete JAX array, or a NumPy array that is known at trace time."""
Function = TypeVar("Function", bound=Callable[..., Any])


class DependsOnData(UnsupportedOperator):
    """Something that JAX must know before it runs depends on data; ``where`` is the node, ``values`` what is wanted,
    or for a node within the body of another all that the outermost of them reads."""

    def __init__(self, where: str = "", values: Sequence[str] = ()) -> None:
        super().__init__(
            f"node {where}: got {', '.join(map(repr, values[:3])) or 'a value'}, which depends on data; expected what "
            "is known before the network runs, for JAX compiles for fixed shapes: make it a constant, or run this "
            "network on backend 'pytorch' or 'reference'"
        )
        self.where, self.values = where, tuple(values)


@dataclass(frozen=True)
class Entry:
    """A function, the attributes it takes, the inputs it wants as NumPy arrays, whether it asks which outputs count,
    returns a tuple even for one output, asks for the context, computes with NumPy what is known, may be evaluated at
    trace time, and how many inputs it takes (None: any number)."""

    function: Callable[..., Any]
    attributes: frozenset[str] = frozenset()
    static: tuple[int, ...] = ()
    outputs: bool = False
    many: bool = False
    context: bool = False
    host: bool = False
    arity: int | None = None


OPS: dict[tuple[str, str], Entry] = {}
"""All operators by (domain, operator type)."""

_OFFERED = frozenset({"outputs", "context"})


def op(
    *names: str, static: Sequence[int] = (), many: bool = False, host: bool = False, domain: str = ""
) -> Callable[[Function], Function]:
    """Enter a function under operator names. Its keyword-only parameters are the attributes that it understands; one
    called ``outputs`` receives a tuple of booleans: which outputs are read, unread ones at the end left off; one called
    ``context`` receives the run's :class:`deep500.frameworks.jax.compiler.Context`."""

    def enter(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters.values())
        keywords = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        arity = None if variadic else len(parameters) - len(keywords)
        entry = Entry(
            function,
            frozenset(keywords - _OFFERED),
            tuple(static),
            "outputs" in keywords,
            many,
            "context" in keywords,
            host,
            arity,
        )
        OPS.update({(domain, name): entry for name in names})
        return function

    return enter


def enter_all(functions: Mapping[str, Callable[..., Any]], host: bool = False) -> None:
    """Enter functions without attributes, JAX's own for instance."""
    OPS.update({("", name): Entry(function, host=host) for name, function in functions.items()})


def is_known(value: Any) -> bool:
    """Whether a value is there while JAX traces: a NumPy array, or an absent one."""
    if isinstance(value, (list, tuple)):
        return all(is_known(v) for v in value)
    return not isinstance(value, jax.Array)


def xp(*values: Any) -> Any:
    """NumPy if all values are known, else ``jax.numpy``."""
    return np if all(map(is_known, values)) else jnp


def ints(value: Any) -> list[int] | None:
    """A vector of whole numbers that is known, as a list; None stays None."""
    return None if value is None else [int(v) for v in np.ravel(value)]


def scalar(value: Any, default: Any = None) -> Any:
    """A known number of an array of one element, or of None or an empty one (then the default)."""
    if value is None or not np.size(value):
        return default
    return np.ravel(value)[0].item()


def positive(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis


def wrapped(indices: Array, size: int) -> Array:
    """Indices counted from the front (ONNX lets them count from the back), in int64."""
    indices = indices.astype(np.int64)
    return xp(indices).where(indices < 0, indices + size, indices)
