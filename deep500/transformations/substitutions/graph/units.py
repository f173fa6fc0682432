"""Units that a graph is written in, each one ONNX operator (or two that belong together), priced and emitted as such.

Biases go back into convolutions and matrix products, transposes into ``Gemm``, chains of concatenations and splits
become one node each, a gain and a bias of an image one BatchNormalization. The exporter writes units and the cost
model prices them, so that what is priced is what runs. Constant nodes belong to no unit: they are computed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deep500.transformations.substitutions.graph.store import CONSTANT, INPUT, StoredGraph, StoreNode, StoreValue

Users = dict[StoreValue, list[int]]


@dataclass(frozen=True)
class Unit:
    """One operation of the written network.

    Attributes:
        kind: an operator of the specifications, ``"opaque"``, or ``"conv+bias"``, ``"gemm"``, ``"normalize"``,
            ``"concat"`` and ``"split"`` of any number of parts.
        nodes: what it covers, its result last.
        inputs: values it reads, in the order in which it is written.
        outputs: values it makes.
        settings: parameters, in the order of their names.
    """

    kind: str
    nodes: tuple[int, ...]
    inputs: tuple[StoreValue, ...]
    outputs: tuple[StoreValue, ...]
    settings: tuple[tuple[str, Any], ...] = ()

    def key(self, graph: StoredGraph) -> tuple[Any, ...]:
        """All that a unit's time depends on: kind, settings, and shape, dtype and constness of what it reads.

        Inputs that are the same value (``x + x``) are recognised by their first position in the list.
        """
        store = graph.store
        read = tuple(
            (store.shape(value), store.dtype(value), store.node(value).constant, self.inputs.index(value))
            for value in self.inputs
        )
        return (self.kind, self.settings, read, tuple(store.shape(value) for value in self.outputs))


class Units:
    """The units of one graph, or of a part of it; iterate over it.

    Args:
        graph: what is to be written.
        numbers: nodes, ascending; all of the graph's if None.
        users: readers of every value, as `StoredGraph.users` gives them.

    Example:
        >>> from deep500.transformations.substitutions.graph.store import Store
        >>> import numpy as np
        >>> store = Store()
        >>> x, w = store.input("x", (2, 3), "float32"), store.constant(np.ones((3, 4), "float32"))
        >>> b = store.constant(np.ones(4, "float32"))
        >>> y, = store.add("bias", store.add("matmul", x, w)[0], b, axis=1)
        >>> [unit.kind for unit in Units(StoredGraph(store, (y,)))]
        ['gemm']
    """

    def __init__(self, graph: StoredGraph, numbers: Sequence[int] | None = None, users: Users | None = None) -> None:
        self.graph, self.store = graph, graph.store
        self.numbers = graph.nodes() if numbers is None else numbers
        self.users: Users = graph.users() if users is None else users

    def __iter__(self) -> Iterator[Unit]:
        covered: set[int] = set()
        units: list[Unit] = []
        self.sunk: dict[int, StoreValue] = {}  # terms of sums -> the bias that they take in
        for number in reversed(self.numbers):
            node = self.store.nodes[number]
            if number in covered or node.constant or node.op == INPUT:
                continue
            if number in self.sunk:
                unit: Unit | None = self._with_bias(number, node, self.sunk[number], number)
            else:
                unit = _MAKERS.get(node.op, Units.plain)(self, number, node)
            if unit is None:
                continue
            covered.update(unit.nodes)
            units.append(unit)
        return iter(units[::-1])

    # -- what belongs together --------------------------------------------------------------------------------------
    def alone(self, value: StoreValue) -> bool:
        """Return whether a value has one reader and is no output."""
        readers = self.users.get(value, ())
        return len(readers) == 1 and readers[0] != -1

    def plain(self, number: int, node: StoreNode) -> Unit:
        """A unit of one node."""
        outputs = tuple(StoreValue(number, output) for output in range(len(node.shapes)))
        return Unit(node.op, (number,), node.inputs, outputs, node.parameters)

    def bias(self, number: int, node: StoreNode) -> Unit | None:
        """A bias with the convolution, product or gain before it, where nothing else reads that."""
        whole, vector = node.inputs
        before, axis = self.store.node(whole), node.parameter("axis")
        if axis == 1 and not before.constant and self.alone(whole):
            if self._takes_bias(before):
                return self._with_bias(whole.node, before, vector, number)
            if before.op == "add" and (target := self._term(before)) is not None:
                self.sunk[target] = vector
                return Unit("add", (whole.node, number), before.inputs, (StoreValue(number),))
        return self.plain(number, node)

    @staticmethod
    def _takes_bias(node: StoreNode) -> bool:
        image = node.op == "gain" and node.parameter("axis") == 1 and len(node.shapes[0]) > 2
        return node.op == "conv" or image or (node.op == "matmul" and len(node.shapes[0]) == 2)

    def gain(self, number: int, node: StoreNode) -> Unit | None:
        """A gain, by what its vector was cut from where that broadcasts as it is: the column of a gate."""
        unit = self.plain(number, node)
        column = self._column(node)
        return unit if column is None else replace(unit, inputs=(node.inputs[0], column))

    def reshape(self, number: int, node: StoreNode) -> Unit | None:
        """Nothing where only gains read it, which take what it reads."""
        value, readers = StoreValue(number), self._readers(number)
        taken = all(r is not None and r.op == "gain" and r.inputs[1] == value and self._column(r) for r in readers)
        return None if taken and readers else self.plain(number, node)

    def _readers(self, number: int) -> list[StoreNode | None]:
        readers = self.users.get(StoreValue(number), ())
        return [self.store.nodes[reader] if reader >= 0 else None for reader in readers]

    def _column(self, gain: StoreNode) -> StoreValue | None:
        """The tensor that is a gain's vector with the axes behind it, each of size 1."""
        whole, vector = gain.inputs
        node, behind = self.store.node(vector), len(self.store.shape(whole)) - 1 - gain.parameter("axis")
        if node.op != "reshape" or node.constant or gain.constant or behind == 0:
            return None
        return node.inputs[0] if self.store.shape(node.inputs[0]) == (*node.shapes[0], *[1] * behind) else None

    # The store moves biases behind sums, where they meet other biases. Written so, they would cost an operator; a
    # product in the sum takes them for nothing, however deep in the sum it is.
    def _term(self, total: StoreNode) -> int | None:
        """The term of a sum that can take a bias in: a product, or a gain, with no other reader."""
        terms = [term for term in total.inputs if self.alone(term) and term.node not in self.sunk]
        for term in terms:
            node = self.store.node(term)
            if not node.constant and self._takes_bias(node):
                return term.node
        sums = (self.store.node(term) for term in terms if self.store.node(term).op == "add")
        return next((sunk_into for term in sums if (sunk_into := self._term(term)) is not None), None)

    def _with_bias(self, number: int, node: StoreNode, vector: StoreValue, last: int) -> Unit:
        """A product or gain with the bias behind it, or one that came down to it as a term of a sum."""
        if node.op == "matmul":
            return self._gemm(number, node, (vector,), last)
        kind, settings = ("conv+bias", node.parameters) if node.op == "conv" else ("normalize", ())
        nodes = tuple(dict.fromkeys((number, last)))
        return Unit(kind, nodes, (*node.inputs, vector), (StoreValue(last),), settings)

    def matmul(self, number: int, node: StoreNode) -> Unit | None:
        """A product, with transposes of its operands where it reads such."""
        if len(node.shapes[0]) == 2 and any(self._turned(value) for value in node.inputs):
            return self._gemm(number, node, (), number)
        return self.plain(number, node)

    def _turned(self, value: StoreValue) -> bool:
        node = self.store.node(value)
        return node.op == "transpose" and not node.constant

    def _gemm(self, number: int, node: StoreNode, rest: tuple[StoreValue, ...], last: int) -> Unit:
        turned = tuple(self._turned(value) for value in node.inputs)
        operands = zip(node.inputs, turned, strict=True)
        inputs = tuple(self.store.node(value).inputs[0] if t else value for value, t in operands)
        settings = (("transA", int(turned[0])), ("transB", int(turned[1])))
        return Unit("gemm", tuple(dict.fromkeys((number, last))), (*inputs, *rest), (StoreValue(last),), settings)

    def transpose(self, number: int, node: StoreNode) -> Unit | None:
        """Nothing where only products read it: they take it in."""
        taken = all(r is not None and r.op == "matmul" and len(r.shapes[0]) == 2 for r in self._readers(number))
        return None if taken and len(node.shapes[0]) == 2 else self.plain(number, node)

    def concat(self, number: int, node: StoreNode) -> Unit | None:
        """A chain of concatenations along one axis."""
        nodes, inputs = self._chain(StoreValue(number), node.parameter("axis"), True)
        return Unit("concat", tuple(nodes), tuple(inputs), (StoreValue(number),), node.parameters)

    def _chain(self, value: StoreValue, axis: int, first: bool) -> tuple[list[int], list[StoreValue]]:
        node = self.store.node(value)
        inner = node.op == "concat" and node.parameter("axis") == axis and not node.constant
        if not inner or not (first or self.alone(value)):
            return [], [value]
        sides = [self._chain(operand, axis, False) for operand in node.inputs]
        return [n for nodes, _ in sides for n in nodes] + [value.node], [v for _, values in sides for v in values]

    def split(self, number: int, node: StoreNode) -> Unit | None:
        """A chain of splits along one axis, written with the first of them."""
        axis, whole = node.parameter("axis"), node.inputs[0]
        before = self.store.node(whole)
        if before.op == "split" and before.parameter("axis") == axis and self.alone(whole):
            return None
        nodes, outputs = self._cuts(number, axis)
        sizes = tuple(self.store.shape(value)[axis] for value in outputs)
        return Unit("split", tuple(nodes), (whole,), tuple(outputs), (("axis", axis), ("sizes", sizes)))

    def _cuts(self, number: int, axis: int) -> tuple[list[int], list[StoreValue]]:
        nodes, outputs = [number], []
        for half in (StoreValue(number, 0), StoreValue(number, 1)):
            readers = self.users.get(half, [])
            reader = self.store.nodes[readers[0]] if readers and readers[0] >= 0 and self.alone(half) else None
            if reader is not None and reader.op == "split" and reader.parameter("axis") == axis:
                inner, values = self._cuts(readers[0], axis)
                nodes += inner
                outputs += values
            else:
                outputs.append(half)
        return nodes, outputs


_MAKERS: dict[str, Callable[[Units, int, StoreNode], Unit | None]] = {
    "bias": Units.bias,
    "gain": Units.gain,
    "reshape": Units.reshape,
    "matmul": Units.matmul,
    "transpose": Units.transpose,
    "concat": Units.concat,
    "split": Units.split,
    CONSTANT: lambda units, number, node: None,
}


def ordered(units: Sequence[Unit], outputs: Sequence[StoreValue]) -> list[Unit]:
    """Units so that each follows what it reads, in an order that does not depend on a store's numbers."""
    maker = {value: unit for unit in units for value in unit.outputs}
    placed: dict[tuple[int, ...], Unit] = {}
    todo: list[tuple[StoreValue, bool]] = [(read, False) for read in reversed(outputs)]
    while todo:
        value, ready = todo.pop()
        unit = maker.get(value)
        if unit is None or unit.nodes in placed:
            continue
        if ready:
            placed[unit.nodes] = unit
        else:
            todo.append((value, True))
            todo.extend((read, False) for read in reversed(unit.inputs))
    return list(placed.values())
