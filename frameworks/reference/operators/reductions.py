"""Sums and their like over axes, matrix products, extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deep500.frameworks.reference.operators.table import average, ints, op

Array = np.ndarray


def _log_sum_exp(x: Array, axis: Any, keepdims: bool) -> Array:
    top = x.max(axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    total = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return total if keepdims else total.reshape(np.sum(x, axis=axis).shape)


REDUCTIONS: dict[str, Callable[..., Array]] = {
    "ReduceSum": lambda x, **o: np.sum(x, dtype=x.dtype, **o),
    "ReduceMean": lambda x, *, axis=None, **o: average(x, axis, dtype=x.dtype if x.dtype.kind == "f" else None, **o),
    "ReduceMax": lambda x, **o: np.max(x, **o) if x.size else np.max(x, initial=_bound(x, -1), **o),
    "ReduceMin": lambda x, **o: np.min(x, **o) if x.size else np.min(x, initial=_bound(x, 1), **o),
    "ReduceProd": lambda x, **o: np.prod(x, dtype=x.dtype, **o),
    "ReduceL1": lambda x, **o: np.sum(np.abs(x), dtype=x.dtype, **o),
    "ReduceL2": lambda x, **o: np.sqrt(np.sum(x * x, **o)),
    "ReduceSumSquare": lambda x, **o: np.sum(x * x, dtype=x.dtype, **o),
    "ReduceLogSum": lambda x, **o: np.log(np.sum(x, **o)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _bound(x: Array, sign: int) -> Any:
    """The extreme of nothing: the largest (1) or smallest (-1) number of the dtype."""
    if x.dtype.kind in "iu":
        return np.iinfo(x.dtype).max if sign > 0 else np.iinfo(x.dtype).min
    return sign > 0 if x.dtype.kind == "b" else sign * np.inf


def _enter(name: str) -> None:
    function = REDUCTIONS[name]

    @op(name)
    def reduce(x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        chosen = ints(axes) or None
        if chosen is None and noop_with_empty_axes:
            chosen = ()
        return np.asarray(function(x, axis=chosen, keepdims=bool(keepdims))).astype(x.dtype, copy=False)


for _name in REDUCTIONS:
    _enter(_name)


def _arg(choose: Callable[..., Array], x: Array, axis: int, keepdims: int, last: int) -> Array:
    index = choose(np.flip(x, axis) if last else x, axis=axis, keepdims=bool(keepdims))
    return (x.shape[axis] - 1 - index if last else index).astype(np.int64)


@op("ArgMax")
def argmax(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
    """Index of the largest element along an axis."""
    return _arg(np.argmax, x, axis, keepdims, select_last_index)


@op("ArgMin")
def argmin(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
    """Index of the smallest element along an axis."""
    return _arg(np.argmin, x, axis, keepdims, select_last_index)


@op("CumSum")
def cumsum(x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """Running sum along an axis."""
    along = int(np.ravel(axis)[0])
    x = np.flip(x, along) if reverse else x
    total = np.cumsum(x, along, dtype=x.dtype)
    total = total - x if exclusive else total
    return np.flip(total, along) if reverse else total


@op("TopK")
def top_k(x: Array, k: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:
    """The k largest or smallest along an axis and their indices; equal values in the order of their indices."""
    key = np.flip(x, axis) if largest else x
    order = np.argsort(key, axis, kind="stable")
    if largest:  # the flip, undone here, keeps the first of equal values first
        order = np.flip(x.shape[axis] - 1 - order, axis)
    order = np.take(order, np.arange(int(np.ravel(k)[0])), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


@op("MatMul")
def matmul(a: Array, b: Array) -> Array:
    """Matrix product, batched and broadcast over leading axes."""
    return np.matmul(a, b).astype(a.dtype, copy=False)  # NumPy widens bfloat16


@op("Gemm")
def gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """alpha A B + beta C, A and B transposed if asked."""
    y = (a.T if transA else a) @ (b.T if transB else b)
    if alpha != 1:
        y = y * a.dtype.type(alpha)
    return y if c is None else y + (c if beta == 1 else c * a.dtype.type(beta))


@op("Einsum")
def einsum(*xs: Array, equation: str) -> Array:
    """Einstein's summation."""
    wide = xs[0].dtype if xs[0].dtype.kind in "iufb" else np.dtype(np.float32)  # bfloat16 and its like
    operands = [x.astype(wide, copy=False) for x in xs]
    return np.einsum(equation.replace(" ", ""), *operands, optimize=len(xs) > 2).astype(xs[0].dtype, copy=False)
