"""Operators that move, select or make elements: shapes, indices, padding, constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.dtypes import from_array, onnx_dtype
from deep500.frameworks.tensorflow.operators.table import ints, op, product, rank, scalar, sizes, value_of, wrapped
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.operands import check_cuts, slice_places
from deep500.networks.execution.operator_table import positive

Tensor = Any


@op("Shape")
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return tf.shape(x, tf.int64)[start:end]


@op("Size")
def size(x: Tensor) -> Tensor:
    return tf.size(x, tf.int64)


@op("Reshape", static=(1,))
def reshape(x: Tensor, shape: Any, *, allowzero: int = 0) -> Tensor:
    if isinstance(shape, tf.Tensor):
        known = tf.get_static_value(shape, partial=True)
        if known is None or None in np.asarray(known, object):  # sizes that only a run knows
            if allowzero:
                return tf.reshape(x, shape)
            present = tf.shape(x, tf.int64)[: shape.shape[0]]
            missing = tf.maximum(tf.size(shape, tf.int64) - tf.size(present, tf.int64), 0)
            present = tf.concat([present, tf.zeros([missing], tf.int64)], 0)
            return tf.reshape(
                x, shape if known is not None and 0 not in known else tf.where(shape == 0, present, shape)
            )
        shape = np.asarray(known).tolist()
    if not allowzero and 0 in shape:
        present = sizes(x)
        shape = [present[i] if n == 0 else n for i, n in enumerate(shape)]
    return tf.reshape(x, shape) if shape else tf.reshape(x, tf.constant([], tf.int64))


@op("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    n = sizes(x)
    axis = positive(axis, len(n))
    rows, columns = product(n[:axis]), product(n[axis:])
    return tf.reshape(x, [rows if isinstance(columns, tf.Tensor) else -1, columns] if columns != 0 else [rows, columns])


@op("Transpose")
def transpose(x: Tensor, *, perm: Any = None) -> Tensor:
    return tf.transpose(x, None if perm is None else list(perm))


@op("Squeeze", static=(1,))
def squeeze(x: Tensor, axes: Any = None) -> Tensor:
    return tf.squeeze(x, ints(axes))


@op("Unsqueeze", static=(1,))
def unsqueeze(x: Tensor, axes: Any) -> Tensor:
    chosen = ints(axes) or []
    for axis in sorted(positive(a, rank(x) + len(chosen)) for a in chosen):
        x = tf.expand_dims(x, axis)
    return x


@op("Concat", layout="axis")
def concat(*xs: Tensor, axis: int) -> Tensor:
    return tf.concat(xs, axis)


@op("Split", static=(1,), many=True)
def split(x: Tensor, parts: Any = None, *, axis: int = 0, num_outputs: Any = None, context: Any) -> Any:
    """Equal parts where no sizes are given; then the last may be smaller, or empty."""
    axis, count = positive(axis, rank(x)), len(context.node.outputs)
    if parts is not None:
        return tf.split(x, ints(parts), axis)
    total = x.shape[axis]
    if total is None:  # known in the run only; how many parts there are is known now
        total = tf.shape(x)[axis]
        part = -(-total // count)
        return tf.split(x, tf.clip_by_value(total - part * tf.range(count), 0, part), axis, num=count)
    part = -(-total // count)
    return tf.split(x, [max(0, min(part, total - i * part)) for i in range(count)], axis)


@op("Slice", static=(1, 2, 3, 4))
def slice_(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    begins, stops = ints(starts) or [], ints(ends) or []
    chosen = ints(axes) if axes is not None else list(range(len(begins)))
    strides = ints(steps) if steps is not None else [1] * len(begins)
    index: list[Any] = [slice(None)] * rank(x)
    for axis, begin, stop, step in zip(chosen or [], begins, stops, strides or [], strict=True):
        n = x.shape[axis]
        if n is not None:
            along = slice_places(n, begin, stop, step)
            end = along.stop if along.stop >= 0 else None
            index[axis] = slice(along.start, end, step) if len(along) else slice(0, 0)
        else:
            far = abs(stop) >= 2**31 - 1 or (step < 0 and stop <= -(2**31))
            first = None if step < 0 and begin >= 2**31 - 1 else begin
            index[axis] = slice(first, None if far else stop, step)
    return x[tuple(index)]


@op("Expand")
def expand(x: Tensor, shape: Tensor) -> Tensor:
    known = tf.get_static_value(shape)
    if known is not None and x.shape.is_fully_defined():
        return tf.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), tuple(known)))
    return tf.broadcast_to(x, tf.broadcast_dynamic_shape(tf.shape(x, tf.int64), tf.cast(shape, tf.int64)))


@op("Tile")
def tile(x: Tensor, repeats: Tensor) -> Tensor:
    return tf.tile(x, repeats)


@op("Pad", static=(1, 3))
def pad(x: Tensor, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Tensor:
    amounts = ints(pads) or []
    chosen = range(rank(x)) if axes is None else [positive(a, rank(x)) for a in ints(axes) or ()]
    pairs = dict(zip(chosen, zip(amounts[: len(chosen)], amounts[len(chosen) :], strict=True), strict=True))
    cut = tuple(slice(max(-b, 0), -max(-e, 0) or None) for b, e in (pairs.get(a, (0, 0)) for a in range(rank(x))))
    if any(b < 0 or e < 0 for b, e in pairs.values()):
        check_cuts(x.shape, pairs)
        x = x[cut]
    grown = {axis: (max(b, 0), max(e, 0)) for axis, (b, e) in pairs.items()}
    if mode == "constant":
        fill = tf.zeros([], x.dtype) if value is None else tf.reshape(value, [])
        border = [grown.get(a, (0, 0)) for a in range(rank(x))]
        if x.dtype == tf.bool:
            return tf.cast(tf.pad(tf.cast(x, tf.int8), border, constant_values=tf.cast(fill, tf.int8)), tf.bool)
        if x.dtype.is_floating and (
            tf.executing_eagerly() or tf.get_static_value(fill) is None
        ):  # tf.pad takes it as fixed
            return tf.where(tf.pad(tf.ones_like(x, tf.bool), border), tf.pad(x, border), fill)
        return tf.pad(x, border, constant_values=fill)
    for axis, pair in grown.items():
        if any(pair):
            index = np.pad(np.arange(value_of(tf.shape(x)[axis])), pair, mode=mode)  # type: ignore[call-overload]
            x = tf.gather(x, index, axis=axis)
    return x


@op("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis = positive(axis, rank(x))
    return tf.gather(x, wrapped(indices, sizes(x)[axis]), axis=axis)


def _to_end(x: Tensor, axis: int) -> Tensor:
    order = [a for a in range(rank(x)) if a != axis]
    return tf.transpose(x, [*order, axis])


@op("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis, r = positive(axis, rank(x)), rank(x)
    indices = wrapped(indices, sizes(x)[axis])
    part = x[tuple(slice(None) if a == axis else slice(n) for a, n in enumerate(sizes(indices)))]
    picked = tf.gather(_to_end(part, axis), _to_end(indices, axis), batch_dims=r - 1, axis=r - 1)
    return tf.transpose(picked, [*range(axis), r - 1, *range(axis, r - 1)])


@op("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    tuples = _wrapped_tuples(indices, sizes(x)[batch_dims:])
    if batch_dims == 0 and tuples.shape[-1] == 1:
        # The same; but the gradient of gather_nd takes for dense what comes sparse, as from a Gather after it, and
        # the gradient's shape is then that of the values between the two.
        return tf.gather(x, tuples[..., 0])
    return tf.gather_nd(x, tuples, batch_dims=batch_dims)


def _wrapped_tuples(indices: Tensor, along: list[Any]) -> Tensor:
    depth = indices.shape[-1]
    return wrapped(indices, tf.stack([tf.cast(n, indices.dtype) for n in along[:depth]]))


SCATTERS = {
    "none": tf.tensor_scatter_nd_update,
    "add": tf.tensor_scatter_nd_add,
    "max": tf.tensor_scatter_nd_max,
    "min": tf.tensor_scatter_nd_min,
}


def _scatter(x: Tensor, indices: Tensor, updates: Tensor, reduction: str) -> Tensor:
    if reduction != "mul":
        return SCATTERS[reduction](x, indices, updates)
    n, depth = sizes(x), indices.shape[-1]
    steps = [product(n[i + 1 : depth]) for i in range(depth)]
    places = tf.reduce_sum(indices * tf.stack([tf.cast(s, indices.dtype) for s in steps]), -1)
    factors = tf.math.unsorted_segment_prod(updates, places, product(n[:depth]))
    return x * tf.reshape(factors, n)


@op("ScatterElements")
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    axis = positive(axis, rank(x))
    indices = tf.cast(wrapped(indices, sizes(x)[axis]), tf.int64)
    grid = tf.meshgrid(*[tf.range(tf.cast(n, tf.int64)) for n in sizes(indices)], indexing="ij")
    grid[axis] = indices
    return _scatter(x, tf.stack(grid, -1), updates, reduction)


@op("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    if rank(indices) == 1:  # one tuple, which TensorFlow wants in a list
        indices, updates = indices[None], updates[None]
    return _scatter(x, _wrapped_tuples(indices, sizes(x)), updates, reduction)


@op("TensorScatter")
def tensor_scatter(
    cache: Tensor, update: Tensor, at: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Write ``update`` into a copy of ``cache`` along ``axis``, each sample of the batch from a position of its own."""
    axis = positive(axis, rank(cache))
    order = [0, axis, *(a for a in range(1, rank(cache)) if a != axis)]
    moved, new = tf.transpose(cache, order), tf.transpose(update, order)
    batch, length = sizes(new)[:2]
    start = tf.zeros([batch], tf.int64) if at is None else at
    place = start[:, None] + tf.range(tf.cast(length, tf.int64))
    if mode == "circular":
        place = place % tf.cast(sizes(moved)[1], tf.int64)
    sample = tf.broadcast_to(tf.range(tf.cast(batch, tf.int64))[:, None], tf.shape(place))
    result = tf.tensor_scatter_nd_update(moved, tf.stack([sample, place], -1), new)
    return tf.transpose(result, np.argsort(order).tolist())


