"""`Store`: expressions of the rule language over a network's tensors, each kept once.

A node is an operator of the specifications, a leaf (an input or a constant), or ``opaque``: an ONNX node that no
specification describes, which stays as it is. Equal nodes are one node, so common subexpressions never arise; a node
is made after its inputs, so node numbers are a topological order and a cycle cannot be written down.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deep500.transformations.substitutions.graph.sizes import is_open
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import Shape, ShapeMismatch, operator, require

INPUT, CONSTANT, OPAQUE = "input", "constant", "opaque"
Parameters = tuple[tuple[str, Any], ...]


class StoreValue(NamedTuple):
    """One output of a node of a store."""

    node: int
    output: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class StoreNode:
    """A node.

    Attributes:
        op: a specification's name, or ``"input"``, ``"constant"``, ``"opaque"``.
        parameters: sorted by name.
        inputs: values it reads.
        shapes, dtypes: of every output.
        constant: whether everything it depends on is constant, so that it can be computed beforehand.
    """

    op: str
    parameters: Parameters
    inputs: tuple[StoreValue, ...]
    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    constant: bool

    def parameter(self, name: str) -> Any:
        """One parameter's value."""
        return dict(self.parameters)[name]


class Store:
    """Nodes, each kept once.

    Attributes:
        nodes: in the order in which they were made.
        arrays: the constant leaves' values, by node.
        exact: the same in float64, of leaves that were computed and rounded.
        open: whether some sizes are known at run time only (`sizes`).
        digests: of every node: how it is made from leaves, which count as they come: the same in another store, and in
            one of another dtype.

    Example:
        >>> store = Store()
        >>> x, w = store.input("x", (2, 3), "float32"), store.constant(np.ones((3, 4), "float32"))
        >>> y, = store.add("matmul", x, w)
        >>> store.shape(y), store.add("matmul", x, w) == (y,)
        ((2, 4), True)
    """

    def __init__(self) -> None:
        self.nodes: list[StoreNode] = []
        self.arrays: dict[int, np.ndarray[Any, Any]] = {}
        self.exact: dict[int, np.ndarray[Any, Any]] = {}
        self.open = False
        self.digests: list[str] = []
        self._known: dict[Any, int] = {}
        self._ordinals: dict[Any, int] = {}
        self._constants = 0

    # -- making nodes -----------------------------------------------------------------------------------------------
    def input(self, name: str, shape: Shape, dtype: str) -> StoreValue:
        """An input of the network, or a parameter that must stay one."""
        self.open = self.open or any(map(is_open, shape))
        return self._leaf(INPUT, (("name", name),), shape, dtype, False)

    def constant(self, array: np.ndarray[Any, Any], exact: np.ndarray[Any, Any] | None = None) -> StoreValue:
        """A constant, by value: equal arrays are one.

        Args:
            array: in the network's precision.
            exact: what was rounded to it, in float64. Constants that agree after rounding only are two: they are not
                equal in another precision, in which what was done here must hold too.
        """
        content = hashlib.sha256(_content(array if exact is None else exact)).hexdigest()[:32]
        self._constants += 1
        value = self._leaf(CONSTANT, (("content", content),), array.shape, str(array.dtype), True)
        self.arrays.setdefault(value.node, array)
        if exact is not None:
            self.exact.setdefault(value.node, exact)
        return value

    def opaque(
        self, inputs: Sequence[StoreValue], shapes: Sequence[Shape], dtypes: Sequence[str], parameters: Parameters
    ) -> tuple[StoreValue, ...]:
        """A node that no specification describes; ``parameters`` identify it."""
        self.open = self.open or any(is_open(size) for shape in shapes for size in shape)
        return self._node(StoreNode(OPAQUE, parameters, tuple(inputs), tuple(shapes), tuple(dtypes), False))

    def add(self, op: str, *inputs: StoreValue, **parameters: Any) -> tuple[StoreValue, ...]:
        """Apply an operator, or find what does the same with less (`simplified`); its outputs.

        A constant's ``parameters`` may name its ``dtype``; it is float32 without.

        Raises:
            ShapeMismatch: shapes, parameters or dtypes that do not fit.
        """
        dtypes = {self.dtype(value) for value in inputs} or {parameters.pop("dtype", "float32")}
        shapes = operator(op).infer([self.shape(value) for value in inputs], parameters)
        require(len(dtypes) == 1, op, sorted(dtypes), "inputs of one dtype")
        return self._apply(op, inputs, parameters, shapes, dtypes.pop())

    def again(self, node: StoreNode, inputs: tuple[StoreValue, ...]) -> tuple[StoreValue, ...]:
        """The outputs of a node's twin that reads other values of the same shapes and dtypes."""
        if node.op == OPAQUE:
            return self.opaque(inputs, node.shapes, node.dtypes, node.parameters)
        return self._apply(node.op, inputs, dict(node.parameters), node.shapes, node.dtypes[0])

    def _apply(
        self, op: str, inputs: tuple[StoreValue, ...], parameters: dict[str, Any], shapes: tuple[Shape, ...], dtype: str
    ) -> tuple[StoreValue, ...]:
        if operator(op).commutative:
            inputs = tuple(sorted(inputs, key=self._order))
        simpler = simplified(self, op, inputs, parameters)
        if simpler is not None:
            return simpler
        constant = all(self.nodes[value.node].constant for value in inputs)
        ordered = tuple(sorted(parameters.items()))
        return self._node(StoreNode(op, ordered, tuple(inputs), shapes, (dtype,) * len(shapes), constant))

    def _order(self, value: StoreValue) -> tuple[str, int]:
        """The order of operands that may change places: the same in every store, as matches and what they build is."""
        return self.digests[value.node], value.output

    def _leaf(self, op: str, parameters: Parameters, shape: Shape, dtype: str, constant: bool) -> StoreValue:
        return self._node(StoreNode(op, parameters, (), (tuple(shape),), (dtype,), constant))[0]

    def _node(self, node: StoreNode) -> tuple[StoreValue, ...]:
        key = (node.op, node.parameters, node.inputs, node.shapes, node.dtypes)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.nodes)
            self.nodes.append(node)
            self.digests.append(self._digest(node))
        return tuple(StoreValue(number, output) for output in range(len(node.shapes)))

    def _digest(self, node: StoreNode) -> str:
        read = [f"{self.digests[value.node]}.{value.output}" for value in node.inputs]
        parameters: Any = node.parameters
        if node.op == CONSTANT:
            parameters = self._constants
        elif node.op == OPAQUE:
            parameters = self._ordinals.setdefault(node.parameters, len(self._ordinals))
        elif node.op != INPUT and operator(node.op).commutative:
            read.sort()
        return hashlib.sha256(repr((node.op, parameters, node.shapes, read)).encode()).hexdigest()[:16]

    # -- asking -----------------------------------------------------------------------------------------------------
    def node(self, value: StoreValue) -> StoreNode:
        """The node that makes a value."""
        return self.nodes[value.node]

    def shape(self, value: StoreValue) -> Shape:
        """Shape of a value."""
        return self.nodes[value.node].shapes[value.output]

    def dtype(self, value: StoreValue) -> str:
        """Element type of a value."""
        return self.nodes[value.node].dtypes[value.output]

    def reachable(self, values: Iterable[StoreValue]) -> list[int]:
        """Numbers of all nodes that values depend on, their own included, ascending: a topological order."""
        numbers = {value.node for value in values}
        todo = list(numbers)
        while todo:
            for value in self.nodes[todo.pop()].inputs:
                if value.node not in numbers:
                    numbers.add(value.node)
                    todo.append(value.node)
        return sorted(numbers)

    def depends(self, value: StoreValue, on: Iterable[int]) -> bool:
        """Return whether a value depends on one of some nodes; on its own node it does."""
        targets = set(on)
        lowest = min(targets, default=0)
        seen, todo = {value.node}, [value.node]
        while todo:
            number = todo.pop()
            if number in targets:
                return True
            for read in self.nodes[number].inputs:
                if read.node >= lowest and read.node not in seen:
                    seen.add(read.node)
                    todo.append(read.node)
        return False


