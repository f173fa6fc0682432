"""Numbers that operands give and no result belongs to: places outside of an axis, parts that do not add up, scale 0.

Frameworks differ in what they do with these: some raise, some clamp, some read what lies beside. Here they are one
error that names the node, wherever the numbers are known: when a network is compiled, or when a kernel is given them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.tensors import Dim, TensorDescriptor

Operands = Sequence[np.ndarray | None]
Shape = Sequence[Dim]
MOST_TRIPS = 10**7
"""Most rounds of a Loop whose condition never changes."""
_Check = Callable[[Node, Operands, Shape], str | None]


def check_network(network: Graph, nodes: Iterable[Node]) -> None:
    """Check every node whose operands are arrays of the network that do not train.

    Raises:
        NetworkError: see :func:`check_operands`.
    """
    checked = [node for node in nodes if node.op_type in CHECKS and not node.domain]
    if not checked:
        return
    parameters, described = network.parameters, network.descriptors()
    for node in checked:
        shapes = [described[name].shape if name in described else None for name in node.inputs]
        if shapes and shapes[0] is not None:
            # what trains may be another number by the time that a run reads it
            entries = [parameters.get(name) for name in node.inputs]
            operands = [p.value if p is not None and not p.trainable else None for p in entries]
            check_operands(node, operands, shapes[0], shapes)


def check_types(nodes: Sequence[Node], described: Mapping[str, TensorDescriptor]) -> None:
    """Refuse operands of types that ONNX does not mix, where values are floating numbers of several widths."""
    if len({str(known.dtype) for known in described.values() if "float" in str(known.dtype)}) > 1:
        from deep500.networks.execution.operand_types import refuse_mixed  # few networks have several

        refuse_mixed(nodes, described)


def check_operands(node: Node, operands: Operands, shape: Shape, shapes: Sequence[Shape | None] = ()) -> None:
    """Refuse operands that no result belongs to; what is not known is not checked.

    Args:
        node: of any operator.
        operands: their values by position, None for what is not known.
        shape: of the first.
        shapes: of all, where known.

    Raises:
        NetworkError: naming the node, the numbers and what is expected.

    Example:
        >>> node = Node("TopK", ("x", "k"), ("y", "i"), "best", "", {"axis": 0})
        >>> check_operands(node, [None, np.array([9])], (4,))  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        deep500.errors.NetworkError: node 'best' (TopK): got k=9; expected ...
    """
    if node.domain:
        return
    check = CHECKS.get(node.op_type)
    padded = [*operands, *[None] * 8]
    wrong = _fractions(node, padded)
    if wrong is None and check is not None:
        wrong = check(node, padded, shape)
    if wrong is None and node.op_type in _GATES and len(shapes) > 2:
        wrong = _recurrence(node, shapes)
    if wrong is not None:
        raise NetworkError(f"node {node.name!r} ({node.op_type}): got {wrong}: check the numbers that it is given")


def _fractions(node: Node, operands: Operands) -> str | None:
    """Places, sizes and counts are whole numbers."""
    for place in _WHOLE.get(node.op_type, ()):
        array = operands[place]
        if array is not None and np.asarray(array).dtype.kind not in "biu":
            return f"{np.asarray(array).dtype} numbers as operand {place}; expected whole ones"
    return None


def _size(node: Node, shape: Shape, default: int) -> int | None:
    """The size along the node's axis, None where it is free."""
    axis = node.attribute("axis", default)
    size = shape[axis] if isinstance(axis, int) and -len(shape) <= axis < len(shape) else None
    return size if isinstance(size, int) else None


def _top(node: Node, operands: Operands, shape: Shape) -> str | None:
    size = _size(node, shape, -1)
    k = None if operands[1] is None or np.size(operands[1]) != 1 else int(np.ravel(operands[1])[0])
    if k is None or (0 <= k and (size is None or k <= size)):
        return None
    return f"k={k}; expected 0 to {'the size of the axis' if size is None else size}"


def _split(node: Node, operands: Operands, shape: Shape) -> str | None:
    size = _size(node, shape, 0)
    if operands[1] is None:
        return None
    parts = [int(n) for n in np.ravel(operands[1])]
    if min(parts, default=0) < 0 or (size is not None and sum(parts) != size):
        return f"parts {parts}; expected sizes of at least 0 that add up to {'the axis' if size is None else size}"
    return None


