"""A network as a graph of the rule language.

What a specification describes exactly becomes operators (see `forms`); everything else stays an opaque node, around
which the optimizer still works. Parameters are constants, or inputs where the network is to be trained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.networks.protos import node_proto
from deep500.tensors import TensorDescriptor
from deep500.transformations.substitutions.graph.forms import FORMS
from deep500.transformations.substitutions.graph.store import Graph, Store, Value
from deep500.transformations.substitutions.specification import Shape, ShapeMismatch

FLOATS = ("float32", "float64")
UNKNOWN: Shape = (-1,)  # of values that no specification may read


@dataclass
class Imported:
    """A network in the rule language.

    Attributes:
        network: what was imported.
        graph: its outputs over a store.
        names: value -> the name it had (the first, where equal values had several).
        opaque: digest -> the ONNX node that stands behind opaque nodes.
        sizes: symbolic size -> the number that stands for it.
        training: whether parameters are inputs, and normalization and dropout follow the executor's mode.
    """

    network: Network
    graph: Graph
    names: dict[Value, str]
    opaque: dict[str, Node]
    sizes: dict[str, int]
    training: bool
    values: dict[str, Value] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Where all states of the search live."""
        return self.graph.store


def import_network(network: Network, training: bool = False, sizes: Mapping[str, int] | None = None) -> Imported:
    """Bring a network into the rule language.

    Args:
        network: stays as it is.
        training: parameters stay inputs and are not computed with beforehand; normalization and dropout are opaque.
        sizes: numbers that stand for symbolic sizes while rewriting; 1 or little more by default. A number that divides
            a fixed size of the network is replaced by the next that does not, so that the symbol is recognised.

    Example:
        >>> from deep500.networks import create
        >>> found = import_network(create("mlp", batch=2))
        >>> sorted({found.store.nodes[n].op for n in found.graph.nodes()})
        ['bias', 'constant', 'input', 'matmul', 'relu', 'reshape', 'transpose']
    """
    return Importer(network, training, sizes or {}).run()


class Importer:
    """Turns nodes into values, in the network's order; `FORMS` ask it about what they read."""

    def __init__(self, network: Network, training: bool, sizes: Mapping[str, int]) -> None:
        self.network, self.training = network, training
        self.store = Store()
        self.sizes = stand_ins(network, sizes)
        self.described = _bound(network, self.sizes).descriptors()
        self.values: dict[str, Value] = {}
        self.names: dict[Value, str] = {}
        self.opaque: dict[str, Node] = {}

    def run(self) -> Imported:
        for name in self.network.inputs:
            self._name(name, self.store.input(name, *self._type(name)))
        for name, parameter in self.network.parameters.items():
            if self.training and parameter.trainable:
                self._name(name, self.store.input(name, *self._type(name)))
            else:
                self._name(name, self.store.constant(np.asarray(parameter.value)))
        for node in self.network.nodes:
            self._node(node)
        graph = Graph(self.store, tuple(self.values[name] for name in self.network.outputs))
        return Imported(self.network, graph, self.names, self.opaque, self.sizes, self.training, self.values)

    def _name(self, name: str, value: Value) -> None:
        self.values[name] = value
        self.names.setdefault(value, name)

    def _type(self, name: str) -> tuple[Shape, str]:
        described = self.described.get(name, TensorDescriptor(None, None))
        shape = described.shape
        known = shape is not None and all(isinstance(size, int) and size > 0 for size in shape)
        return tuple(shape) if known and shape is not None else UNKNOWN, str(described.dtype)  # type: ignore[arg-type]

    def _node(self, node: Node) -> None:
        found = None
        form = FORMS.get(node.op_type) if not node.domain else None
        if form and not node.graphs and all(not n or self.known(n) for n in (*node.inputs, *node.outputs)):
            try:
                found = form(self, node)
            except ShapeMismatch:
                found = None  # broadcasting and the like, which the rule language does not have
        if found is not None and any(
            (self.store.shape(value), self.store.dtype(value)) != self._type(name)
            for name, value in zip(node.writes, found, strict=False)
        ):
            raise NetworkError(f"got other shapes than ONNX's for node {node.name!r}; expected the same; report this")
        for name, value in zip(node.writes, found or self._opaque(node), strict=False):
            self._name(name, value)

    def known(self, name: str) -> bool:
        """Whether a value is something specifications can compute with: float of known shape, or a constant."""
        shape, dtype = self._type(name)
        value = self.values.get(name)
        constant = value is not None and self.store.node(value).constant
        return constant or (shape != UNKNOWN and dtype in FLOATS)

    def _opaque(self, node: Node) -> tuple[Value, ...]:
        text = node_proto(replace(node, name="", inputs=(), outputs=())).SerializeToString(deterministic=True)
        gaps = repr(([bool(one) for one in node.inputs], [bool(one) for one in node.outputs], node.captured))
        own = node.name if node.is_random or node.domain or node.graphs else ""
        digest = hashlib.sha256(text + gaps.encode() + own.encode()).hexdigest()[:16]
        self.opaque.setdefault(digest, node)
        types = [self._type(name) for name in node.writes]
        inputs = [self.values[name] for name in node.reads]
        parameters = (("digest", digest), ("op_type", node.op_type))
        return self.store.opaque(inputs, [one[0] for one in types], [one[1] for one in types], parameters)

    # -- what forms ask ---------------------------------------------------------------------------------------------
    def value(self, node: Node, position: int) -> Value:
        """The value that a node reads at a position."""
        return self.values[node.inputs[position]]

    def array(self, node: Node, position: int) -> np.ndarray[Any, Any] | None:
        """The constant that a node reads at a position; None if it reads none there or something else."""
        if position >= len(node.inputs) or not node.inputs[position]:
            return None
        return self.store.arrays.get(self.values[node.inputs[position]].node)

    def shape(self, node: Node, position: int) -> Shape:
        """Shape of what a node reads at a position."""
        return self.store.shape(self.value(node, position))


def stand_ins(network: Network, sizes: Mapping[str, int]) -> dict[str, int]:
    """A number for every symbolic size of the inputs, which divides none of the network's fixed sizes.

    Example:
        >>> from deep500.networks import create
        >>> stand_ins(create("mlp", shape=(4,), classes=3), {"N": 4})
        {'N': 5}
    """
    fixed = {int(size) for one in network.parameters.values() for size in np.shape(one.value)}
    fixed |= {size for one in network.inputs.values() for size in one.shape or () if isinstance(size, int)}
    found: dict[str, int] = {}
    for described in network.inputs.values():
        for symbol in described.shape or ():
            if isinstance(symbol, str) and symbol not in found:
                number = max(sizes.get(symbol, 2), 2)
                while not _prime(number) or number in found.values() or any(size % number == 0 for size in fixed):
                    number += 1
                found[symbol] = number
    return found


def _prime(number: int) -> bool:
    return number > 1 and all(number % one for one in range(2, int(number**0.5) + 1))


def _bound(network: Network, sizes: Mapping[str, int]) -> Network:
    if not sizes:
        return network
    twin = network.copy()
    for name, described in network.inputs.items():
        shape: Sequence[Any] | None = described.shape
        if shape is not None:
            shape = tuple(sizes.get(size, size) if isinstance(size, str) else size for size in shape)
        twin.inputs[name] = replace(described, shape=shape)
    twin._touch()
    return twin