def _content(array: np.ndarray[Any, Any]) -> bytes:
    """Bytes that are equal where values are: of float64 those of float32 wherever that holds the same numbers."""
    if array.dtype == np.float64:
        with np.errstate(over="ignore"):
            narrow = array.astype(np.float32)
        array = narrow if np.array_equal(narrow, array, equal_nan=True) else array
    elif array.dtype == np.float16:
        array = array.astype(np.float32)
    return np.ascontiguousarray(array).tobytes()


class CycleError(ShapeMismatch):
    """A replacement would make a value depend on itself."""


@dataclass(frozen=True)
class StoredGraph:
    """The values that a network returns, over a store: one state of the search.

    Attributes:
        store: shared by all states.
        outputs: in the network's order.
    """

    store: Store
    outputs: tuple[StoreValue, ...]

    def nodes(self) -> list[int]:
        """Numbers of the nodes in use, in topological order."""
        return self._nodes

    @functools.cached_property
    def _nodes(self) -> list[int]:
        return self.store.reachable(self.outputs)

    def users(self) -> dict[StoreValue, list[int]]:
        """For every value in use, the nodes that read it (twice if they read it twice); -1 stands for an output."""
        users: dict[StoreValue, list[int]] = {}
        for number in self.nodes():
            for value in self.store.nodes[number].inputs:
                users.setdefault(value, []).append(number)
        for value in self.outputs:
            users.setdefault(value, []).append(-1)
        return users

    def replace(
        self, mapping: dict[StoreValue, StoreValue], moved: dict[StoreValue, StoreValue] | None = None
    ) -> StoredGraph:
        """The graph in which readers of some values read others.

        The nodes of ``mapping``'s values stay as they are; all others are made anew where what they read changed;
        ``moved`` receives what stands for what.

        Raises:
            CycleError: a new value depends on one that is replaced, other than by being made from it alone.
            ShapeMismatch: a replacement has another shape or dtype.

        Example:
            >>> store = Store()
            >>> x = store.input("x", (2,), "float32")
            >>> y, = store.add("relu", x)
            >>> z, = store.add("tanh", y)
            >>> new = StoredGraph(store, (z,)).replace({y: x})
            >>> store.node(new.outputs[0]).inputs == (x,)
            True
        """
        store, replaced = self.store, {value.node for value in mapping}
        for old, new in mapping.items():
            same = store.shape(old) == store.shape(new) and store.dtype(old) == store.dtype(new)
            require(same, "replace", store.shape(new), f"{store.shape(old)} of {store.dtype(old)}")
            # A single new value may read what it replaces (x -> relu(x) makes relu(x) read the old x); of several, one
            # that reads another's old node would come to read itself once that is replaced as well.
            if len(replaced) > 1 and store.depends(new, replaced):
                raise CycleError(f"got {new} for {old}, which depends on what is replaced; expected it not to; skip it")
        moved = {} if moved is None else moved
        moved.update(mapping)
        lowest = min(replaced, default=0)
        for number in self.nodes():
            node = store.nodes[number]
            if number <= lowest or not any(read in moved for read in node.inputs):
                continue
            inputs = tuple(moved.get(read, read) for read in node.inputs)
            for output, new in enumerate(store.again(node, inputs)):
                old = StoreValue(number, output)
                if new != old:
                    moved.setdefault(old, new)
        return StoredGraph(store, tuple(moved.get(read, read) for read in self.outputs))