def _pad(node: Node, operands: Operands, shape: Shape) -> str | None:
    if operands[1] is None or (len(node.inputs) > 3 and node.inputs[3] and operands[3] is None):
        return None
    pads, count = [int(n) for n in np.ravel(operands[1])], len(shape)
    axes = range(count) if operands[3] is None else [int(a) for a in np.ravel(operands[3])]
    if len(pads) != 2 * len(axes):
        return f"{len(pads)} pads; expected {2 * len(axes)}, two for every axis"
    return _cut({a: pair for a, *pair in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True)}, shape)


def _cut(pairs: Mapping[int, Sequence[int]], shape: Shape) -> str | None:
    for axis, (before, after) in pairs.items():
        size = shape[axis] if -len(shape) <= axis < len(shape) else None
        if isinstance(size, int) and size + min(before, 0) + min(after, 0) < 0:
            return f"pads {before} and {after} on an axis of {size}; expected to cut off no more than there is"
    return None


def check_cuts(shape: Shape, pairs: Mapping[int, Sequence[int]]) -> None:
    """Refuse pads below zero that cut off more than there is; ``pairs`` are those of each axis.

    Raises:
        NetworkError: naming the axis's size and its pads.
    """
    if wrong := _cut(pairs, shape):
        raise NetworkError(f"Pad: got {wrong}: check the numbers that it is given")


def _resize(node: Node, operands: Operands, shape: Shape) -> str | None:
    scales = None if operands[2] is None else np.ravel(np.asarray(operands[2], np.float64))
    if scales is None or all(np.isfinite(scales) & (scales > 0)):
        return None
    return f"scales {scales.tolist()}; expected finite numbers above 0"


def _slice(node: Node, operands: Operands, shape: Shape) -> str | None:
    if operands[4] is not None and not np.all(operands[4]):
        return f"steps {np.ravel(operands[4]).tolist()}; expected none of 0"
    sizes = {np.size(part) for part in operands[1:5] if part is not None}
    return f"lists of {sorted(sizes)} numbers; expected one start, end, axis and step each" if len(sizes) > 1 else None


def slice_places(size: int, start: int, end: int, step: int) -> range:
    """The places of an axis that a Slice takes: Python's, but one that goes backwards from before the first place takes
    the first (ONNX's specification of Slice: starts are clamped to places that there are).

    Example:
        >>> list(slice_places(3, -7, -9, -1)), list(range(3)[-7:-9:-1])
        ([0], [])
    """
    start, end = (n + size if n < 0 else n for n in (start, end))
    if step > 0:
        return range(min(max(start, 0), size), min(max(end, 0), size), step)
    return range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step)


def _reshape(node: Node, operands: Operands, shape: Shape) -> str | None:
    sizes = [] if operands[1] is None else [int(n) for n in np.ravel(operands[1])]
    if min(sizes, default=0) >= -1 and sizes.count(-1) < 2:
        return None
    return f"shape {sizes}; expected sizes of at least 0, and -1 once at most"


def _along(node: Node, operands: Operands, shape: Shape) -> str | None:
    """Indices along one axis."""
    return _outside(operands[1], _size(node, shape, 0))


def _points(node: Node, operands: Operands, shape: Shape) -> str | None:
    """Indices of points in all axes from the first, or from the one after the batch."""
    if operands[1] is None or np.ndim(operands[1]) == 0:
        return None
    first = int(node.attribute("batch_dims", 0) or 0)
    index = np.asarray(operands[1])
    for i, size in enumerate(shape[first : first + index.shape[-1]]):
        if wrong := _outside(index[..., i], size if isinstance(size, int) else None):
            return wrong
    return None


def _columns(node: Node, operands: Operands, shape: Shape) -> str | None:
    for what, array in (("image", operands[1]), ("block", operands[2])):
        if array is not None and np.size(array) and int(np.min(array)) < 1:
            return f"{what} sizes {np.ravel(array).tolist()}; expected numbers from 1 on"
    return None


def _existing(node: Node, operands: Operands, shape: Shape) -> str | None:
    axis = node.attribute("axis")
    if axis is None or -len(shape) <= axis < len(shape):
        return None
    return f"axis={axis} on {len(shape)} axes; expected one of them"


