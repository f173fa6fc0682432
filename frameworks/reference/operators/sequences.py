"""Sequences are Python lists, an empty optional is None."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.frameworks.reference.operators.table import op

Array = np.ndarray


def _number(position: Array) -> int:
    return int(np.ravel(position)[0])


@op("SequenceConstruct")
def sequence_construct(*xs: Array) -> list[Array]:
    """A sequence of these tensors."""
    return list(xs)


@op("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> list[Array]:
    """A sequence of nothing."""
    return []


@op("SequenceLength")
def sequence_length(xs: list[Array]) -> Array:
    """How many tensors."""
    return np.array(len(xs), np.int64)


@op("SequenceAt")
def sequence_at(xs: list[Array], position: Array) -> Array:
    """The tensor at a position; negative ones count from the end."""
    return xs[_number(position)]


@op("SequenceInsert")
def sequence_insert(xs: list[Array], x: Array, position: Array | None = None) -> list[Array]:
    """With one more tensor before a position, or at the end."""
    place = len(xs) if position is None else _number(position)
    return [*xs[:place], x, *xs[place:]]


@op("SequenceErase")
def sequence_erase(xs: list[Array], position: Array | None = None) -> list[Array]:
    """Without the tensor at a position, or without the last."""
    place = (len(xs) - 1 if position is None else _number(position)) % len(xs)
    return [*xs[:place], *xs[place + 1 :]]


@op("Optional")
def optional(x: Any = None, *, type: Any = None) -> Any:
    """The value, or none."""
    return x


@op("OptionalHasElement")
def optional_has_element(x: Any = None) -> Array:
    """Whether there is a value."""
    return np.array(x is not None)


@op("OptionalGetElement")
def optional_get_element(x: Any) -> Any:
    """The value."""
    return x
