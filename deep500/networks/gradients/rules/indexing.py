"""Rules of operators that read or write at indices: what was gathered is scattered, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deep500.networks.gradients.rules.context import GradContext, Value, inverse
from deep500.networks.gradients.rules.registry import gradient_rule

Gradients = Sequence[Value | None]


@gradient_rule("Gather", blocked=[1])
def gather(g: GradContext) -> Gradients:
    """Rows are added back where they came from; another axis than the first is moved there before, and back after."""
    x, indices, dy = g.input(0), g.input(1), g.grad()
    rank, count = g.rank(x), g.rank(indices)
    axis = g.attribute("axis") % rank
    perm = [axis, *(a for a in range(rank) if a != axis)]
    index_axes = list(range(axis, axis + count))
    front = g.transpose(dy, [*index_axes, *(a for a in range(rank - 1 + count) if a not in index_axes)])
    sizes = g.static(x)
    shape = g.ints(*(sizes[a] for a in perm)) if sizes is not None else g.sizes(x, perm)
    wide = indices if g.describe(indices).dtype == "int64" else g.cast(indices, "int64")  # ScatterND takes no other
    index = g("Unsqueeze", wide, g.ints(-1))
    return [g.transpose(g("ScatterND", g.zeros(shape), index, front, reduction="add"), inverse(perm))]


@gradient_rule("GatherND", blocked=[1])
def gather_nd(g: GradContext) -> Gradients:
    """ScatterND; with batch axes through flat positions."""
    x, indices, dy = g.input(0), g.input(1), g.grad()
    batch = g.attribute("batch_dims")
    if batch:
        return [g.scatter_back(g("GatherND", g.positions(x), indices, batch_dims=batch), dy, x)]
    return [g("ScatterND", g.zeros_like(x), indices, dy, reduction="add")]


@gradient_rule("GatherElements", blocked=[1])
def gather_elements(g: GradContext) -> Gradients:
    """ScatterElements along the same axis."""
    x = g.input(0)
    axis = g.attribute("axis")
    return [g("ScatterElements", g.zeros_like(x), g.input(1), g.grad(), axis=axis, reduction="add")]


@gradient_rule("ScatterND", "ScatterElements", blocked=[1])
def scatter(g: GradContext) -> Gradients:
    """The updates' gradient is gathered; overwritten elements of the data have none, added ones keep theirs."""
    dy, reduction = g.grad(), g.attribute("reduction")
    if reduction in ("max", "min"):
        return _scatter_extremes(g)
    if reduction == "mul":
        return _scatter_products(g)
    dx = dy
    if g.needs(0) and reduction == "none":
        dx = _scatter(g, dy, g.zeros_like(g.input(2)), "none")
    return [dx, None, _gather(g, dy) if g.needs(2) else None]


def _axis(g: GradContext) -> dict[str, Any]:
    return {"axis": g.attribute("axis")} if g.node.op_type == "ScatterElements" else {}


def _scatter(g: GradContext, data: Value, updates: Value, reduction: str) -> Value:
    """The node's operation on other operands."""
    return g(g.node.op_type, data, g.input(1), updates, reduction=reduction, **_axis(g))


def _gather(g: GradContext, data: Value) -> Value:
    """For each update the element of ``data`` that it meets."""
    return g("GatherElements" if _axis(g) else "GatherND", data, g.input(1), **_axis(g))


def _scatter_extremes(g: GradContext) -> Gradients:
    """All that equal the extreme, data and updates, share its gradient evenly, as in PyTorch's ``scatter_reduce``."""
    x, updates, y = g.input(0), g.input(2), g.output()
    of_data, of_updates = g.cast(g("Equal", x, y)), g.cast(g("Equal", updates, _gather(g, y)))
    share = g.grad() / _scatter(g, of_data, of_updates, "add")
    return [of_data * share, None, of_updates * _gather(g, share) if g.needs(2) else None]


def _scatter_products(g: GradContext) -> Gradients:
    """Each factor's gradient is the product of the others: that of all divided by it, or what is left without a zero.

    A zero among the updates of one element is left out of the product for its own gradient; of two, both have none.
    """
    x, updates, dy = g.input(0), g.input(2), g.grad()
    zero, unit = g.scalar(0), g.scalar(1)
    dx = None
    if g.needs(0):
        whole = g.where(g("Equal", x, zero), unit, x)
        dx = dy * _scatter(g, whole, updates, "mul") / whole
    if not g.needs(2):
        return [dx]
    is_zero = g("Equal", updates, zero)
    zeros = _gather(g, _scatter(g, g.zeros_like(x), g.cast(is_zero), "add"))
    alone = g("And", is_zero, g("Equal", zeros, unit))
    without = _gather(g, dy * _scatter(g, x, g.where(alone, unit, updates), "mul"))
    of_all = _gather(g, dy * g.output()) / g.where(is_zero, unit, updates)
    return [dx, None, g.where(alone, without, of_all)]


@gradient_rule("OneHot", blocked=[0, 1])
def one_hot(g: GradContext) -> Gradients:
    """Of the two values: the second stands where the mask is one, the first everywhere else."""
    dy = g.grad()
    mask = g("OneHot", g.input(0), g.input(1), g.array([0, 1]), axis=g.attribute("axis"))
    on = g("ReduceSum", dy * mask, keepdims=0)
    off = g("ReduceSum", dy, keepdims=0) - on
    return [None, None, g("Concat", *(g("Unsqueeze", value, g.ints(0)) for value in (off, on)), axis=0)]


@gradient_rule("Compress", blocked=[1])
def compress(g: GradContext) -> Gradients:
    """Gradients of what was selected return to its position."""
    x = g.input(0)
    axis = g.attribute("axis")
    selected = g("Compress", g.positions(x), g.input(1), axis=axis)
    return [g.scatter_back(selected, g.grad(), x, unique=True)]


@gradient_rule("ReverseSequence", blocked=[1])
def reverse_sequence(g: GradContext) -> Gradients:
    """The same reversal again."""
    axes = {name: g.attribute(name) for name in ("batch_axis", "time_axis")}
    return [g("ReverseSequence", g.grad(), g.input(1), **axes)]


@gradient_rule("TopK", blocked=[1])
def top_k(g: GradContext) -> Gradients:
    """Each value's gradient returns to where the value was."""
    x = g.input(0)
    axis = g.attribute("axis")
    return [g("ScatterElements", g.zeros_like(x), g.output(1), g.grad(0), axis=axis)]
