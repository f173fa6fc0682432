"""The table of expansions and what its entries share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from deep500.networks.emit import Emitter
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.networks.protos import UNKNOWN
from deep500.tensors import TensorDescriptor, numpy_dtype

Descriptors: TypeAlias = Mapping[str, TensorDescriptor]
Expansion: TypeAlias = Callable[[Graph, Node, Descriptors], "dict[str, str] | None"]

EXPANSIONS: dict[tuple[str, str], Expansion] = {}
"""(domain, operator) -> expansion."""


class ExpansionEmitter(Emitter):
    """Writes the nodes that replace one node."""

    def __init__(self, network: Graph, node: Node, descriptors: Descriptors) -> None:
        super().__init__(network, f"{node.name}/")
        self.node, self.descriptors = node, descriptors

    def rank(self, index: int) -> int | None:
        """Number of dimensions of an input."""
        shape = self.descriptors.get(self.node.inputs[index], UNKNOWN).shape
        return None if shape is None else len(shape)

    def dtype(self, index: int = 0) -> str | None:
        """Dtype of an input."""
        return self.descriptors.get(self.node.inputs[index], UNKNOWN).dtype

    def like(self, value: Any, index: int = 0) -> str:
        """A constant of an input's dtype."""
        return self.constant(np.asarray(value, numpy_dtype(self.dtype(index) or "float32")))

    def operand(self, index: int) -> str:
        """An input's name, "" if it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else ""

    def part(self, vector: str, begin: int, end: int = 2**31) -> str:
        """A slice of a vector."""
        return self("Slice", vector, self.ints(begin), self.ints(end))

    def sizes(self, value: str) -> str:
        """The spatial sizes of a value: its shape without samples and channels."""
        return self("Shape", value, start=2)


def expansion(*op_types: str, domain: str = "") -> Callable[[Callable[[ExpansionEmitter], dict[str, str] | None]], Any]:
    """Enter a function of a :class:`ExpansionEmitter` for these operators."""

    def enter(function: Callable[[ExpansionEmitter], dict[str, str] | None]) -> Any:
        def expand(network: Graph, node: Node, descriptors: Descriptors) -> dict[str, str] | None:
            return function(ExpansionEmitter(network, node, descriptors))

        for op_type in op_types:
            EXPANSIONS[domain, op_type] = expand
        return function

    return enter
