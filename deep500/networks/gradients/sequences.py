"""Sequences of known length written as the tensors that they hold, for the gradient: a sequence has no sum.

``SplitToSequence`` becomes Split, ``SequenceAt`` at a known position one of the tensors, ``ConcatFromSequence`` a
Concat; what constructs, inserts or erases only moves names. A sequence whose length or position the run decides stays
as it is, and so does all that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from deep500.networks.emit import Emitter
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.networks.rewrite import supersede
from deep500.networks.shapes import known_value
from deep500.tensors import TensorDescriptor


def lower_sequences(network: Graph, descriptors: Mapping[str, TensorDescriptor]) -> bool:
    """Rewrite all that deals with sequences of known length; returns whether anything was.

    Args:
        network: is edited; every tensor keeps its name.
        descriptors: of its values.

    Example:
        >>> net = Graph(); net.add_input("x", (4,)); net.add_parameter("last", np.array(-1), trainable=False)
        >>> net.add_node("SplitToSequence", "x", "parts"); net.add_node("SequenceAt", ["parts", "last"], "y")
        >>> net.add_output("y")
        >>> lower_sequences(net, net.descriptors())
        True
        >>> [node.op_type for node in net.nodes]
        ['Split', 'Identity']
    """
    lowering = _Lowering(network, descriptors)
    for node in network.nodes:
        if not node.domain and node.op_type in _LOWER:
            lowering.take(node)
    supersede(network, lowering.replaced)
    for node in reversed(network.nodes):
        unread = bool(node.writes) and all(value in lowering.parts for value in node.writes)
        if unread and not any(network.consumers(v) or v in network.outputs for v in node.writes):
            network.remove_node(node.name)
    return bool(lowering.replaced)


class _Lowering:
    """The tensors of each sequence, and what takes over the tensors that are read from them."""

    def __init__(self, network: Graph, descriptors: Mapping[str, TensorDescriptor]) -> None:
        self.network, self.descriptors = network, descriptors
        self.parts: dict[str, list[str]] = {}
        self.replaced: dict[str, dict[str, str]] = {}
        self.emit = Emitter(network)

    def take(self, node: Node) -> None:
        """Lower one node, if what it reads is known."""
        self.emit.prefix = f"{node.name}/"
        result = _LOWER[node.op_type](self, node)
        if isinstance(result, str):
            self.replaced[node.name] = {node.outputs[0]: result}
        elif result is not None:
            self.parts[node.outputs[0]] = result

    def number(self, node: Node, index: int, default: int | None = None) -> int | None:
        """An input that is one whole number known before the run, ``default`` if it is left out."""
        if index >= len(node.inputs) or not node.inputs[index]:
            return default
        value = known_value(self.network, node.inputs[index])
        return None if value is None else int(np.ravel(value)[0])


def _split(low: _Lowering, node: Node) -> list[str] | None:
    axis, x = int(node.attribute("axis")), node.inputs[0]
    shape = low.descriptors.get(x, TensorDescriptor(None, None)).shape
    size = None if shape is None else shape[axis]
    lengths = node.inputs[1] if len(node.inputs) > 1 else ""
    split = known_value(low.network, lengths) if lengths else np.array(1)
    if split is None or (split.ndim == 0 and not isinstance(size, int)):
        return None
    sizes = [int(s) for s in split] if split.ndim else _chunks(int(size), int(split))  # type: ignore[arg-type]
    if not sizes:
        return []
    parts = low.emit.many("Split", x, low.emit.ints(*sizes), axis=axis, outputs=len(sizes))
    if lengths or node.attribute("keepdims"):
        return parts
    return [low.emit("Squeeze", part, low.emit.ints(axis)) for part in parts]


def _chunks(size: int, most: int) -> list[int]:
    """Equal parts, a smaller one at the end where the size is no multiple."""
    return [min(most, size - begin) for begin in range(0, size, most)]


def _at(low: _Lowering, node: Node) -> str | None:
    parts, position = low.parts.get(node.inputs[0]), low.number(node, 1)
    if parts is None or position is None or not -len(parts) <= position < len(parts):
        return None
    return low.emit("Identity", parts[position])


def _concat(low: _Lowering, node: Node) -> str | None:
    parts, axis = low.parts.get(node.inputs[0]), int(node.attribute("axis"))
    if not parts:
        return None
    if node.attribute("new_axis"):
        parts = [low.emit("Unsqueeze", part, low.emit.ints(axis)) for part in parts]
    return low.emit("Concat", *parts, axis=axis)


def _insert(low: _Lowering, node: Node) -> list[str] | None:
    parts = low.parts.get(node.inputs[0])
    position = None if parts is None else low.number(node, 2, len(parts))
    if parts is None or position is None:
        return None
    at = position if position >= 0 else position + len(parts)
    return [*parts[:at], node.inputs[1], *parts[at:]]


def _erase(low: _Lowering, node: Node) -> list[str] | None:
    parts, position = low.parts.get(node.inputs[0]), low.number(node, 1, -1)
    if parts is None or position is None:
        return None
    at = position % len(parts) if parts else 0
    return parts[:at] + parts[at + 1 :]


def _length(low: _Lowering, node: Node) -> str | None:
    parts = low.parts.get(node.inputs[0])
    return None if parts is None else low.emit("Identity", low.emit.constant(np.array(len(parts), np.int64)))


_LOWER: dict[str, Callable[[_Lowering, Node], list[str] | str | None]] = {
    "ConcatFromSequence": _concat,
    "Identity": lambda low, node: low.parts.get(node.inputs[0]),
    "SequenceAt": _at,
    "SequenceConstruct": lambda low, node: list(node.inputs),
    "SequenceEmpty": lambda low, node: [],
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
