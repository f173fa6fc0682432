"""Rules of matrix products: MatMul, Gemm, Einsum."""

from __future__ import annotations

from collections.abc import Sequence

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule


def _swapped(g: GradContext, value: Value, rank: int) -> Value:
    """Transpose of the last two axes."""
    return g.transpose(value, [*range(rank - 2), rank - 1, rank - 2])


@gradient_rule("MatMul")
def matmul(g: GradContext) -> Sequence[Value | None]:
    """Y = A B: dA = dY B^T, dB = A^T dY, summed over broadcast batch axes; vectors are matrices of one row."""
    a, b, dy = g.input(0), g.input(1), g.grad()
    ranks = g.rank(a), g.rank(b)
    if ranks[1] == 2 and ranks[0] >= 2:
        return _matmul_by_matrix(g, ranks[0])
    if min(ranks) >= 2:
        da = g("MatMul", dy, _swapped(g, b, ranks[1])) if g.needs(0) else None
        db = g("MatMul", _swapped(g, a, ranks[0]), dy) if g.needs(1) else None
        rank = max(ranks)
        return [
            None if da is None else _over_batch(g, da, a, rank),
            None if db is None else _over_batch(g, db, b, rank),
        ]
    if ranks == (1, 1):
        return [dy * b if g.needs(0) else None, dy * a if g.needs(1) else None]
    if ranks[0] == 1:  # y[..., n] = a[k] b[..., k, n]
        column = g("Unsqueeze", dy, g.ints(-1))
        da = g.total(g("Squeeze", g("MatMul", b, column), g.ints(-1)), range(ranks[1] - 2)) if g.needs(0) else None
        row = g("Unsqueeze", dy, g.ints(-2))
        return [da, g("Unsqueeze", a, g.ints(-1)) * row if g.needs(1) else None]
    column = g("Unsqueeze", dy, g.ints(-1))  # y[..., m] = a[..., m, k] b[k]
    db = g("Squeeze", g("MatMul", _swapped(g, a, ranks[0]), column), g.ints(-1)) if g.needs(1) else None
    return [column * b if g.needs(0) else None, None if db is None else g.total(db, range(ranks[0] - 2))]


def _matmul_by_matrix(g: GradContext, rank: int) -> Sequence[Value | None]:
    """B is one matrix for all of A's batch axes, which one product then contracts together."""
    a, b, dy = g.input(0), g.input(1), g.grad()
    if rank == 2:
        return [g("Gemm", dy, b, transB=1) if g.needs(0) else None, g("Gemm", a, dy, transA=1) if g.needs(1) else None]
    da = g("MatMul", dy, g("Transpose", b, perm=(1, 0))) if g.needs(0) else None
    if not g.needs(1):
        return [da, None]
    rows, columns = g.reshape_to(a, [-1, (b, 0)]), g.reshape_to(dy, [-1, (b, 1)])
    return [da, g("Gemm", rows, columns, transA=1)]


def _over_batch(g: GradContext, gradient: Value, like: Value, rank: int) -> Value:
    """Undo the broadcasting of batch axes; the gradient's own batch axes are those of the output."""
    mine, out = g.dims(like), g.dims(g.output())
    if mine is not None and out is not None and len(mine) == rank and mine[:-2] == out[:-2] and None not in mine[:-2]:
        return gradient
    if mine is not None and out is not None:
        lead = rank - len(mine)
        pairs = list(zip(mine[:-2], out[lead:-2], strict=True))
        if all(isinstance(s, int) or (s is not None and s == b) for s, b in pairs):
            ones = [lead + i for i, (s, b) in enumerate(pairs) if s == 1 and b != 1]
            reduced = g.total(gradient, ones, keepdims=True)
            return g.total(reduced, range(lead))
    return g.unbroadcast_at_run_time(gradient, like)


@gradient_rule("Gemm")
def gemm(g: GradContext) -> Sequence[Value | None]:
    """Y = alpha A' B' + beta C with A', B' transposed or not: two more Gemms, and a sum for C."""
    a, b, dy = g.input(0), g.input(1), g.grad()
    ta, tb = g.attribute("transA"), g.attribute("transB")
    alpha, beta = g.attribute("alpha"), g.attribute("beta")
    da = db = dc = None
    if g.needs(0):
        da = g("Gemm", b, dy, transA=tb, transB=1, alpha=alpha) if ta else g("Gemm", dy, b, transB=1 - tb, alpha=alpha)
    if g.needs(1):
        db = g("Gemm", dy, a, transA=1, transB=ta, alpha=alpha) if tb else g("Gemm", a, dy, transA=1 - ta, alpha=alpha)
    if g.needs(2):
        dc = g.unbroadcast(dy, g.input(2))
        dc = dc if beta == 1 else dc * beta
    return [da, db, dc]


@gradient_rule("Einsum")
def einsum(g: GradContext) -> Sequence[Value | None]:
    """Each operand's gradient is the Einsum of dY with the other operands; indices of its own are broadcast."""
    equation = g.attribute("equation").replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        result = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    if "." in equation or any(len(set(t)) != len(t) for t in terms):
        g.refuse(f"equation {equation!r} has an ellipsis or a repeated index in one term")
    grads: list[Value | None] = []
    for i, term in enumerate(terms):
        if not g.needs(i):
            grads.append(None)
            continue
        others = [(t, v) for j, (t, v) in enumerate(zip(terms, g.inputs, strict=True)) if j != i]
        seen = set(result).union(*(t for t, _ in others))
        common = "".join(c for c in term if c in seen)
        sources = ",".join([result, *(t for t, _ in others)])
        value = g("Einsum", g.grad(), *(v for _, v in others), equation=f"{sources}->{common}")
        lost = [k for k, c in enumerate(term) if c not in seen]
        if lost:
            value = g.expand_like(g("Unsqueeze", value, g.ints(*lost)), g.input(i))
        grads.append(value)
    return grads
