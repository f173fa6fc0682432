"""Reductions, cumulative sums, sorting, matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.operators.table import ints, number, op, rank, scalar, sizes, value_of
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.operator_table import positive

Tensor = Any
Reduction = Callable[[Tensor, list[int], bool], Tensor]


def _via_float(function: Reduction) -> Reduction:
    def reduce(x: Tensor, axes: list[int], keep: bool) -> Tensor:
        return tf.cast(function(x if x.dtype.is_floating else tf.cast(x, tf.float64), axes, keep), x.dtype)

    return reduce


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return tf.reduce_mean(x, axes, keep)


def _apart(x: Tensor) -> Tensor:
    """Hide from TensorFlow's optimizer what computed x: it takes extremes before monotonic functions.

    It believes the function's old shape afterwards (a reshape or broadcast back to it vanished), and Ceil or Relu
    make values equal, of which ArgMax is to take the first.
    """
    return tf.ensure_shape(x, x.shape)


def _extreme(reduce: Any, boolean: Any) -> Reduction:
    def extreme(x: Tensor, axes: list[int], keep: bool) -> Tensor:
        return (boolean if x.dtype == tf.bool else reduce)(_apart(x), axes, keep)

    return extreme


def root(x: Tensor, degree: float) -> Tensor:
    """x^(1 / degree), whose gradient at 0 is taken to be 0 instead of infinite: sums of nothing but zeros have none."""
    zero = tf.equal(x, 0)
    safe = tf.where(zero, tf.ones_like(x), x)
    return tf.where(zero, tf.zeros_like(x), tf.sqrt(safe) if degree == 2 else safe ** number(1 / degree, x))


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": tf.reduce_sum,
    "ReduceMean": _via_float(_mean),
    "ReduceMax": _extreme(tf.reduce_max, tf.reduce_any),
    "ReduceMin": _extreme(tf.reduce_min, tf.reduce_all),
    "ReduceProd": tf.reduce_prod,
    "ReduceL1": lambda x, axes, keep: tf.reduce_sum(tf.abs(x), axes, keep),
    "ReduceL2": _via_float(lambda x, axes, keep: root(tf.reduce_sum(x * x, axes, keep), 2)),
    "ReduceSumSquare": lambda x, axes, keep: tf.reduce_sum(x * x, axes, keep),
    "ReduceLogSum": _via_float(lambda x, axes, keep: tf.math.log(tf.reduce_sum(x, axes, keep))),
    "ReduceLogSumExp": _via_float(tf.reduce_logsumexp),
}
"""One function (tensor, axes, keep) for each; the operators below differ in nothing else."""

POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceL1": tf.abs,
    "ReduceL2": tf.abs,
    "ReduceSumSquare": tf.square,
    "ReduceLogSum": tf.math.log,
}
"""Functions of each element that are left of a reduction over no axes (ONNX's wording for ``noop_with_empty_axes``)."""


def _enter(kind: str) -> None:
    @op(kind, static=(1,))
    def reduction(x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        chosen = ints(axes)
        if not chosen:
            if noop_with_empty_axes:
                return POINTWISE[kind](x) if kind in POINTWISE else x
            chosen = list(range(rank(x)))
        return REDUCTIONS[kind](x, chosen, bool(keepdims))


for _kind in REDUCTIONS:
    _enter(_kind)


def _arg(find: Any, x: Tensor, axis: int, keep: int, last: int) -> Tensor:
    axis = positive(axis, rank(x))
    index = find(tf.reverse(x, [axis]) if last else _apart(x), axis, tf.int64)
    index = tf.cast(sizes(x)[axis] - 1, tf.int64) - index if last else index
    return tf.expand_dims(index, axis) if keep else index


@op("ArgMax")
def argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _arg(tf.argmax, x, axis, keepdims, select_last_index)


@op("ArgMin")
def argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _arg(tf.argmin, x, axis, keepdims, select_last_index)


@op("CumSum", static=(1,))
def cumsum(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return tf.cumsum(x, int(scalar(axis)), bool(exclusive), bool(reverse))


@op("CumProd", static=(1,))
def cumprod(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return tf.math.cumprod(x, int(scalar(axis)), bool(exclusive), bool(reverse))


@op("TopK", many=True)
def top_k(x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """Equal values come in the order of their indices, as ONNX asks; a stable sort keeps it."""
    axis = positive(axis, rank(x))
    order = tf.argsort(x, axis, "DESCENDING" if largest else "ASCENDING", stable=True)
    count = tf.reshape(tf.cast(k, tf.int32), [])
    first = tf.range(count)
    order = tf.gather(order, first, axis=axis)
    values = tf.experimental.numpy.take_along_axis(x, order, axis)
    return values, tf.cast(order, tf.int64)


@op("Unique", many=True)
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    results = np.unique(value_of(x), return_index=True, return_inverse=True, return_counts=True, axis=axis)
    _, first, inverse, counts = results
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], place[inverse]
    values = tf.gather(tf.reshape(x, [-1]) if axis is None else x, first, axis=axis or 0)
    return values, *(tf.constant(a) for a in (first, inverse, counts))


def _matmul(a: Tensor, b: Tensor, turn_a: int = 0, turn_b: int = 0) -> Tensor:
    """Sums of half precision are taken in single."""
    dtype = a.dtype
    if dtype in (tf.float16, tf.bfloat16):
        a, b = tf.cast(a, tf.float32), tf.cast(b, tf.float32)
    return tf.cast(_products(a, b, bool(turn_a), bool(turn_b)), dtype)


def _products(a: Tensor, b: Tensor, turn_a: bool, turn_b: bool) -> Tensor:
    """Matrix products without TensorFlow's broadcasting, whose kernel on CPUs writes beyond its memory (2.21:
    [10, 1, 32, 2] by [2, 1])."""
    if None in (a.shape.rank, b.shape.rank) or a.shape[:-2].as_list() == b.shape[:-2].as_list():
        return tf.matmul(a, b, turn_a, turn_b)
    if b.shape.rank == 2 and not turn_a and 0 not in a.shape[-1:]:
        *places, wide = sizes(a)
        y = tf.matmul(tf.reshape(a, [-1, wide]), b, transpose_b=turn_b)
        return tf.reshape(y, [*places, sizes(b)[0 if turn_b else 1]])
    batch = tf.broadcast_dynamic_shape(tf.shape(a)[:-2], tf.shape(b)[:-2])
    a, b = (tf.broadcast_to(x, tf.concat([batch, tf.shape(x)[-2:]], 0)) for x in (a, b))
    return tf.matmul(a, b, turn_a, turn_b)


@op("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Vectors are rows on the left and columns on the right."""
    left, right = rank(a) == 1, rank(b) == 1
    a, b = tf.expand_dims(a, 0) if left else a, tf.expand_dims(b, -1) if right else b
    y = _matmul(a, b)
    y = tf.squeeze(y, -1) if right else y
    return tf.squeeze(y, -1 if right else -2) if left else y


@op("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    y = _matmul(a, b, transA, transB)
    if alpha != 1:
        y = y * number(alpha, y)
    if c is None:
        return y
    if beta != 1:
        c = c * number(beta, y)
    if c.shape.rank in (1, 2) and c.shape.num_elements() == c.shape[-1] != 1:  # one row
        return tf.nn.bias_add(y, tf.reshape(c, [-1]))
    return y + c


@op("Einsum")
def einsum(*xs: Tensor, equation: str) -> Tensor:
    return tf.einsum(equation.replace(" ", ""), *xs)


@op("Det")
def det(x: Tensor) -> Tensor:
    return tf.linalg.det(x)
