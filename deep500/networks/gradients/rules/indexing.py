"""Rules of operators that read or write at indices: what was gathered is scattered, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence

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
    own = list(range(axis, axis + count))
    front = g.transpose(dy, [*own, *(a for a in range(rank - 1 + count) if a not in own)])
    sizes = g.static(x)
    shape = g.ints(*(sizes[a] for a in perm)) if sizes is not None else g.sizes(x, perm)
    index = g("Unsqueeze", indices, g.ints(-1))
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
    dy, indices, reduction = g.grad(), g.input(1), g.attribute("reduction")
    if reduction not in ("none", "add"):
        g.refuse(f"reduction {reduction!r} has no rule; 'none' and 'add' have")
    axis = {"axis": g.attribute("axis")} if g.node.op_type == "ScatterElements" else {}
    dx = dy
    if g.needs(0) and reduction == "none":
        dx = g(g.node.op_type, dy, indices, g.zeros_like(g.input(2)), **axis)
    gathering = "GatherElements" if axis else "GatherND"
    return [dx, None, g(gathering, dy, indices, **axis) if g.needs(2) else None]


@gradient_rule("Compress", blocked=[1])
def compress(g: GradContext) -> Gradients:
    """What was selected returns to its position."""
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
