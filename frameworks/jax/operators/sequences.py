"""Sequences are lists of arrays, an optional value is the value or None; how long they are is known to JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.frameworks.jax.operators.table import OPS, Array, ints, op, scalar, xp
from deep500.networks.execution.sequences import enter_sequences

enter_sequences(OPS, scalar, np.asarray, host=True)


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