@op("Compress")
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    if axis is None:
        x, axis = tf.reshape(x, [-1]), 0
    return tf.gather(x, tf.where(condition)[:, 0], axis=positive(axis, rank(x)))


@op("NonZero")
def nonzero(x: Tensor) -> Tensor:
    return tf.transpose(tf.where(x))


@op("OneHot", static=(1,))
def one_hot(indices: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Tensor:
    """An index outside ``-depth .. depth - 1`` gives a row of the off value."""
    n = int(scalar(depth))
    indices = wrapped(tf.cast(indices, tf.int64), n)
    hot = tf.one_hot(indices, n, True, False, axis=positive(axis, rank(indices) + 1), dtype=tf.bool)
    return tf.where(hot, values[1], values[0])  # tf.one_hot has no gradient with respect to values


@op("Range")
def arange(start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1) -> Tensor:
    start, limit, delta = (tf.reshape(v, []) for v in (start, limit, delta))
    places = tf.range(start, limit, delta)
    if not start.dtype.is_floating:
        return places
    return start + tf.cast(tf.range(tf.size(places)), start.dtype) * delta  # tf.range has no gradient


@op("ConstantOfShape", static=(0,))
def constant_of_shape(shape: Any, *, value: Any = None) -> Tensor:
    fill = tf.zeros([1]) if value is None else from_array(value)
    shape = shape if isinstance(shape, tf.Tensor) else tf.constant(shape, tf.int64)
    return tf.fill(shape, tf.reshape(fill, []))


@op("EyeLike")
def eye_like(x: Tensor, *, dtype: Any = None, k: int = 0) -> Tensor:
    rows, columns = (tf.range(tf.cast(n, tf.int64)) for n in sizes(x))
    return tf.cast(columns - rows[:, None] == k, x.dtype if dtype is None else onnx_dtype(dtype))


@op("Trilu", static=(1,))
def trilu(x: Tensor, k: Any = None, *, upper: int = 1) -> Tensor:
    rows, columns = (tf.range(tf.cast(n, tf.int64)) for n in sizes(x)[-2:])
    distance, k = columns - rows[:, None], int(scalar(k, 0))
    return tf.where(distance >= k if upper else distance <= k, x, tf.zeros_like(x))


@op("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    return tf.reverse_sequence(x, lengths, seq_axis=time_axis, batch_axis=batch_axis)


@op("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = sizes(x)
    b, rest = blocksize, c // blocksize**2
    if mode == "CRD":
        y = tf.transpose(tf.reshape(x, [n, rest, b, b, h, w]), [0, 1, 4, 2, 5, 3])
    else:
        y = tf.transpose(tf.reshape(x, [n, b, b, rest, h, w]), [0, 3, 4, 1, 5, 2])
    return tf.reshape(y, [n, rest, h * b, w * b])


@op("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = sizes(x)
    b = blocksize
    y = tf.reshape(x, [n, c, h // b, b, w // b, b])
    y = tf.transpose(y, [0, 1, 3, 5, 2, 4] if mode == "CRD" else [0, 3, 5, 1, 2, 4])
    return tf.reshape(y, [n, c * b * b, h // b, w // b])