# -- applications that need no node of their own -----------------------------------------------------------------------
# Each case is an axiom read in one direction: parts of concatenations (25, 26 and associativity), transposing twice
# (29), nested reshapes, biases of zeros, of sums and of biases; and reshapes that keep the last axis move behind what
# works element by element or along that axis, so that products of matrices meet what follows them.
Values = tuple[StoreValue, ...]


def parts(store: Store, value: StoreValue, axis: int) -> list[StoreValue]:
    """Pieces of nested concatenations along one axis, in order.

    Example:
        >>> store = Store()
        >>> x, y, z = (store.input(name, (2, 3), "float32") for name in "xyz")
        >>> both, = store.add("concat", x, y, axis=0)
        >>> parts(store, store.add("concat", both, z, axis=0)[0], 0) == [x, y, z]
        True
    """
    node = store.node(value)
    if node.op != "concat" or node.parameter("axis") != axis:
        return [value]
    return [part for operand in node.inputs for part in parts(store, operand, axis)]


def joined(store: Store, values: Sequence[StoreValue], axis: int) -> StoreValue:
    """The concatenation of one or more values, from left to right."""
    whole = values[0]
    for value in values[1:]:
        (whole,) = store.add("concat", whole, value, axis=axis)
    return whole


def _split(store: Store, inputs: Values, parameters: Mapping[str, Any]) -> Values | None:
    axis, cut, position = parameters["axis"], parameters["cut"], 0
    pieces = parts(store, inputs[0], axis)
    for count, part in enumerate(pieces):
        if position == cut:
            return joined(store, pieces[:count], axis), joined(store, pieces[count:], axis)
        position += store.shape(part)[axis]
    return None


def _concat(store: Store, inputs: Values, parameters: Mapping[str, Any]) -> Values | None:
    """Nested to the left, so that equal concatenations are one; neighbours that were cut apart grow together."""
    axis = parameters["axis"]
    left, right = (parts(store, value, axis) for value in inputs)
    first, second = left[-1], right[0]
    node = store.node(first)
    halves = first.node == second.node and (first.output, second.output) == (0, 1) and node.op == "split"
    if halves and node.parameter("axis") == axis:
        return (joined(store, [*left[:-1], node.inputs[0], *right[1:]], axis),)
    return (joined(store, [*left, *right], axis),) if len(right) > 1 else None


