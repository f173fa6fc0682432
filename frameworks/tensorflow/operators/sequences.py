"""Sequences are lists of tensors, an optional value is the value or None."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.tensorflow.operators.table import ints, op, rank, scalar, static_sizes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.operator_table import positive

Tensor = Any


@op("SequenceConstruct")
def sequence_construct(*xs: Tensor) -> list[Tensor]:
    return list(xs)


@op("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> list[Tensor]:
    return []


@op("SequenceAt", static=(1,))
def sequence_at(xs: list[Tensor], position: Any) -> Tensor:
    return xs[scalar(position)]


@op("SequenceErase", static=(1,))
def sequence_erase(xs: list[Tensor], position: Any = None) -> list[Tensor]:
    at = positive(scalar(position, -1), len(xs))
    return xs[:at] + xs[at + 1 :]


@op("SequenceInsert", static=(2,))
def sequence_insert(xs: list[Tensor], x: Tensor, position: Any = None) -> list[Tensor]:
    at = positive(scalar(position, len(xs)), len(xs))
    return [*xs[:at], x, *xs[at:]]


@op("SequenceLength")
def sequence_length(xs: list[Tensor]) -> Tensor:
    return tf.constant(len(xs), tf.int64)


@op("ConcatFromSequence")
def concat_from_sequence(xs: list[Tensor], *, axis: int, new_axis: int = 0) -> Tensor:
    return tf.stack(xs, axis) if new_axis else tf.concat(xs, axis)


@op("SplitToSequence", static=(1,))
def split_to_sequence(x: Tensor, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> list[Tensor]:
    axis = positive(axis, rank(x))
    (total,) = static_sizes(x, axis)
    if split is None:
        parts = tf.split(x, total, axis)
        return parts if keepdims else [tf.squeeze(p, axis) for p in parts]
    sizes = ints(split) or []
    if not isinstance(split, list) and not (isinstance(split, tf.Tensor) and split.shape.rank):
        part = sizes[0]
        sizes = [part] * (total // part) + ([total % part] if total % part else [])
    return tf.split(x, sizes, axis)


@op("Optional")
def optional(x: Any = None, *, type: Any = None) -> Any:
    return x


@op("OptionalGetElement")
def optional_get_element(x: Any) -> Any:
    return x


@op("OptionalHasElement")
def optional_has_element(x: Any = None) -> Tensor:
    return tf.constant(x is not None)
