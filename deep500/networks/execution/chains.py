"""A program as patterns see it: who makes a value, who reads it, what it is a product of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from deep500.networks.execution.program import Program
from deep500.networks.node import Node
from deep500.networks.protos import UNKNOWN
from deep500.tensors import Shape

Known = Callable[[str], "np.ndarray | None"]

DOMAIN = "deep500.fused"
"""Of operators that no file holds: forms that have no operator in ONNX."""


@dataclass
class Found:
    """Nodes that give a root's output in another way, the last of them the operator that was recognised; the names of
    those that they replace; and values that these give, for readers behind the root, and the new nodes do, too."""

    nodes: list[Node]
    inner: set[str]
    ends: set[str] = field(default_factory=set)


Pattern: TypeAlias = Callable[["ProgramGraph", Node], "Found | None"]
"""See :mod:`deep500.networks.execution.patterns`."""


def replacement(root: Node, operator: str, inputs: tuple[str, ...], domain: str = "", **attributes: Any) -> Node:
    """An operator in the place of a root, for its first output."""
    return Node(operator, inputs, root.outputs[:1], root.name, domain, attributes)


@dataclass
class Product:
    """``scale`` times the values ``factors``; ``inner`` names the nodes in between."""

    scale: float = 1.0
    factors: list[str] = field(default_factory=list)
    inner: set[str] = field(default_factory=set)

    def without(self, value: str) -> list[str] | None:
        """The other factors, None if the value is none of them."""
        rest = list(self.factors)
        if value not in rest:
            return None
        rest.remove(value)
        return rest


class ProgramGraph:
    """Producers, readers, known values and descriptors of a program.

    Args:
        program: with constants folded.
        known: values of parameters that may stand in the code.
        trains: whether a value is a parameter that trains.
    """

    def __init__(self, program: Program, known: Known, trains: Callable[[str], bool]) -> None:
        self.program, self.known, self.trains = program, known, trains
        self.nodes = {node.name: node for node in program.nodes}
        self.producers = {value: node for node in program.nodes for value in node.writes}
        self.readers = Counter(value for node in program.nodes for value in node.reads)
        self.readers.update(program.outputs)
        self.new_constants: dict[str, np.ndarray] = {}  # constants of what was recognised

    # -- values --------------------------------------------------------------------------------------------------------
    def made_by(self, value: str, *operators: str) -> Node | None:
        """The node that makes a value, if it is one of these of ONNX's."""
        node = self.producers.get(value)
        return node if node is not None and not node.domain and node.op_type in operators else None

    def array(self, value: str) -> np.ndarray | None:
        """A known value."""
        constant = self.program.constants.get(value)
        return self.known(value) if constant is None else constant

    def number(self, value: str) -> float | None:
        """A known value of one element."""
        array = self.array(value)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None

    def is_scalar(self, value: str) -> bool:
        """Whether it is one number that changes no shape where it is broadcast."""
        array = self.array(value)
        return array is not None and array.size == 1 and array.ndim <= 1

    def shape(self, value: str) -> Shape | None:
        """Its shape, as far as it is known."""
        return self.program.descriptors.get(value, UNKNOWN).shape

    def dtype(self, value: str) -> str:
        """Its dtype, empty if unknown."""
        return self.program.descriptors.get(value, UNKNOWN).dtype or ""

    def trained(self, value: str) -> bool:
        """Whether it depends on a parameter that trains."""
        todo, seen = [value], {value}
        while todo:
            name = todo.pop()
            if self.trains(name):
                return True
            node = self.producers.get(name)
            more = [v for v in node.reads if v not in seen] if node is not None else []
            seen.update(more)
            todo += more
        return False

    def near(self, number: float | None, target: float, value: str) -> bool:
        """Whether a number is a constant, as exactly as the dtype of a value can tell."""
        exact = 1e-14 if self.dtype(value) == "float64" else 2e-7 if self.dtype(value) == "float32" else 1e-3
        return number is not None and abs(number - target) <= exact * abs(target)

    def axes(self, node: Node) -> list[int] | None:
        """The axes of a reduction that keeps them, counted from the back; None if unknown."""
        shape = self.shape(node.inputs[0])
        axes = self.array(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
        if shape is None or axes is None or not node.attribute("keepdims"):
            return None
        return sorted(int(a) - len(shape) if a >= 0 else int(a) for a in axes.reshape(-1))

    # -- forms ---------------------------------------------------------------------------------------------------------
    def other(self, node: Node, operand: str) -> str | None:
        """The second operand of a node with two of which this is one."""
        if len(node.inputs) != 2 or operand not in node.inputs:
            return None
        return node.inputs[1] if node.inputs[0] == operand else node.inputs[0]

    def plus(self, value: str, number: float) -> tuple[str, str] | None:
        """Of a sum of a value and this number: the value, and the node's name."""
        node = self.made_by(value, "Add")
        for operand in node.inputs if node else ():
            rest = self.other(node, operand)  # type: ignore[arg-type]
            if rest is not None and self.is_scalar(operand) and self.near(self.number(operand), number, value):
                return rest, node.name  # type: ignore[union-attr]
        return None

    def product(self, node: Node) -> Product:
        """Factors of a node, through all that only it reads: Mul, Div by a number, Pow by a whole one, Neg."""
        result = Product()
        self._multiply(node, result)
        return result

    def product_of(self, value: str) -> Product:
        """The same of a value that has one reader; any other is its own only factor."""
        result = Product()
        self._factor(value, result)
        return result

    def _multiply(self, node: Node, result: Product) -> bool:
        first, second = (*node.inputs, "", "")[:2]
        if node.domain or len(node.inputs) > 2:
            return False
        if node.op_type == "Mul":
            for name in node.inputs:
                self._factor(name, result)
        elif node.op_type == "Div" and self.is_scalar(second):
            result.scale /= self.number(second) or float("nan")
            self._factor(first, result)
        elif node.op_type == "Neg":
            result.scale = -result.scale
            self._factor(first, result)
        elif node.op_type == "Pow" and self.is_scalar(second) and self.number(second) in (2.0, 3.0):
            result.factors += [first] * int(self.number(second) or 0)
        else:
            return False
        result.inner.add(node.name)
        return True

    def _factor(self, value: str, result: Product) -> None:
        if self.is_scalar(value):
            result.scale *= self.number(value) or 0.0
        elif (
            self.readers[value] != 1 or value not in self.producers or not self._multiply(self.producers[value], result)
        ):
            result.factors.append(value)

    def encloses(self, match: Found, root: Node) -> bool:
        """Whether the values of inner nodes but ``ends`` have no reader but them and the root, and are no outputs."""
        names = {*match.inner, root.name}
        inside = Counter(value for name in names for value in self.nodes[name].reads)
        values = {value for name in match.inner - {root.name} for value in self.nodes[name].writes} - match.ends
        return all(self.readers[value] == inside[value] for value in values)

    def only(self, value: str, *operators: str) -> Node | None:
        """The node that makes a value for one reader alone, if it is one of these."""
        return self.made_by(value, *operators) if self.readers[value] == 1 else None

    def constant(self, name: str, value: np.ndarray) -> str:
        """A new constant of the program."""
        self.new_constants[name] = value
        return name
