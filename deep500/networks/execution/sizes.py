"""Values that no memory holds, refused before anything is computed: for every backend one error that names the node."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from math import prod

from deep500.errors import OutOfMemory
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor

GROWING = frozenset(
    {"ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample", "CenterCropPad", "Col2Im"}
)
"""Operators whose numbers, not whose operands' sizes, say how large their results are."""


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # no POSIX system
        return 2**40


MOST_BYTES = _memory()
"""Bytes of one value: the machine's memory. Set it lower to be refused sooner."""


def check_sizes(nodes: Iterable[Node], descriptors: Mapping[str, TensorDescriptor]) -> None:
    """Refuse results of growing operators that are larger than :data:`MOST_BYTES`, where their sizes are known.

    Args:
        nodes: those that will run.
        descriptors: of their values.

    Raises:
        OutOfMemory: naming the node, its result and the bytes.

    Example:
        >>> from deep500.networks.node import Node
        >>> node = Node("Tile", ("x", "n"), ("y",), "many")
        >>> check_sizes([node], {"y": TensorDescriptor("int8", (2**60,))})  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        deep500.errors.OutOfMemory: ...
    """
    for node in nodes:
        if node.op_type not in GROWING or node.domain:
            continue
        for name in node.outputs:
            described = descriptors.get(name)
            if described is None or described.shape is None:
                continue
            size = prod(d for d in described.shape if isinstance(d, int)) * _width(described.dtype)
            if size > MOST_BYTES:
                raise OutOfMemory(
                    f"node {node.name!r} ({node.op_type}): got a result {name!r} of {size} bytes; expected at most "
                    f"{MOST_BYTES}, the machine's memory: check the numbers that it is given"
                )


def _width(dtype: str | None) -> int:
    """Bytes of an element, 1 where that is not known."""
    digits = "".join(filter(str.isdigit, (dtype or "").partition("_")[0]))
    return max(1, int(digits or 8) // 8)
