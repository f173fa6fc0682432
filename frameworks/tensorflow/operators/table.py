"""The table from ONNX operators to functions on TensorFlow tensors, and what those functions share.

Functions get tensors, and attributes as Python values with the schema's defaults filled in. Inputs that they want as
plain Python values (``static``: axes, bounds) arrive as lists or numbers where they are known when the network is
compiled, and as tensors where they are computed at run time; :func:`ints` and :func:`scalar` read both, and raise
NeedsValue where a graph is being traced and the value is not known: then the network runs eagerly. A parameter called
``outputs`` receives a tuple of booleans: which outputs are read, unread ones at the end left off; one called
``context`` a :class:`deep500.frameworks.tensorflow.compiler.NodeContext`.

``layout`` says how a function gets on with channels that come last (see :mod:`deep500.frameworks.tensorflow.layout`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.operator_table import OperatorEntry, OperatorTable

Tensor = Any


class NeedsValue(Exception):
    """A graph cannot be traced because a value must be known that only a run computes."""


@dataclass(frozen=True)
class TensorFlowEntry(OperatorEntry):
    """An entry, and its layout: "" (ONNX's), "any" (element by element), "axis" (any, its attribute ``axis`` follows),
    "last" (the first input's channels), or "conv" (those, and the second input is a kernel [*size, inputs, outputs]).
    """

    layout: str = ""


OPS = OperatorTable(TensorFlowEntry, extras=("outputs", "context"))
"""All operators by (domain, operator type)."""

op, enter_all = OPS.op, OPS.enter_all


def value_of(tensor: Tensor) -> np.ndarray:
    """The value of a tensor that must be known now; NeedsValue if it is not."""
    value = tf.get_static_value(tensor)
    if value is None:
        raise NeedsValue
    return np.asarray(value)


def ints(value: Any) -> list[Any] | None:
    """A shape, axes or the like as a list."""
    if value is None:
        return None
    if isinstance(value, tf.Tensor):
        value = value_of(value).tolist()
    return list(value) if isinstance(value, (list, tuple)) else [value]


def scalar(value: Any, default: Any = None) -> Any:
    """A number that came as a number, a list or tensor of one element, or None (then the default)."""
    item = ints(value)
    while isinstance(item, list):
        if not item:
            return default
        item = item[0]
    return default if item is None else item


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


def wrapped(indices: Tensor, size: Any) -> Tensor:
    """Indices counted from the front (ONNX lets them count from the back)."""
    return tf.where(indices < 0, indices + tf.cast(size, indices.dtype), indices)


def number(value: Any, like: Tensor) -> Tensor:
    """A Python number in the dtype of a tensor (``tf.cast`` would take it through float32)."""
    return tf.constant(np.asarray(value).astype(like.dtype.as_numpy_dtype), like.dtype)
