"""Rules of operators that move elements: axes that pass through untouched may be split."""

from __future__ import annotations

import numpy as np

from deep500.transformations.parallel.rules.registry import letters, passing, sharding_rule, without
from deep500.transformations.parallel.strategies import Factors, SizedNode

_FIRST = (frozenset({0}),)


@sharding_rule("Transpose")
def transpose(view: SizedNode) -> Factors:
    """All axes."""
    labels = letters(len(view.inputs[0]))
    order = view.attribute("perm") or tuple(reversed(range(len(labels))))
    return Factors([labels], [[labels[axis] for axis in order]], linear=_FIRST)


def groups(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[list[str | None], list[str | None]]:
    """Factors of a reshape: axes whose products agree form a group, and its outermost axes are one factor.

    Example:
        >>> groups((2, 3, 8), (6, 2, 4))
        (['g0', None, 'g1'], ['g0', 'g1', None])
    """
    ins: list[str | None] = [None] * len(before)
    outs: list[str | None] = [None] * len(after)
    left = [axis for axis, size in enumerate(before) if size != 1]
    right = [axis for axis, size in enumerate(after) if size != 1]
    i = j = number = 0
    while i < len(left) and j < len(right):
        ins[left[i]] = outs[right[j]] = f"g{number}"
        a, b, number = before[left[i]], after[right[j]], number + 1
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * before[left[i]], i + 1
            else:
                b, j = b * after[right[j]], j + 1
    return ins, outs


@sharding_rule("Reshape", "Flatten")
def reshape(view: SizedNode) -> Factors | None:
    """Outermost axes of each group of axes with equal products."""
    if 0 in view.inputs[0]:
        return None
    ins, outs = groups(view.inputs[0], view.outputs[0])
    sizes = {index: 0 for index in range(1, len(view.inputs))}
    # positions in a flattened tensor stay those of the rank's piece if it is the outermost axis that is split
    return Factors([ins, *[[None] for _ in sizes]], [outs], linear=_FIRST, sizes=sizes, hands_on=bool(sizes))


@sharding_rule("Squeeze", "Unsqueeze")
def squeeze(view: SizedNode) -> Factors:
    """All axes that are there before and after."""
    ins, outs = groups(view.inputs[0], view.outputs[0])
    return Factors([ins, *[[None] * len(shape) for shape in view.inputs[1:]]], [outs], linear=_FIRST)


@sharding_rule("Expand")
def expand(view: SizedNode) -> Factors:
    """All axes; along one that is repeated only the result is split."""
    shape = view.outputs[0]
    labels = [f"d{axis}" if size > 1 else None for axis, size in enumerate(shape)]
    first = len(shape) - len(view.inputs[0])
    ins = [labels[first + axis] if size == shape[first + axis] else None for axis, size in enumerate(view.inputs[0])]
    return Factors([ins, [None]], [labels], linear=_FIRST, sizes={1: 0})


@sharding_rule("ConstantOfShape")
def constant_of_shape(view: SizedNode) -> Factors:
    """All axes."""
    return Factors([[None]], [letters(len(view.outputs[0]))], sizes={0: 0})


@sharding_rule("Concat")
def concat(view: SizedNode) -> Factors:
    """All axes but the one that is put together."""
    rank = len(view.outputs[0])
    labels = without(letters(rank), [view.attribute("axis") % rank])
    return Factors([labels] * len(view.inputs), [labels], linear=[frozenset(range(len(view.inputs)))])


@sharding_rule("Split")
def split_up(view: SizedNode) -> Factors:
    """All axes but the one that is cut."""
    return passing(view, [view.attribute("axis", 0)], linear=True)


@sharding_rule("Slice")
def cut_out(view: SizedNode) -> Factors | None:
    """All axes that are not cut."""
    rank = len(view.inputs[0])
    starts = view.constant(1)
    if starts is None:
        return None
    axes = list(range(starts.size)) if not view.present(3) else view.axes(3, rank)
    return None if axes is None else passing(view, axes, linear=True)


@sharding_rule("Pad")
def pad(view: SizedNode) -> Factors | None:
    """All axes that are not padded; terms of a sum if zeros are put there."""
    rank = len(view.inputs[0])
    pads, axes, value = view.constant(1), view.axes(3, rank), view.constant(2)
    if pads is None or axes is None:
        return None
    padded = [axis for i, axis in enumerate(axes) if pads[i] or pads[i + len(axes)]]
    zero = not view.present(2) or (value is not None and not value.any())
    return passing(view, padded, linear=zero or view.attribute("mode") != "constant")


@sharding_rule("Tile")
def tile(view: SizedNode) -> Factors | None:
    """All axes that are not repeated."""
    repeats = view.constant(1)
    return None if repeats is None else passing(view, np.flatnonzero(repeats != 1).tolist(), linear=True)


@sharding_rule("Trilu")
def triangle(view: SizedNode) -> Factors:
    """The axes of the batch of matrices."""
    return passing(view, [-2, -1], linear=True)


@sharding_rule("Gather")
def gather(view: SizedNode) -> Factors:
    """Axes of the indices; of the data all but the one that is looked up."""
    data, indices = view.inputs
    axis = view.attribute("axis", 0) % len(data)
    labels, places = without(letters(len(data)), [axis]), [f"i{n}" for n in range(len(indices))]
    return Factors([labels, places], [[*labels[:axis], *places, *labels[axis + 1 :]]], linear=_FIRST)


@sharding_rule("GatherElements")
def gather_elements(view: SizedNode) -> Factors:
    """All axes of equal sizes but the one that is looked up."""
    data, indices = view.inputs
    axis = view.attribute("axis", 0) % len(data)
    labels = [f"d{i}" if i != axis and n == m else None for i, (n, m) in enumerate(zip(data, indices, strict=True))]
    return Factors([labels, labels], [labels], linear=_FIRST)


@sharding_rule("ScatterElements")
def scatter_elements(view: SizedNode) -> Factors:
    """All axes of equal sizes but the one that is written to; positions in flattened pieces stay in the pieces."""
    data, indices, _ = view.inputs
    axis = view.attribute("axis", 0) % len(data)
    linear = [frozenset({0, 2})] if view.attribute("reduction") in ("none", "add") else []
    if len(data) == 1:
        return Factors([["p"]] * 3, [["p"]], linear=linear, positions={1: "p"})
    labels = [f"d{i}" if i != axis and n == m else None for i, (n, m) in enumerate(zip(data, indices, strict=True))]
    return Factors([labels] * 3, [labels], linear=linear)


@sharding_rule("ScatterND")
def scatter_nd(view: SizedNode) -> Factors:
    """Axes of whole slices; if the writes are added up, the indices, and the data enter the sum once."""
    data, indices, updates = view.inputs
    depth, places = indices[-1], [f"i{n}" for n in range(len(indices) - 1)]
    slices: list[str | None] = [f"d{axis}" for axis in range(depth, len(data))]
    adds = view.attribute("reduction") == "add"
    written: list[str | None] = [*(places if adds else [None] * len(places)), *slices]
    assert len(written) == len(updates)
    labels: list[str | None] = [*[None] * depth, *slices]
    reduced = dict.fromkeys(places, "sum") if adds else {}
    inputs = [labels, [*(places if adds else [None] * len(places)), None], written]
    linear = [frozenset({0, 2})] if view.attribute("reduction") in ("none", "add") else []
    return Factors(inputs, [labels], reduced, once=frozenset({0}), linear=linear)


@sharding_rule("OneHot")
def one_hot(view: SizedNode) -> Factors:
    """Axes of the indices."""
    rank = len(view.outputs[0])
    places = letters(len(view.inputs[0]))
    axis = view.attribute("axis", -1) % rank
    return Factors([places, [None] * len(view.inputs[1]), [None]], [[*places[:axis], None, *places[axis:]]])
