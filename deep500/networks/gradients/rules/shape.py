"""Rules of operators that move data without choosing by value: the gradient moves back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deep500.networks.gradients.rules.context import GradContext, Value, inverse
from deep500.networks.gradients.rules.registry import gradient_rule

Gradients = Sequence[Value | None]


@gradient_rule("Reshape", "Flatten", "Squeeze", "Unsqueeze", blocked=[1])
def reshape(g: GradContext) -> Gradients:
    """The same elements in the same order: back to the input's shape."""
    return [g.reshape_like(g.grad(), g.input(0))]


@gradient_rule("Transpose")
def transpose(g: GradContext) -> Gradients:
    """The inverse permutation."""
    perm = g.attribute("perm")
    return [g("Transpose", g.grad()) if perm is None else g.transpose(g.grad(), inverse(perm))]


@gradient_rule("Concat")
def concat(g: GradContext) -> Gradients:
    """Split where the inputs were joined."""
    axis = g.attribute("axis")
    if len(g.inputs) == 1:
        return [g.grad()]
    known = [g.static(g.input(i), [axis]) for i in range(len(g.inputs))]
    if all(s is not None for s in known):
        sizes = g.ints(*(s[0] for s in known if s is not None))
    else:
        sizes = g("Concat", *(g.sizes(g.input(i), [axis]) for i in range(len(g.inputs))), axis=0)
    return g.many("Split", g.grad(), sizes, axis=axis, outputs=len(g.inputs))


@gradient_rule("Split", blocked=[1])
def split(g: GradContext) -> Gradients:
    """Concat of the parts' gradients, zeros for those without."""
    parts = [g.grad(i) for i in range(len(g.outputs))]
    return [g("Concat", *parts, axis=g.attribute("axis"))]


@gradient_rule("Slice", blocked=[1, 2, 3, 4])
def slice_(g: GradContext) -> Gradients:
    """Pad with zeros; where steps or unknown sizes forbid that, scatter to the positions that were sliced."""
    x, dy = g.input(0), g.grad()
    pads = _slice_pads(g)
    if pads is not None:
        return [dy if not any(pads) else g("Pad", dy, g.ints(*pads))]
    return [g.scatter_back(g("Slice", g.positions(x), *g.inputs[1:]), dy, x, unique=True)]


def _slice_pads(g: GradContext) -> list[int] | None:
    """Begin and end pads that undo a Slice with step 1 over axes of known size, else None."""
    dims = g.dims(g.input(0))
    fixed = [g.constant_of(i) for i in (1, 2)]
    if dims is None or any(f is None for f in fixed):
        return None
    starts, ends = (np.asarray(f).reshape(-1) for f in fixed)
    axes = g.constant_of(3) if g.optional(3) else np.arange(len(starts))
    steps = g.constant_of(4) if g.optional(4) else np.ones(len(starts), np.int64)
    if axes is None or steps is None or np.any(steps != 1):
        return None
    pads = [0] * (2 * len(dims))
    for axis, start, end in zip(axes, starts, ends, strict=True):
        size = dims[int(axis)]
        if not isinstance(size, int):
            return None
        first, last, _ = slice(int(start), int(end)).indices(size)
        pads[int(axis) % len(dims)] = first
        pads[int(axis) % len(dims) + len(dims)] = size - max(first, last)
    return pads


@gradient_rule("Pad", blocked=[1, 3])
def pad(g: GradContext) -> Gradients:
    """Crop; elements that other modes repeat gather the gradients of their copies."""
    x, dy, pads = g.input(0), g.grad(), g.input(1)
    if g.attribute("mode") != "constant":
        moved = g("Pad", g.positions(x), pads, None, g.optional(3), mode=g.attribute("mode"))
        return [g.scatter_back(moved, dy, x)]
    needs_crop = g.needs(0) or g.needs(2)
    dx = _cropped(g, dy) if needs_crop else None
    fill = None
    if g.needs(2):
        inside = g("ReduceSum", _cropped(g, dy), keepdims=0)
        fill = g.reshape_like(g("ReduceSum", dy, keepdims=0) - inside, g.input(2))
    return [dx, None, None if fill is None else fill]


def _cropped(g: GradContext, dy: Value) -> Value:
    """Undo constant padding: Slice off what was added; what negative pads had cut off gets zeros."""
    pads = g.constant_of(1)
    if pads is None:
        return g("Pad", dy, g("Neg", g.input(1)), None, g.optional(3))
    axes = g.constant_of(3) if g.optional(3) else np.arange(len(pads) // 2)
    if axes is None:
        return g("Pad", dy, g("Neg", g.input(1)), None, g.optional(3))
    begin, end = (np.asarray(half) for half in np.split(pads, 2))
    cut = np.flatnonzero((begin > 0) | (end > 0))
    if cut.size:
        stop = np.where(end > 0, -end, np.iinfo(np.int64).max)
        dy = g("Slice", dy, g.ints(*np.maximum(begin, 0)[cut]), g.ints(*stop[cut]), g.ints(*axes[cut]))
    if np.any(pads < 0):
        dy = g("Pad", dy, g.ints(*np.maximum(-pads, 0)), None, g.ints(*axes))
    return dy


@gradient_rule("Expand", blocked=[1])
def expand(g: GradContext) -> Gradients:
    """Sum over what was repeated."""
    return [g.unbroadcast(g.grad(), g.input(0))]


@gradient_rule("Tile", blocked=[1])
def tile(g: GradContext) -> Gradients:
    """Sum over the copies."""
    x, dy = g.input(0), g.grad()
    repeats, sizes = g.constant_of(1), g.dims(x)
    free = [d for d in sizes or () if not isinstance(d, int)]
    if repeats is None or sizes is None or len(free) > 1:
        return [g.scatter_back(g("Tile", g.positions(x), g.input(1)), dy, x)]
    pairs = [(int(r), d if isinstance(d, int) else -1) for r, d in zip(repeats, sizes, strict=True)]
    split_up = g.reshape(dy, *(n for pair in pairs for n in pair))
    return [g.total(split_up, range(0, 2 * len(pairs), 2))]


@gradient_rule("DepthToSpace")
def depth_to_space(g: GradContext) -> Gradients:
    """SpaceToDepth; in CRD order by Reshape and Transpose."""
    x, dy, block = g.input(0), g.grad(), g.attribute("blocksize")
    if g.attribute("mode") == "DCR":
        return [g("SpaceToDepth", dy, blocksize=block)]
    dims = g.static(x, [1, 2, 3])
    if dims is None:
        g.refuse("mode CRD needs known channels, height and width")
    channels, height, width = dims
    parts = g.reshape(dy, -1, channels // block**2, height, block, width, block)
    return [g.reshape_like(g.transpose(parts, (0, 1, 3, 5, 2, 4)), x)]


@gradient_rule("SpaceToDepth")
def space_to_depth(g: GradContext) -> Gradients:
    """DepthToSpace in the same order."""
    return [g("DepthToSpace", g.grad(), blocksize=g.attribute("blocksize"), mode=g.attribute("mode", "DCR"))]


@gradient_rule("Trilu", blocked=[1])
def trilu(g: GradContext) -> Gradients:
    """The same triangle of the gradient."""
    return [g("Trilu", g.grad(), g.optional(1), upper=g.attribute("upper"))]