def _frames(node: Node, operands: Operands, shape: Shape) -> str | None:
    lengths = [name for name in node.inputs[2:4] if name]
    return None if lengths else "neither a window nor a frame_length; expected one of them"


def _attention(node: Node, operands: Operands, shape: Shape) -> str | None:
    missing = [name for name in ("q_num_heads", "kv_num_heads") if node.attribute(name) is None]
    return f"3 axes and no {missing[0]}; expected the number of heads" if len(shape) == 3 and missing else None


def largest_axis(node: Node, shape: Shape | None, index: Shape | None) -> int | None:
    """The largest axis that indices of a node of :data:`INDEXED` may point into; None where it is not known.

    Args:
        node: whose second operand are the indices.
        shape: of what it points into.
        index: the indices' own shape.
    """
    if shape is None:
        return None
    if CHECKS[node.op_type] is _along:
        return _size(node, shape, 0)
    first, many = int(node.attribute("batch_dims", 0) or 0), index[-1] if index else None
    sizes = shape[first : first + many] if isinstance(many, int) else ()
    return (
        max((n for n in sizes if isinstance(n, int)), default=None) if all(isinstance(n, int) for n in sizes) else None
    )


def _outside(index: Any, size: int | None) -> str | None:
    if index is None or size is None or np.size(index) == 0:
        return None
    least, most = int(np.min(index)), int(np.max(index))
    if -size <= least and most < size:
        return None
    return f"index {least if least < -size else most} on an axis of {size}; expected {-size} to {size - 1}"


_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def _trips(node: Node, operands: Operands, shape: Shape) -> str | None:
    """A Loop whose count is so large that it would never finish, and whose condition cannot end it earlier."""
    if operands[0] is None or int(np.asarray(operands[0]).reshape(-1)[0]) <= MOST_TRIPS:
        return None
    (body,) = node.graphs
    made_by = {name: inner for inner in body.node for name in inner.output}
    goes_on = body.output[0].name  # exporters pass a constant condition through Identity nodes
    while goes_on in made_by and made_by[goes_on].op_type == "Identity":
        goes_on = made_by[goes_on].input[0]
    fixed = {body.input[1].name, *(array.name for array in body.initializer)}
    if goes_on not in fixed and not (goes_on in made_by and made_by[goes_on].op_type == "Constant"):
        return None
    count = int(np.asarray(operands[0]).reshape(-1)[0])
    return f"{count} rounds, and no condition that may end it; expected at most {MOST_TRIPS}"


def _recurrence(node: Node, shapes: Sequence[Shape | None]) -> str | None:
    hidden = node.attribute("hidden_size")
    for shape in shapes[1:3]:
        rows = None if hidden is None or shape is None or len(shape) != 3 else shape[1]
        if isinstance(rows, int) and rows != hidden * _GATES[node.op_type]:
            return (
                f"weights of {rows} rows for hidden_size={hidden}; expected {hidden * _GATES[node.op_type]}, one for "
                "every gate and unit"
            )
    return None


CHECKS: Mapping[str, _Check] = {
    "Attention": _attention,
    "STFT": _frames,
    "Col2Im": _columns,
    **dict.fromkeys(("Compress", "Unique"), _existing),
    "Loop": _trips,
    "TopK": _top,
    "Split": _split,
    "Pad": _pad,
    "Resize": _resize,
    "Slice": _slice,
    "Reshape": _reshape,
    **dict.fromkeys(("Gather", "GatherElements", "ScatterElements"), _along),
    **dict.fromkeys(("GatherND", "ScatterND"), _points),
    **dict.fromkeys(_GATES, lambda node, operands, shape: None),
}
"""By operator: what is wrong with its operands, with what is expected, or None."""

_WHOLE: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("TopK", "Split", "Reshape", "Gather", "GatherElements", "GatherND"), (1,)),
    **dict.fromkeys(("ScatterElements", "ScatterND"), (1,)),
    "Slice": (1, 2, 3, 4),
    "Col2Im": (1, 2),
    "Pad": (1, 3),
}
"""By operator: its operands that are whole numbers."""

INDEXED = frozenset(name for name, check in CHECKS.items() if check in (_along, _points))
"""Operators whose second operand points into the first."""

STATIC = frozenset({"TopK", "Split", "Pad", "Resize", "Reshape"})
"""Operators that are checked again where a kernel is given numbers that came with the data."""
