"""What a network is made of and how to look at it; :mod:`deep500.networks.network` adds the editing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deep500.errors import NetworkError, nearest
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor


@dataclass
class Parameter:
    """A named array of a network. What is not trainable is a constant, or state such as a running mean."""

    value: np.ndarray
    trainable: bool = True


class Structure:
    """Nodes in topological order, inputs, parameters and outputs. Looking never changes anything.

    Attributes:
        name: of the network, for people.
        inputs: descriptors by name, in the order in which they were declared.
        outputs: names of values.
    """

    def __init__(self, name: str = "network") -> None:
        self.name = name
        self.inputs: dict[str, TensorDescriptor] = {}
        self.outputs: list[str] = []
        self._parameters: dict[str, Parameter] = {}
        self._nodes: dict[str, Node] = {}
        self._producers: dict[str, str] = {}  # value -> name of the node that writes it
        self._known: dict[str, TensorDescriptor] = {}  # descriptors that a file declared and inference may miss
        self._inner: set[str] = set()  # names that sub-graphs use for themselves
        self._numbers: dict[str, int] = {}  # where fresh_name goes on counting
        self._version = 0
        self._descriptors: tuple[int, dict[str, TensorDescriptor]] | None = None

    @property
    def version(self) -> int:
        """Grows with every edit; whoever compiled the network compares it to know that it must compile again."""
        return self._version

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, producers before consumers."""
        return tuple(self._nodes.values())

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by name, in the order in which they were added (a copy: edit with ``add_parameter``)."""
        return dict(self._parameters)

    def trainable(self) -> list[str]:
        """Names of the trainable parameters."""
        return [name for name, parameter in self._parameters.items() if parameter.trainable]

    def node(self, name: str) -> Node:
        """The node of that name; raises NetworkError with the nearest name."""
        if name not in self._nodes:
            raise NetworkError(f"got node {name!r}; expected one of the network's: {nearest(name, self._nodes)}")
        return self._nodes[name]

    def producer(self, value: str) -> Node | None:
        """The node that writes a value, None for inputs and parameters."""
        owner = self._producers.get(value)
        return None if owner is None else self._nodes[owner]

    def consumers(self, value: str) -> list[Node]:
        """The nodes that read a value, in topological order."""
        return [node for node in self._nodes.values() if value in node.reads]

    def has_value(self, name: str) -> bool:
        """Whether an input, a parameter or a node provides this value."""
        return name in self.inputs or name in self._parameters or name in self._producers

    def values(self) -> list[str]:
        """Names of all values: inputs, parameters, then node outputs."""
        return [*self.inputs, *self._parameters, *self._producers]

    def fresh_name(self, prefix: str) -> str:
        """A name beginning with ``prefix`` that neither a value nor a node has."""
        name = prefix
        while self.has_value(name) or name in self._nodes or name in self._inner:
            self._numbers[prefix] = self._numbers.get(prefix, 0) + 1
            name = f"{prefix}_{self._numbers[prefix]}"
        return name

    def descriptors(self) -> dict[str, TensorDescriptor]:
        """Dtype and shape of every value, as far as they can be inferred (cached until the next edit)."""
        if self._descriptors is None or self._descriptors[0] != self._version:
            from deep500.networks.shapes import infer_descriptors

            self._descriptors = (self._version, infer_descriptors(self))
        return self._descriptors[1]

    # -- what editing needs -------------------------------------------------------------------------------------------
    def _parameter(self, name: str) -> Parameter:
        if name not in self._parameters:
            raise NetworkError(
                f"got parameter {name!r}; expected one of the network's: {nearest(name, self._parameters)}"
            )
        return self._parameters[name]

    def _value_of(self, name: str) -> str:
        """A value by its own name or by that of the node whose first output it is."""
        if self.has_value(name):
            return name
        if name in self._nodes:
            return self._nodes[name].writes[0]
        raise NetworkError(f"got {name!r}; expected a value or a node: {nearest(name, [*self.values(), *self._nodes])}")

    def _readers(self, value: str) -> list[str]:
        """Who reads a value, in words for messages."""
        return [n.name for n in self.consumers(value)] + ["the network's outputs"] * (value in self.outputs)
