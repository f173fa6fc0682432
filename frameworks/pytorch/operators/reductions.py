"""Reductions, cumulative sums, sorting, matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from deep500.frameworks.pytorch.operators.table import ints, op, scalar
from deep500.networks.execution.operator_table import positive

Tensor = torch.Tensor
Reduction = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _amax(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return _extreme(torch.amax, x, axes, keep, lowest=True)


def _amin(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return _extreme(torch.amin, x, axes, keep, lowest=False)


def _extreme(reduce: Any, x: Tensor, axes: tuple[int, ...], keep: bool, lowest: bool) -> Tensor:
    """The extreme of an empty set is the identity of the operation."""
    if x.numel():
        return reduce(x, axes, keepdim=keep)
    if x.is_floating_point():
        identity: Any = float("-inf") if lowest else float("inf")
    else:
        limits = None if x.dtype == torch.bool else torch.iinfo(x.dtype)
        identity = not lowest if limits is None else limits.min if lowest else limits.max
    return x.new_full(x.new_empty(x.shape).sum(axes, keepdim=keep).shape, identity)


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in sorted((positive(a, x.ndim) for a in axes), reverse=True):
        x = x.prod(axis, keepdim=keep, dtype=x.dtype)
    return x


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if x.is_floating_point():
        return x.mean(axes, keepdim=keep)
    return x.to(torch.float64).mean(axes, keepdim=keep).trunc().to(x.dtype)


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.sum(axes, keepdim=keep, dtype=x.dtype)


def _via_float(function: Reduction) -> Reduction:
    def reduce(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        return function(x if x.is_floating_point() else x.to(torch.float64), axes, keep).to(x.dtype)

    return reduce


def root(x: Tensor, degree: float) -> Tensor:
    """x^(1 / degree), whose gradient at 0 is taken to be 0 instead of infinite: sums of nothing but zeros have none."""
    zero = x == 0
    return torch.where(zero, 0, torch.where(zero, 1, x) ** (1 / degree))


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _amax,
    "ReduceMin": _amin,
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: _sum(x.abs(), axes, keep),
    "ReduceL2": _via_float(lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": _via_float(lambda x, axes, keep: _sum(x, axes, keep).log()),
    "ReduceLogSumExp": _via_float(lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep)),
}
"""One function (tensor, axes, keep) for each; the operators below differ in nothing else."""


POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceL1": torch.abs,
    "ReduceL2": torch.abs,
    "ReduceSumSquare": torch.square,
    "ReduceLogSum": torch.log,
}
"""Functions of each element that are left of a reduction over no axes (ONNX's wording for ``noop_with_empty_axes``)."""


def reduce(kind: str, x: Tensor, axes: Any, keep: int, noop: int) -> Tensor:
    """Apply one of :data:`REDUCTIONS`; no axes mean all, or none under ``noop_with_empty_axes``."""
    chosen = ints(axes)
    if not chosen:
        if noop:
            return POINTWISE[kind](x) if kind in POINTWISE else x
        chosen = list(range(x.ndim))
    return REDUCTIONS[kind](x, tuple(chosen), bool(keep))


def _enter(kind: str) -> None:
    @op(kind, static=(1,))
    def reduction(x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        return reduce(kind, x, axes, keepdims, noop_with_empty_axes)

    reduction.__name__ = reduction.__qualname__ = kind  # generated code and pickles find it under this name
    globals()[kind] = reduction


for _kind in REDUCTIONS:
    _enter(_kind)


def _arg(x: Tensor, axis: int, keep: int, last: int, largest: bool) -> Tensor:
    find = torch.argmax if largest else torch.argmin
    if last:
        return x.shape[axis] - 1 - find(x.flip(axis), axis, keepdim=bool(keep))
    return find(x, axis, keepdim=bool(keep))


@op("ArgMax")
def argmax(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _arg(x, axis, keepdims, select_last_index, True)


@op("ArgMin")
def argmin(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    return _arg(x, axis, keepdims, select_last_index, False)


def _cumulate(function: Any, first: int, x: Tensor, axis: int, exclusive: int, reverse: int) -> Tensor:
    axis = positive(axis, x.ndim)
    y = x.flip(axis) if reverse else x
    y = function(y, axis, dtype=x.dtype)
    if exclusive:
        head = torch.full_like(y.narrow(axis, 0, 1), first)
        y = torch.cat([head, y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return y.flip(axis) if reverse else y


@op("CumSum", static=(1,))
def cumsum(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _cumulate(torch.cumsum, 0, x, scalar(axis), exclusive, reverse)


@op("CumProd", static=(1,))
def cumprod(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _cumulate(torch.cumprod, 1, x, scalar(axis), exclusive, reverse)


@op("TopK", static=(1,), many=True)
def top_k(x: Tensor, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    """Equal values come in the order of their indices, as ONNX asks; a stable sort keeps it."""
    values, indices = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return values.narrow(axis, 0, scalar(k)), indices.narrow(axis, 0, scalar(k))


@op("Unique", many=True)
def unique(x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    import numpy as np

    from deep500.frameworks.pytorch.dtypes import from_array, to_array

    _, first, inverse, counts = np.unique(
        to_array(x), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], rank[inverse]
    places = from_array(first).to(x.device)
    values = x.flatten()[places] if axis is None else x.index_select(axis, places)  # of x, so that gradients pass
    return values, places, from_array(inverse).to(x.device), from_array(counts).to(x.device)


def _matrix_product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``; of whole numbers on a GPU, which has no kernel for them, exactly in other ways."""
    if a.is_floating_point() or not a.is_cuda:
        return torch.matmul(a, b)
    rows = a if a.ndim > 1 else a.unsqueeze(0)
    columns = b if b.ndim > 1 else b.unsqueeze(1)
    if a.element_size() <= 2 and rows.shape[-1] < 1 << 20:  # exact: 2^32 times 2^20 is below 2^53
        y = torch.matmul(rows.to(torch.float64), columns.to(torch.float64)).to(torch.int64).to(a.dtype)
    else:
        y = (rows.unsqueeze(-1) * columns.unsqueeze(-3)).sum(-2, dtype=a.dtype)
    y = y if b.ndim > 1 else y.squeeze(-1)
    return y if a.ndim > 1 else y.squeeze(-2 if b.ndim > 1 else -1)


@op("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return _matrix_product(a, b)


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
    a, b = a.mT if transA else a, b.mT if transB else b
    if c is not None and a.is_floating_point():
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)
    y = _matrix_product(a, b)
    if alpha != 1:
        y = (y * alpha).to(a.dtype)
    return y if c is None else y + (c if beta == 1 else (c * beta).to(a.dtype))


@op("Einsum")
def einsum(*xs: Tensor, equation: str) -> Tensor:
    if xs[0].is_cuda and not xs[0].is_floating_point():  # no kernel for whole numbers; the compiler refuses wide ones
        wide = [x.to(torch.float64) for x in xs]
        return torch.einsum(equation.replace(" ", ""), *wide).to(torch.int64).to(xs[0].dtype)
    return torch.einsum(equation.replace(" ", ""), *xs)


@op("Det")
def det(x: Tensor) -> Tensor:
    return torch.linalg.det(x)
