"""The table from ONNX operators to functions on TensorFlow tensors, and what those functions share.

An entry is a function ``f(*inputs, **attributes)``: inputs as tensors (None where an optional one is absent),
attributes as Python values with the schema's defaults filled in. ``static`` names the positions of inputs that the
function wants as plain Python values (axes, bounds): what is known when the network is compiled arrives as a list or a
number, what is computed at run time as a tensor; :func:`ints` and :func:`scalar` read both, and raise NeedsValue where
a graph is being traced and the value is not known: then the network runs eagerly.

``layout`` says how a function gets on with channels that come last (see :mod:`deep500.frameworks.tensorflow.layout`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from deep500.frameworks.tensorflow.runtime import tf

Function = TypeVar("Function", bound=Callable[..., Any])
Tensor = Any


class NeedsValue(Exception):
    """A graph cannot be traced because a value must be known that only a run computes."""


@dataclass(frozen=True)
class Entry:
    """A function, the attributes it takes, the inputs it wants as Python values, whether it asks which outputs count
    and for the ``Call``, whether it returns a tuple even for one output, how many inputs it takes (None: any number),
    and its layout: "" (ONNX's), "any" (element by element), "axis" (any, its attribute ``axis`` follows), "last" (the
    first input's channels), or "conv" (those, and the second input is a kernel [*size, inputs, outputs])."""

    function: Callable[..., Any]
    attributes: frozenset[str] = frozenset()
    static: tuple[int, ...] = ()
    outputs: bool = False
    call: bool = False
    many: bool = False
    arity: int | None = None
    layout: str = ""


OPS: dict[tuple[str, str], Entry] = {}
"""All operators by (domain, operator type)."""


def op(
    *names: str, static: Sequence[int] = (), many: bool = False, domain: str = "", layout: str = ""
) -> Callable[[Function], Function]:
    """Enter a function under operator names. Its keyword-only parameters are the attributes that it understands; one
    called ``outputs`` receives a tuple of booleans: which outputs somebody reads, the unread ones at the end left off;
    one called ``call`` receives what is known of the node and its run."""

    def enter(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters.values())
        keywords = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        arity = None if variadic else len(parameters) - len(keywords)
        attributes = frozenset(keywords - {"outputs", "call"})
        entry = Entry(
            function, attributes, tuple(static), "outputs" in keywords, "call" in keywords, many, arity, layout
        )
        OPS.update({(domain, name): entry for name in names})
        return function

    return enter


def enter_all(functions: Mapping[str, Callable[..., Any]], layout: str = "") -> None:
    """Enter functions without attributes, TensorFlow's own for instance."""
    OPS.update({("", name): Entry(function, layout=layout) for name, function in functions.items()})


def value_of(tensor: Tensor) -> np.ndarray:
    """The value of a tensor that must be known now; NeedsValue if it is not."""
    found = tf.get_static_value(tensor)
    if found is None:
        raise NeedsValue
    return np.asarray(found)


def ints(value: Any) -> list[Any] | None:
    """A shape, axes or the like as a list."""
    if value is None:
        return None
    if isinstance(value, tf.Tensor):
        value = value_of(value).tolist()
    return list(value) if isinstance(value, (list, tuple)) else [value]


def scalar(value: Any, default: Any = None) -> Any:
    """A number that came as a number, a list or tensor of one element, or None (then the default)."""
    found = ints(value)
    while isinstance(found, list):
        if not found:
            return default
        found = found[0]
    return default if found is None else found


def rank(x: Tensor) -> int:
    """Number of dimensions."""
    if x.shape.rank is None:
        raise NeedsValue
    return x.shape.rank


def sizes(x: Tensor) -> list[Any]:
    """The shape: numbers where they are known, else tensors (int64)."""
    rank(x)
    known = x.shape.as_list()
    if None not in known:
        return known
    running = tf.shape(x, tf.int64)
    return [running[i] if n is None else n for i, n in enumerate(known)]


def static_sizes(x: Tensor, *axes: int) -> list[int]:
    """Sizes that must be known now, of these axes (all if none are given)."""
    rank(x)
    known = x.shape.as_list()
    chosen = [known[a] for a in axes] if axes else known
    if None in chosen:
        raise NeedsValue
    return chosen


def product(values: Sequence[Any]) -> Any:
    """Product of sizes; a number if all are."""
    total: Any = 1
    for value in values:
        total = total * value
    return total


def positive(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis


def wrapped(indices: Tensor, size: Any) -> Tensor:
    """Indices counted from the front (ONNX lets them count from the back)."""
    return tf.where(indices < 0, indices + tf.cast(size, indices.dtype), indices)


def number(value: Any, like: Tensor) -> Tensor:
    """A Python number in the dtype of a tensor (``tf.cast`` would take it through float32)."""
    return tf.constant(np.asarray(value).astype(like.dtype.as_numpy_dtype), like.dtype)
