"""Reductions, cumulative sums, sorting, matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.dtypes import is_float
from deep500.frameworks.jax.operators.table import Array, ints, op, scalar, xp
from deep500.networks.execution.operator_table import positive

Reduction = Callable[[Array, tuple[int, ...], bool], Array]


def _sum(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    return x.sum(axes, keepdims=keep, dtype=x.dtype)


def _mean(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    if is_float(x):
        return x.mean(axes, keepdims=keep, dtype=x.dtype)
    return xp(x).trunc(x.astype(np.float64).mean(axes, keepdims=keep)).astype(x.dtype)


def _extreme(largest: bool) -> Reduction:
    """The extreme of an empty set is the identity of the operation."""

    def reduce(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        if x.dtype == np.bool_:
            return (xp(x).any if largest else xp(x).all)(x, axes, keepdims=keep)
        if is_float(x):
            first: Any = -np.inf if largest else np.inf
        else:
            first = np.iinfo(x.dtype).min if largest else np.iinfo(x.dtype).max
        if not x.size:
            return jnp.full(jnp.zeros(x.shape, bool).any(axes, keepdims=keep).shape, first, x.dtype)
        return (x.max if largest else x.min)(axes, keepdims=keep)

    return reduce


def _via_float(function: Reduction) -> Reduction:
    def reduce(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        return function(x if is_float(x) else x.astype(np.float64), axes, keep).astype(x.dtype)

    return reduce


def root(x: Array, degree: float) -> Array:
    """x^(1 / degree), whose gradient at 0 is taken to be 0 instead of infinite: sums of nothing but zeros have none."""
    unit = np.ones((), x.dtype)
    safe = xp(x).where(x == 0, unit, x)
    return xp(x).where(x == 0, unit - unit, xp(x).sqrt(safe) if degree == 2 else safe ** (1 / degree))


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _extreme(True),
    "ReduceMin": _extreme(False),
    "ReduceProd": lambda x, axes, keep: x.prod(axes, keepdims=keep, dtype=x.dtype),
    "ReduceL1": lambda x, axes, keep: _sum(abs(x), axes, keep),
    "ReduceL2": _via_float(lambda x, axes, keep: root(_sum(x * x, axes, keep), 2)),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": _via_float(lambda x, axes, keep: xp(x).log(_sum(x, axes, keep))),
    "ReduceLogSumExp": _via_float(lambda x, axes, keep: jax.nn.logsumexp(x, axes, keepdims=keep)),
}
"""One function (array, axes, keep) for each; the operators below differ in nothing else."""

POINTWISE: dict[str, Callable[[Array], Array]] = {
    "ReduceL1": abs,
    "ReduceL2": abs,
    "ReduceSumSquare": lambda x: x * x,
    "ReduceLogSum": lambda x: xp(x).log(x),
}
"""Functions of each element that are left of a reduction over no axes (ONNX's wording for ``noop_with_empty_axes``)."""


def _enter(kind: str) -> None:
    @op(kind, static=(1,), host=kind != "ReduceLogSumExp")
    def reduction(x: Array, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        """No axes mean all, or none under ``noop_with_empty_axes``."""
        chosen = ints(axes)
        if not chosen and noop_with_empty_axes:
            return POINTWISE[kind](x) if kind in POINTWISE else x
        return REDUCTIONS[kind](x, tuple(chosen or range(x.ndim)), bool(keepdims))


for _kind in REDUCTIONS:
    _enter(_kind)


def _arg(x: Array, axis: int, keep: int, last: int, largest: bool) -> Array:
    find = jnp.argmax if largest else jnp.argmin
    if last:
        index = x.shape[axis] - 1 - find(jnp.flip(x, axis), axis, keepdims=bool(keep))
    else:
        index = find(x, axis, keepdims=bool(keep))
    return index.astype(np.int64)


@op("ArgMax")
def argmax(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
    return _arg(x, axis, keepdims, select_last_index, True)


@op("ArgMin")
def argmin(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
    return _arg(x, axis, keepdims, select_last_index, False)


def _cumulate(name: str, first: int, x: Array, axis: int, exclusive: int, reverse: int) -> Array:
    lib, axis = xp(x), positive(axis, x.ndim)
    y = lib.flip(x, axis) if reverse else x
    y = getattr(lib, name)(y, axis, dtype=x.dtype)
    if exclusive:
        part = tuple(slice(0, -1) if i == axis else slice(None) for i in range(x.ndim))
        head = np.full([1 if i == axis else n for i, n in enumerate(x.shape)], first, x.dtype)
        y = lib.concatenate([head, y[part]], axis)
    return lib.flip(y, axis) if reverse else y


@op("CumSum", static=(1,), host=True)
def cumsum(x: Array, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Array:
    return _cumulate("cumsum", 0, x, scalar(axis), exclusive, reverse)


@op("CumProd", static=(1,), host=True)
def cumprod(x: Array, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Array:
    return _cumulate("cumprod", 1, x, scalar(axis), exclusive, reverse)


@op("TopK", static=(1,), many=True)
def top_k(x: Array, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:
    """Equal values come in the order of their indices, as ONNX asks; a stable sort keeps it."""
    order = jnp.argsort(x, axis, stable=True, descending=bool(largest))
    order = jax.lax.slice_in_dim(order, 0, int(scalar(k)), axis=positive(axis, x.ndim))
    return jnp.take_along_axis(x, order, axis), order.astype(np.int64)


@op("Unique", static=(0,), many=True, host=True)
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, ...]:
    values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values = np.take(values, order, axis=0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return values, first, inverse, counts


# -- products ---------------------------------------------------------------------------------------------------------
@op("MatMul")
def matmul(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b)


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
    y = jnp.matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1:
        y = (y * alpha).astype(a.dtype)
    return y if c is None else y + (c if beta == 1 else (c * beta).astype(a.dtype))


@op("Einsum")
def einsum(*xs: Array, equation: str) -> Array:
    return jnp.einsum(equation.replace(" ", ""), *xs)


@op("Det")
def det(x: Array) -> Array:
    return jnp.linalg.det(x)


__all__ = ["POINTWISE", "REDUCTIONS"]