def _transpose(store: Store, inputs: Values, parameters: Mapping[str, Any]) -> Values | None:
    order, node = tuple(parameters["perm"]), store.node(inputs[0])
    if order == tuple(range(len(order))):
        return inputs
    if node.op != "transpose":
        return None
    inner = node.parameter("perm")
    return store.add("transpose", node.inputs[0], perm=tuple(inner[axis] for axis in order))


def _reshape(store: Store, inputs: Values, parameters: Mapping[str, Any]) -> Values | None:
    node = store.node(inputs[0])
    if tuple(parameters["shape"]) == store.shape(inputs[0]):
        return inputs
    return store.add("reshape", node.inputs[0], shape=parameters["shape"]) if node.op == "reshape" else None


def _add(store: Store, inputs: Values, parameters: Mapping[str, Any]) -> Values | None:
    """A bias moves behind a sum, where it meets others; the written network has it in a product before (`units`).

    In x + f(x) it stays: f reads x with its bias, so the product before would have none and the bias two operators.
    """
    for summand, other in (inputs, inputs[::-1]):
        node = store.node(summand)
        if node.op == "bias" and not node.constant and not store.depends(other, (summand.node,)):
            (total,) = store.add("add", node.inputs[0], other)
            return store.add("bias", total, node.inputs[1], axis=node.parameter("axis"))
    return None


def _bias(store: Store, inputs: Values, parameters: Mapping[str, Any]) -> Values | None:
    """A bias of zeros, of convolutions and normalizations that nobody trained, is none; two are one."""
    array, node = store.arrays.get(inputs[1].node), store.node(inputs[0])
    if array is not None and not np.any(array):
        return inputs[:1]
    if node.op != "bias" or node.constant or node.parameter("axis") != parameters["axis"]:
        return None
    (both,) = store.add("add", node.inputs[1], inputs[1])
    return store.add("bias", node.inputs[0], both, axis=parameters["axis"])


def _no_change(store: Store, inputs: Values, parameters: Mapping[str, Any]) -> Values | None:
    unchanged = parameters.get("source", 0) == parameters.get("target", 1) or parameters.get("factor") == 1
    return inputs if unchanged else None


def _behind_reshape(store: Store, op: str, inputs: Values, parameters: Mapping[str, Any]) -> Values | None:
    """The same on what the reshapes of whole tensors read, and the reshape behind it."""
    # Without this, the reshape that ends a product of stacked matrices would stand between the product and its bias or
    # the next product, and no rule that merges or factors products would match across it.
    first, shape = store.node(inputs[0]), store.shape(inputs[0])
    if first.op != "reshape" or first.constant:
        return None
    source = store.shape(first.inputs[0])
    last = parameters.get("axis") == len(shape) - 1 if "axis" in parameters else op in ELEMENTWISE or op in ACTIVATIONS
    if not last or source[-1] != shape[-1] or len(source) != 2:
        return None
    inner = [first.inputs[0]]
    for value in inputs[1:]:
        if store.shape(value) == shape:
            node = store.node(value)
            if node.op != "reshape" or store.shape(node.inputs[0]) != source:
                return None
            inner.append(node.inputs[0])
        else:
            inner.append(value)
    moved = {**parameters, "axis": 1} if "axis" in parameters else parameters
    results = store.add(op, *inner, **moved)
    return tuple(store.add("reshape", value, shape=(*shape[:-1], store.shape(value)[-1]))[0] for value in results)


ELEMENTWISE = {"add", "mul", "scale", "shift"}  # and activations
_MOVING = {*ELEMENTWISE, "bias", "gain", "split"}
_CASES: dict[str, Callable[[Store, Values, Mapping[str, Any]], Values | None]] = {
    "add": _add,
    "bias": _bias,
    "split": _split,
    "concat": _concat,
    "transpose": _transpose,
    "reshape": _reshape,
    "enlarge": _no_change,
    "merge_groups": _no_change,
}


def simplified(store: Store, op: str, inputs: Values, parameters: Mapping[str, Any]) -> Values | None:
    """Values that stand for an application without a node for it; None where there are none.

    Example:
        >>> store = Store()
        >>> x, y = store.input("x", (2, 3), "float32"), store.input("y", (4, 3), "float32")
        >>> both, = store.add("concat", x, y, axis=0)
        >>> store.add("split", both, axis=0, cut=2) == (x, y)
        True
    """
    simpler = _CASES[op](store, inputs, parameters) if op in _CASES else None
    if simpler is None and (op in _MOVING or op in ACTIVATIONS):
        simpler = _behind_reshape(store, op, inputs, parameters)
    return simpler
