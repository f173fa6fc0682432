"""Operators that move, choose or describe elements and compute nothing with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deep500.frameworks.reference.operators.table import ints, op
from deep500.networks.execution.operands import slice_places

Array = np.ndarray


# -- shape ------------------------------------------------------------------------------------------------------------
@op("Identity")
def identity(x: Any) -> Any:
    """The value itself."""
    return x


@op("Shape")
def shape(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    """Sizes from axis ``start`` to before ``end``."""
    return np.array(x.shape[start:end], np.int64)


@op("Size")
def size(x: Array) -> Array:
    """Number of elements."""
    return np.array(x.size, np.int64)


@op("Reshape")
def reshape(x: Array, sizes: Array, *, allowzero: int = 0) -> Array:
    """0 keeps the size of that axis (unless ``allowzero``), -1 takes what is left."""
    shape = [x.shape[i] if s == 0 and not allowzero else int(s) for i, s in enumerate(sizes)]
    return x.reshape(shape)


@op("Flatten")
def flatten(x: Array, *, axis: int = 1) -> Array:
    """To a matrix: the axes before ``axis`` and those from it on."""
    axis = axis + x.ndim if axis < 0 else axis
    rows = int(np.prod(x.shape[:axis]))
    return x.reshape(rows, int(np.prod(x.shape[axis:])))


@op("Transpose")
def transpose(x: Array, *, perm: Sequence[int] | None = None) -> Array:
    """Permuted axes, reversed without ``perm``."""
    return x.transpose(perm)


@op("Squeeze")
def squeeze(x: Array, axes: Array | None = None) -> Array:
    """Without the given axes of size 1, or without all of them."""
    return np.squeeze(x, ints(axes))


@op("Unsqueeze")
def unsqueeze(x: Array, axes: Array) -> Array:
    """With further axes of size 1 at these places of the result."""
    return np.expand_dims(x, ints(axes) or ())


@op("Expand")
def expand(x: Array, sizes: Array) -> Array:
    """Broadcast with a shape, both ways."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, ints(sizes) or ()))


@op("Tile")
def tile(x: Array, repeats: Array) -> Array:
    """Repeated along each axis."""
    return np.tile(x, ints(repeats) or ())


# -- joining and cutting ----------------------------------------------------------------------------------------------
@op("Concat")
def concat(*xs: Array, axis: int) -> Array:
    """Joined along an axis."""
    return np.concatenate(xs, axis)


