"""Sequences are lists of tensors, an optional value is the value or None."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.tensorflow.operators.table import OPS, ints, op, rank, scalar, static_sizes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.operator_table import positive
from deep500.networks.execution.sequences import enter_sequences

Tensor = Any

enter_sequences(OPS, scalar, lambda value: tf.constant(value, tf.bool if isinstance(value, bool) else tf.int64))


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
