"""Operators that move, select or make elements: shapes, indices, padding, constants.

Those on which shapes depend compute with NumPy what is known. Large results stay JAX's business: written into the code
as constants they would bloat it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.dtypes import onnx_dtype
from deep500.frameworks.jax.operators.table import Array, enter_all, ints, is_known, op, scalar, wrapped, xp
from deep500.networks.execution.operands import slice_places
from deep500.networks.execution.operator_table import positive

LARGE = 65536
"""Arrays of more elements are made by JAX, not written into the code."""


def identity(x: Any) -> Any:
    """The value itself."""
    return x


enter_all({"Identity": identity}, host=True)


@op("Shape", host=True)
def shape(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    return np.array(x.shape[start:end], np.int64)


@op("Size", host=True)
def size(x: Array) -> Array:
    return np.array(x.size, np.int64)


@op("Reshape", static=(1,), host=True)
def reshape(x: Array, sizes: Array, *, allowzero: int = 0) -> Array:
    return x.reshape([x.shape[i] if n == 0 and not allowzero else n for i, n in enumerate(ints(sizes) or [])])


@op("Flatten", host=True)
def flatten(x: Array, *, axis: int = 1) -> Array:
    axis = positive(axis, x.ndim)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("Transpose", host=True)
def transpose(x: Array, *, perm: Any = None) -> Array:
    return x.transpose(perm)


@op("Squeeze", static=(1,), host=True)
def squeeze(x: Array, axes: Any = None) -> Array:
    return x.squeeze() if axes is None else x.squeeze(tuple(ints(axes) or ()))


@op("Unsqueeze", static=(1,), host=True)
def unsqueeze(x: Array, axes: Any) -> Array:
    return xp(x).expand_dims(x, tuple(ints(axes) or ()))


@op("Concat", host=True)
def concat(*xs: Array, axis: int) -> Array:
    return xp(*xs).concatenate(xs, axis)


@op("Split", static=(1,), many=True, host=True)
def split(
    x: Array, sizes: Any = None, *, axis: int = 0, num_outputs: Any = None, outputs: tuple[bool, ...], context: Any
) -> Any:
    """Equal parts where no sizes are given; then the last may be smaller, or empty."""
    length, parts = x.shape[axis], num_outputs or len(context.node.outputs)
    chunk = -(-length // parts)
    counts = ints(sizes) or [max(0, min(chunk, length - i * chunk)) for i in range(parts)]
    return xp(x).split(x, list(np.cumsum(counts)[:-1]), axis)


@op("Slice", static=(1, 2, 3, 4), host=True)
def slice_(x: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Array:
    begins, stops = ints(starts) or [], ints(ends) or []
    chosen = ints(axes) if axes is not None else list(range(len(begins)))
    strides = ints(steps) if steps is not None else [1] * len(begins)
    index: list[Any] = [slice(None)] * x.ndim
    for axis, begin, stop, step in zip(chosen or [], begins, stops, strides or [], strict=True):
        along = slice_places(x.shape[axis], begin, stop, step)
        end = along.start + len(along) * step
        index[axis] = slice(along.start, end if end >= 0 else None, step) if len(along) else slice(0, 0)
    return x[tuple(index)]


@op("Expand", static=(1,), host=True)
def expand(x: Array, sizes: Any) -> Array:
    shape = np.broadcast_shapes(x.shape, tuple(ints(sizes) or ()))
    return (xp(x) if math.prod(shape) <= LARGE else jnp).broadcast_to(x, shape)


@op("Tile", static=(1,), host=True)
def tile(x: Array, repeats: Any) -> Array:
    count = ints(repeats) or ()
    return (xp(x) if x.size * math.prod(count) <= LARGE else jnp).tile(x, count)


@op("Pad", static=(1, 3), host=True)
def pad(x: Array, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Array:
    """Negative amounts cut away."""
    amounts, chosen = ints(pads) or [], ints(axes) if axes is not None else list(range(x.ndim))
    pairs = {positive(a, x.ndim): (amounts[i], amounts[i + len(chosen or [])]) for i, a in enumerate(chosen or [])}
    for axis, (before, after) in pairs.items():
        places = np.arange(x.shape[axis])[max(-before, 0) : x.shape[axis] - max(-after, 0)]
        grow = (max(before, 0), max(after, 0))
        if mode != "constant":
            places = np.pad(places, grow, mode=mode)  # type: ignore[call-overload]
        x = xp(x).take(x, places, axis) if len(places) != x.shape[axis] or mode != "constant" else x
    if mode != "constant":
        return x
    widths = [tuple(max(n, 0) for n in pairs.get(axis, (0, 0))) for axis in range(x.ndim)]
    fill = np.zeros((), x.dtype) if value is None else value.reshape(()).astype(x.dtype)
    if is_known([fill]):
        return xp(x, fill).pad(x, widths, constant_values=fill)
    inside = np.pad(np.ones(x.shape, bool), widths)  # JAX cannot go back through a pad of what has no gradient
    return jnp.where(inside, jnp.pad(x, widths), fill)


# -- indices ----------------------------------------------------------------------------------------------------------
@op("Gather", host=True)
def gather(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """JAX gives NaN for an index that does not exist, NumPy an error."""
    axis = positive(axis, x.ndim)
    at = wrapped(indices, x.shape[axis])
    return xp(x, at).take(x, at, axis)


@op("GatherElements", host=True)
def gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    axis = positive(axis, x.ndim)
    return _read(x, _grid(wrapped(indices, x.shape[axis]), axis))


def _grid(at: Array, axis: int) -> tuple[Array, ...]:
    running = np.ogrid[tuple(slice(n) for n in at.shape)]
    return tuple(at if i == axis else r for i, r in enumerate(running))


def _read(x: Array, index: tuple[Array, ...]) -> Array:
    return x[index] if is_known([x, *index]) else jnp.asarray(x).at[index].get(mode="fill")


@op("GatherND", host=True)
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    depth, lead = indices.shape[-1], indices.ndim - 1
    batch = [
        np.arange(n).reshape([-1 if i == j else 1 for j in range(lead)]) for i, n in enumerate(x.shape[:batch_dims])
    ]
    places = [wrapped(indices[..., i], x.shape[batch_dims + i]) for i in range(depth)]
    return _read(x, (*batch, *places))


def _scatter(x: Array, index: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    if reduction == "mul":
        return _multiplied(jnp.asarray(x), jnp.asarray(updates), *index)
    return getattr(jnp.asarray(x).at[index], {"none": "set"}.get(reduction, reduction))(updates)


@jax.custom_jvp
def _multiplied(x: Array, updates: Array, *index: Array) -> Array:
    """``x`` times the updates at their places; JAX differentiates its own only where each place is met once."""
    return x.at[index].multiply(updates)


@_multiplied.defjvp
def _derivative_of_multiplied(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """The derivative by a factor is the product of all others: zero if one of them is, so zeros are counted."""
    x, updates, *rest = primals
    index = tuple(rest)
    product = _multiplied(jnp.where(x == 0, 1, x), jnp.where(updates == 0, 1, updates), *index)
    zeros = (x == 0).astype(np.int32).at[index].add((updates == 0).astype(np.int32))

    def of_others(factor: Array, product: Array, zeros: Array) -> Array:
        return jnp.where(zeros == (factor == 0), product / jnp.where(factor == 0, 1, factor), 0)

    met, zeros_met = (v.at[index].get(mode="fill", fill_value=0) for v in (product, zeros))
    moved = tangents[0] * of_others(x, product, zeros)
    return _multiplied(x, updates, *index), moved.at[index].add(tangents[1] * of_others(updates, met, zeros_met))


@op("ScatterElements")
def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none") -> Array:
    axis = positive(axis, x.ndim)
    return _scatter(x, _grid(wrapped(indices, x.shape[axis]), axis), updates, reduction)


@op("ScatterND", host=True)
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    index = tuple(wrapped(indices[..., i], x.shape[i]) for i in range(indices.shape[-1]))
    if reduction == "none" and is_known([x, updates, *index]):
        result = np.array(x)
        result[index] = updates
        return result
    return _scatter(x, index, updates, reduction)


@op("TensorScatter")
def tensor_scatter(
    cache: Array, update: Array, at: Array | None = None, *, axis: int = -2, mode: str = "linear"
) -> Array:
    """Write ``update`` into a copy of ``cache`` along ``axis``, each sample of the batch from a position of its own."""
    axis = positive(axis, cache.ndim)
    moved, new = jnp.moveaxis(cache, axis, 1), jnp.moveaxis(update, axis, 1)
    start = np.zeros(cache.shape[0], np.int64) if at is None else at
    position = start[:, None] + np.arange(new.shape[1])
    position = position % moved.shape[1] if mode == "circular" else position
    return jnp.moveaxis(moved.at[np.arange(cache.shape[0])[:, None], position].set(new), 1, axis)


@op("Compress", static=(1,))
def compress(x: Array, condition: Array, *, axis: int | None = None) -> Array:
    if axis is None:
        x, axis = x.reshape(-1), 0
    return jnp.take(x, np.flatnonzero(condition), axis)


@op("NonZero", static=(0,), host=True)
def nonzero(x: Array) -> Array:
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@op("OneHot", static=(1,))
def one_hot(indices: Array, depth: Any, values: Array, *, axis: int = -1) -> Array:
    """An index outside ``-depth .. depth - 1`` gives a row of the off value."""
    n = int(scalar(depth))
    axis = positive(axis, indices.ndim + 1)
    steps = np.arange(n).reshape([n] + [1] * (indices.ndim - axis))
    hot = jnp.expand_dims(wrapped(indices, n), axis) == steps
    return jnp.where(hot, values[1], values[0])


# -- makers -----------------------------------------------------------------------------------------------------------
@op("Range", static=(0, 1, 2), host=True)
def arange(start: Array, limit: Array, delta: Array, *, stash_type: int = 1) -> Array:
    return np.arange(scalar(start), scalar(limit), scalar(delta)).astype(start.dtype)


@op("ConstantOfShape", static=(0,), host=True)
def constant_of_shape(sizes: Any, *, value: Any = None) -> Array:
    fill = np.zeros((), np.float32) if value is None else np.asarray(value).reshape(())
    shape = tuple(ints(sizes) or ())
    if math.prod(shape) <= LARGE:
        return np.full(shape, fill, fill.dtype)
    return jax.lax.optimization_barrier(jnp.full(shape, fill, fill.dtype))  # XLA would fold it for minutes


@op("EyeLike", host=True)
def eye_like(x: Array, *, dtype: Any = None, k: int = 0) -> Array:
    return np.eye(x.shape[0], x.shape[1], k).astype(x.dtype if dtype is None else onnx_dtype(dtype))


@op("Trilu", static=(1,), host=True)
def trilu(x: Array, k: Any = None, *, upper: int = 1) -> Array:
    rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
    offset = int(scalar(k, 0))
    inside = columns - rows >= offset if upper else columns - rows <= offset
    return xp(x).where(inside, x, np.zeros((), x.dtype))


# -- rearrangements ---------------------------------------------------------------------------------------------------
@op("ReverseSequence")
def reverse_sequence(x: Array, lengths: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    y = jnp.moveaxis(x, (time_axis, batch_axis), (0, 1))
    steps = np.arange(y.shape[0])[:, None]
    source = jnp.where(steps < lengths, lengths - 1 - steps, steps)
    y = y[source, np.arange(y.shape[1])]
    return jnp.moveaxis(y, (0, 1), (time_axis, batch_axis))


@op("DepthToSpace", host=True)
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    n, c, h, w = x.shape
    b, rest = blocksize, c // blocksize**2
    if mode == "CRD":
        return x.reshape(n, rest, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, rest, h * b, w * b)
    return x.reshape(n, b, b, rest, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, rest, h * b, w * b)


@op("SpaceToDepth", host=True)
def space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    n, c, h, w = x.shape
    b = blocksize
    order = (0, 1, 3, 5, 2, 4) if mode == "CRD" else (0, 3, 5, 1, 2, 4)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)