@op("Split")
def split(x: Array, sizes: Array | None = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int) -> Any:
    """Cut along an axis; equal parts where no sizes are given, and then the last may be smaller."""
    if sizes is None:
        part = -(-x.shape[axis] // (num_outputs or outputs))
        ends: Any = [min(part * i, x.shape[axis]) for i in range(1, outputs)]
    else:
        ends = np.cumsum(sizes)[:-1]
    return tuple(np.split(x, ends, axis))


@op("Slice")
def slice_(x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    """x[start:end:step] along the given axes."""
    cut: list[slice] = [slice(None)] * x.ndim
    chosen = ints(axes) or range(len(starts))
    for axis, start, end, step in zip(
        chosen, starts, ends, itertools.repeat(1) if steps is None else steps, strict=False
    ):
        along = slice_places(x.shape[axis], int(start), int(end), int(step))
        cut[axis] = slice(along.start, along.stop if along.stop >= 0 else None, along.step) if along else slice(0)
    return x[tuple(cut)]


PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@op("Pad")
def pad(
    x: Array, pads: Array, value: Array | None = None, axes: Array | None = None, *, mode: str = "constant"
) -> Array:
    """Add elements at both ends of axes; negative numbers cut."""
    chosen = range(x.ndim) if axes is None else [a % x.ndim for a in ints(axes) or ()]
    begin, end = np.zeros(x.ndim, int), np.zeros(x.ndim, int)
    begin[list(chosen)], end[list(chosen)] = pads[: len(chosen)], pads[len(chosen) :]
    cuts = (slice(max(-b, 0), s - max(-e, 0)) for b, e, s in zip(begin, end, x.shape, strict=True))
    widths = [(max(int(b), 0), max(int(e), 0)) for b, e in zip(begin, end, strict=True)]
    options = {"constant_values": x.dtype.type(0) if value is None else value} if mode == "constant" else {}
    return np.pad(x[tuple(cuts)], widths, PAD_MODES[mode], **options)  # type: ignore[call-overload]


@op("Trilu")
def trilu(x: Array, k: Array | None = None, *, upper: int = 1) -> Array:
    """Upper or lower triangle of matrices, beginning with the k-th diagonal."""
    return (np.triu if upper else np.tril)(x, 0 if k is None else int(np.ravel(k)[0]))


# -- gathering and scattering -----------------------------------------------------------------------------------------
@op("Gather")
def gather(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Slices of x along an axis."""
    return np.take(x, indices, axis)


@op("GatherElements")
def gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """One element of x for each index, which replaces the coordinate on one axis; the others may be shorter than x."""
    return x[_coordinates(x, indices, axis)]


@op("GatherND")
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """Slices of x; the last axis of the indices holds leading coordinates, after ``batch_dims`` common axes."""
    rest = (1,) * (indices.ndim - 1 - batch_dims)
    batch = [b.reshape(b.shape + rest) for b in np.ix_(*map(np.arange, indices.shape[:batch_dims]))]
    return x[(*batch, *np.moveaxis(indices, -1, 0))]


REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(x: Array, where: Any, updates: Array, reduction: str) -> Array:
    """A copy of x with updates written, or accumulated where indices repeat."""
    result = x.copy()
    if reduction == "none":
        result[where] = updates
    elif reduction == "add" and isinstance(where, np.ndarray) and x.dtype == np.float64:
        result += np.bincount(where, updates, len(x))
    else:
        REDUCTIONS[reduction].at(result, where, updates)
    return result


def _coordinates(x: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    grid: list[Array] = list(np.ix_(*map(np.arange, indices.shape)))
    grid[axis] = indices
    return tuple(grid)


@op("ScatterElements")
def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none") -> Array:
    """A copy of x with one element replaced (or added to, ...) for each index."""
    if x.ndim == 1 and (indices.size == 0 or indices.min() >= 0):
        return _scatter(x, indices, updates, reduction)
    return _scatter(x, _coordinates(x, indices, axis), updates, reduction)


@op("ScatterND")
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """A copy of x with slices replaced (or added to, ...); the last axis of the indices holds leading coordinates."""
    return _scatter(x, tuple(np.moveaxis(indices, -1, 0)), updates, reduction)


@op("OneHot")
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """``values[1]`` at the index and ``values[0]`` elsewhere; all off for an index out of range."""
    count = int(np.ravel(depth)[0])
    wrapped = np.where(indices < 0, indices + count, indices)
    hot = np.expand_dims(wrapped, axis) == np.arange(count).reshape(
        [count if a == axis % (indices.ndim + 1) else 1 for a in range(indices.ndim + 1)]
    )
    return np.where(hot, values[1], values[0])


@op("NonZero")
def non_zero(x: Array) -> Array:
    """Coordinates of what is not zero, [rank, count]."""
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)[: max(x.ndim, 1)]


# -- making -----------------------------------------------------------------------------------------------------------
@op("Constant", when=lambda node: "sparse_value" not in node.attributes)
def constant(*, value: Array | None = None, **plain: Any) -> Array:
    """The attribute: an array, or numbers (float32, int64) or strings."""
    if value is not None:
        return value
    ((kind, content),) = plain.items()
    return np.array(content, {"float": np.float32, "int": np.int64}.get(kind.split("_")[1].rstrip("s"), object))


@op("ConstantOfShape")
def constant_of_shape(sizes: Array, *, value: Array | None = None) -> Array:
    """An array full of one value, 0 in float32 by default."""
    fill = np.zeros(1, np.float32) if value is None else value
    return np.full(ints(sizes) or (), fill.ravel()[0], fill.dtype)


@op("Range")
def range_(start: Array, limit: Array, delta: Array, *, stash_type: int = 1) -> Array:
    """start + i delta for i < ceil((limit - start) / delta)."""
    first, last, step = (np.ravel(v)[0] for v in (start, limit, delta))
    if start.dtype.kind in "iu":
        return np.arange(int(first), int(last), int(step), dtype=start.dtype)
    count = max(math.ceil((float(last) - float(first)) / float(step)), 0)
    return (float(first) + np.arange(count) * float(step)).astype(start.dtype)
