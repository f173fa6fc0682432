"""Sequences are lists of arrays, an optional value is the value or None; how long they are is known to JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.frameworks.jax.operators.table import Array, ints, op, scalar, xp
from deep500.networks.execution.operator_table import positive


@op("SequenceConstruct", host=True)
def sequence_construct(*xs: Array) -> list[Array]:
    return list(xs)


@op("SequenceEmpty", host=True)
def sequence_empty(*, dtype: int = 1) -> list[Array]:
    return []


@op("SequenceAt", static=(1,), host=True)
def sequence_at(xs: list[Array], position: Any) -> Array:
    return xs[scalar(position)]


@op("SequenceErase", static=(1,), host=True)
def sequence_erase(xs: list[Array], position: Any = None) -> list[Array]:
    at = positive(scalar(position, -1), len(xs))
    return xs[:at] + xs[at + 1 :]


@op("SequenceInsert", static=(2,), host=True)
def sequence_insert(xs: list[Array], x: Array, position: Any = None) -> list[Array]:
    at = positive(scalar(position, len(xs)), len(xs))
    return [*xs[:at], x, *xs[at:]]


@op("SequenceLength", host=True)
def sequence_length(xs: list[Array]) -> Array:
    return np.array(len(xs), np.int64)


@op("ConcatFromSequence", host=True)
def concat_from_sequence(xs: list[Array], *, axis: int, new_axis: int = 0) -> Array:
    return (xp(*xs).stack if new_axis else xp(*xs).concatenate)(xs, axis)


@op("SplitToSequence", static=(1,), host=True)
def split_to_sequence(x: Array, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> list[Array]:
    length = x.shape[axis]
    if split is None:
        parts = xp(x).split(x, length, axis)
        return list(parts) if keepdims else [p.squeeze(axis) for p in parts]
    sizes = ints(split) or []
    bounds = np.cumsum(sizes)[:-1] if np.ndim(split) else np.arange(sizes[0], length, sizes[0])
    return list(xp(x).split(x, list(bounds), axis))


@op("Optional", host=True)
def optional(x: Any = None, *, type: Any = None) -> Any:
    return x


@op("OptionalGetElement", host=True)
def optional_get_element(x: Any) -> Any:
    return x


@op("OptionalHasElement", host=True)
def optional_has_element(x: Any = None) -> Array:
    return np.array(x is not None)
