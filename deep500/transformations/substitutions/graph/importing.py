"""A network as a graph of the rule language.

What a specification describes exactly becomes operators (see `FORMS`); everything else stays an opaque node, around
which the optimizer still works. Parameters are constants, or inputs where the network is to be trained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from deep500.errors import NetworkError
from deep500.networks.graph import AnyGraph, Graph
from deep500.networks.network import Network
from deep500.networks.node import Node, find_schema
from deep500.networks.protos import node_proto
from deep500.tensors import TensorDescriptor, dtype_to_onnx
from deep500.transformations.substitutions.graph.sizes import (
    Size,
    can_be_asked,
    can_be_read,
    is_open,
    numbers,
    reshaped,
    symbol,
    total,
    unknown,
)
from deep500.transformations.substitutions.graph.store import Store, StoredGraph, StoreValue
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.own import OWN
from deep500.transformations.substitutions.operators.specification import Shape, ShapeMismatch

FLOATS = ("float16", "float32", "float64")
POINTWISE = frozenset({"Erf", "Exp", "Log", "Sqrt", "Neg", "Abs", "Pow", "Reciprocal", "Softplus", "Elu", "HardSwish"})
"""Operators that change every element by itself, and stay opaque."""
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
        values: name -> value, of all names.
        again: what a node gives where the names that it reads stand for other values of the same types.
    """

    network: Network
    graph: StoredGraph
    names: dict[StoreValue, str]
    opaque: dict[str, Node]
    sizes: dict[str, int]
    training: bool
    values: dict[str, StoreValue] = field(default_factory=dict)
    again: Callable[[Node, Mapping[str, StoreValue]], Sequence[StoreValue]] = field(default=lambda *_: (), repr=False)

    @property
    def store(self) -> Store:
        """The store in which all states of the search live."""
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
        >>> imported = import_network(create("mlp", batch=2))
        >>> sorted({imported.store.nodes[n].op for n in imported.graph.nodes()})
        ['bias', 'constant', 'input', 'matmul', 'relu', 'reshape', 'transpose']
    """
    return Importer(network, training, sizes or {}).run()


def named(network: AnyGraph) -> AnyGraph:
    """The network with a symbol for every size of its inputs that has no name.

    Sizes without a name may or may not be equal. Each gets a symbol of its own, so nothing is rewritten that holds only
    where two of them are the same; where shapes then contradict each other, the sizes stay unknown.

    Example:
        >>> network = Network("n"); network.add_input("x", (None, 16)); network.add_output("x")
        >>> named(network).inputs["x"].shape
        ('x.0', 16)
    """
    if not any(None in (described.shape or ()) for described in network.inputs.values()):
        return network
    twin = network.copy()
    for name, described in network.inputs.items():
        if described.shape is not None:
            shape = tuple(f"{name}.{axis}" if size is None else size for axis, size in enumerate(described.shape))
            twin.set_input(name, shape)
    try:
        twin.descriptors()
        _bound(twin, stand_ins(twin, {})).descriptors()
    except NetworkError:
        return network
    return twin


class Importer:
    """Turns nodes into values, in the network's order; `FORMS` ask it about what they read."""

    def __init__(self, network: Network, training: bool, sizes: Mapping[str, int]) -> None:
        self.network, self.training = network, training
        self.store = Store()
        network = named(network)
        self.sizes = stand_ins(network, sizes)
        self.symbolic = network.descriptors() if self.sizes else {}
        self.described = _bound(network, self.sizes).descriptors()
        self.shapes: dict[str, Shape] = {}
        self.values: dict[str, StoreValue] = {}
        self.names: dict[StoreValue, str] = {}
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
            for name, value in zip(node.writes, self._results(node), strict=False):
                self._name(name, value)
        graph = StoredGraph(self.store, tuple(self.values[name] for name in self.network.outputs))
        names, values = self.names, self.values
        return Imported(self.network, graph, names, self.opaque, self.sizes, self.training, values, self._again)

    def _name(self, name: str, value: StoreValue) -> None:
        self.values[name] = value
        self.names.setdefault(value, name)

    def _type(self, name: str) -> tuple[Shape, str]:
        described = self.described.get(name, TensorDescriptor(None, None))
        if name not in self.shapes:
            shape: Any = described.shape
            fixed = shape is not None and all(isinstance(size, int) and size > 0 for size in shape)
            self.shapes[name] = self._open(name, tuple(shape)) if fixed else UNKNOWN
        return self.shapes[name], str(described.dtype)

    def _open(self, name: str, shape: Shape) -> Shape:
        """A shape in which sizes that are no constants of the network say what they are."""
        symbols = self.symbolic[name].shape if name in self.symbolic else shape
        if symbols is None or len(symbols) != len(shape):
            symbols = (None,) * len(shape)
        sizes = list(shape)
        for axis, size in enumerate(symbols):
            if not isinstance(size, int):
                sizes[axis] = symbol(size, sizes[axis]) if size in self.sizes else unknown(sizes[axis], name, axis)
        return tuple(sizes)

    def _followed(self, node: Node, inputs: Sequence[StoreValue]) -> None:
        """Let open sizes of what an opaque node gives be those of its inputs, where ONNX says that they are."""
        written_shapes = {name: self._type(name)[0] for name in node.writes}
        schema = find_schema(node.op_type, node.domain)
        if schema is None or all(map(can_be_read, (size for shape in written_shapes.values() for size in shape))):
            return
        marks, types, data = dict[Size, str](), dict[str, onnx.TypeProto](), dict[str, onnx.TensorProto]()
        for name, value in zip(node.reads, inputs, strict=False):
            shape, dtype = self._type_of(value)
            if shape == UNKNOWN:
                return
            dims = [marks.setdefault(size, f"size {len(marks)}") if isinstance(size, Size) else size for size in shape]
            types[name] = onnx.helper.make_tensor_type_proto(dtype_to_onnx(dtype), dims)
            array = self.store.arrays.get(value.node)
            if array is not None and array.dtype.kind == "i":
                data[name] = onnx.numpy_helper.from_array(np.asarray(array), name)
        try:
            inferred = onnx.shape_inference.infer_node_outputs(schema, node_proto(node), types, data)
        except (onnx.shape_inference.InferenceError, ValueError):
            return
        sizes = {mark: size for size, mark in marks.items()}
        for name, described in inferred.items():
            dims = described.tensor_type.shape.dim
            if len(dims) == len(written_shapes[name]):
                both = zip(dims, written_shapes[name], strict=True)
                self.shapes[name] = tuple(sizes.get(dim.dim_param, dim.dim_value or size) for dim, size in both)

    def _again(self, node: Node, values: Mapping[str, StoreValue]) -> Sequence[StoreValue]:
        before, self.values = self.values, dict(values)
        try:
            return self._results(node)
        finally:
            self.values = before

    def _results(self, node: Node) -> Sequence[StoreValue]:
        values = None
        form = _form(node) if not node.domain else None
        # What a computed target asks for is known by what it gives.
        needed = (*(node.inputs[:1] if node.op_type == "Reshape" else node.inputs), *node.outputs)
        if form and not node.graphs and all(not n or self.computable(n) for n in needed):
            try:
                values = form(self, node)
            except ShapeMismatch:
                values = None  # broadcasting and the like, which the rule language does not have
        for name, value in zip(node.writes, values or (), strict=False):
            (shape, dtype), (expected, kind) = self._type_of(value), self._type(name)
            if (numbers(shape), dtype) != (numbers(expected), kind):
                raise NetworkError(
                    f"got other shapes than ONNX's for node {node.name!r}; expected the same; report this"
                )
        return values or self._opaque(node)

    def computable(self, name: str) -> bool:
        """Return whether a value is something specifications can compute with: float of known shape, or a constant."""
        shape, dtype = self._type(name)
        value = self.values.get(name)
        constant = value is not None and self.store.node(value).constant
        return constant or (shape != UNKNOWN and dtype in FLOATS)

    def _opaque(self, node: Node) -> tuple[StoreValue, ...]:
        text = node_proto(replace(node, name="", inputs=(), outputs=())).SerializeToString(deterministic=True)
        gaps = repr(([bool(name) for name in node.inputs], [bool(name) for name in node.outputs], node.captured))
        identity = node.name if node.is_random or node.domain or node.graphs else ""
        digest = hashlib.sha256(text + gaps.encode() + identity.encode()).hexdigest()[:16]
        self.opaque.setdefault(digest, node)
        inputs = [self.values[name] for name in node.reads]
        if self.sizes and not node.domain and not node.graphs:
            self._followed(node, inputs)
        types = [self._type(name) for name in node.writes]
        parameters = (("digest", digest), ("op_type", node.op_type))
        matrix = self._matrix(node, inputs)
        if matrix is not None:
            (dtype,), (shape,) = ([kind for _, kind in types], [result_shape for result_shape, _ in types])
            product = self.store.opaque([matrix, *inputs[1:]], [self.store.shape(matrix)], [dtype], parameters)
            return self.store.add("reshape", product[0], shape=shape)
        return self.store.opaque(inputs, [shape for shape, _ in types], [dtype for _, dtype in types], parameters)

    def _matrix(self, node: Node, inputs: Sequence[StoreValue]) -> StoreValue | None:
        """The matrix of a product whose elements a node changes one by one, though nothing is known of how.

        Reshapes move behind it as behind all that works element by element: else GELU in pieces, with an `Erf` or `Pow`
        that no rule knows, would have some of its pieces on matrices and others on tensors.
        """
        if node.op_type not in POINTWISE or node.domain or len(inputs) > 2 or len(node.writes) != 1:
            return None
        first = self.store.node(inputs[0])
        if first.op != "reshape" or first.constant or self._type(node.writes[0]) != self._type_of(inputs[0]):
            return None
        scalars = all(self.store.node(v).constant and np.prod(self.store.shape(v)) == 1 for v in inputs[1:])
        source, shape = self.store.shape(first.inputs[0]), self.store.shape(inputs[0])
        return first.inputs[0] if scalars and len(source) == 2 and source[-1] == shape[-1] else None

    def _type_of(self, value: StoreValue) -> tuple[Shape, str]:
        return self.store.shape(value), self.store.dtype(value)

    # -- what forms ask ---------------------------------------------------------------------------------------------
    def value(self, node: Node, position: int) -> StoreValue:
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


def stand_ins(network: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """A number for every symbolic size of the inputs, which divides none of the network's fixed sizes.

    Example:
        >>> from deep500.networks import create
        >>> stand_ins(create("mlp", shape=(4,), classes=3), {"N": 4})
        {'N': 5}
        >>> empty = create("mlp", shape=(4,), classes=3)
        >>> empty.add_parameter("none", np.zeros((1, 0)))
        >>> stand_ins(empty, {"N": 4})                         # a size of 0 rules out no number
        {'N': 5}
    """
    fixed = {int(size) for parameter in network.parameters.values() for size in np.shape(parameter.value)}
    fixed |= {size for described in network.inputs.values() for size in described.shape or () if isinstance(size, int)}
    fixed.discard(0)  # every prime divides it
    chosen: dict[str, int] = {}
    for described in network.inputs.values():
        for name in described.shape or ():
            if isinstance(name, str) and name not in chosen:
                number = max(sizes.get(name, 2), 2)
                # A prime that divides no fixed size: what only happens to fit it is seen not to.
                while not _prime(number) or number in chosen.values() or any(size % number == 0 for size in fixed):
                    number += 1
                chosen[name] = number
    return chosen


def _prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _bound(network: AnyGraph, sizes: Mapping[str, int]) -> AnyGraph:
    if not sizes:
        return network
    twin = network.copy()
    for name, described in network.inputs.items():
        shape: Sequence[Any] | None = described.shape
        if shape is not None:
            shape = tuple(sizes.get(size, size) if isinstance(size, str) else size for size in shape)
        twin.set_input(name, shape)
    return twin


# -- ONNX operators in the rule language: one short function each; None, or `ShapeMismatch`, leaves the node opaque ----
Values = tuple[StoreValue, ...] | None


def _identity(g: Importer, node: Node) -> Values:
    return (g.value(node, 0),)


def _dropout(g: Importer, node: Node) -> Values:
    return (g.value(node, 0),) if not g.training and len(node.writes) == 1 and len(node.inputs) < 3 else None


def _activation(op: str) -> Callable[[Importer, Node], Values]:
    def form(g: Importer, node: Node) -> Values:
        exact = node.attribute("approximate", b"none") in ("none", b"none")
        return g.store.add(op, g.value(node, 0)) if exact else None

    return form


# -- sums and products --------------------------------------------------------------------------------------------
def _vector_axis(whole: Shape, other: Shape) -> int | None:
    """The only axis along which ``other``, broadcast against ``whole``, is longer than 1."""
    full = (1,) * (len(whole) - len(other)) + tuple(other)
    axes = [axis for axis, size in enumerate(full) if size != 1]
    fits = len(full) == len(whole) and len(axes) == 1 and full[axes[0]] == whole[axes[0]]
    return axes[0] if fits else None


def combine(g: Importer, names: tuple[str, str, str], left: StoreValue, right: StoreValue) -> Values:
    """A sum or product with ONNX's broadcasting, as far as it is one of equal shapes, a scalar, or a vector.

    ``names`` are those of the elementwise operator, the one with a scalar and the one with a vector.
    """
    elementwise, scalar, vector = names
    shapes = g.store.shape(left), g.store.shape(right)
    if shapes[0] == shapes[1]:
        return g.store.add(elementwise, left, right)
    if total(shapes[0]) < total(shapes[1]) or len(shapes[0]) < len(shapes[1]):
        left, right = right, left
        shapes = shapes[::-1]
    whole, other = shapes
    spread = zip(other[::-1], whole[::-1], strict=False)
    if names == ADD and _zero(g, right) and len(other) <= len(whole) and all(a in (1, b) for a, b in spread):
        return (left,)  # of biases that nobody trained
    if len(other) <= len(whole) and total(other) == 1:
        return g.store.add(scalar, left, _reshaped(g, right, ()))
    axis = _vector_axis(whole, other)
    return None if axis is None else g.store.add(vector, left, _reshaped(g, right, (whole[axis],)), axis=axis)


def _zero(g: Importer, value: StoreValue) -> bool:
    """Return whether a value is a constant of zeros; in training there are none, as parameters are inputs."""
    array = g.store.arrays.get(value.node)
    return array is not None and not np.any(array)


def _reshaped(g: Importer, value: StoreValue, shape: Shape) -> StoreValue:
    array = g.store.arrays.get(value.node)
    if array is not None:
        exact = g.store.exact.get(value.node)
        return g.store.constant(array.reshape(shape), None if exact is None else exact.reshape(shape))
    return value if g.store.shape(value) == shape else g.store.add("reshape", value, shape=shape)[0]


ADD, MULTIPLY = ("add", "shift", "bias"), ("mul", "scale", "gain")


def _binary(names: tuple[str, str, str], inverse: Callable[[Any], Any] | None = None) -> Callable[..., Values]:
    def form(g: Importer, node: Node) -> Values:
        right = g.value(node, 1)
        if inverse is not None:
            array = g.array(node, 1)
            if array is None or str(array.dtype) not in FLOATS:
                return None
            with np.errstate(divide="ignore"):
                exact = inverse(array.astype(np.float64))
            right = g.store.constant(exact.astype(array.dtype), exact)
        return combine(g, names, g.value(node, 0), right)

    return form


def _sum(g: Importer, node: Node) -> Values:
    total = g.value(node, 0)
    for position in range(1, len(node.inputs)):
        (total,) = g.store.add("add", total, g.value(node, position))
    return (total,)


# -- products of matrices and convolutions ------------------------------------------------------------------------
def _matmul(g: Importer, node: Node) -> Values:
    left, right = g.value(node, 0), g.value(node, 1)
    shape, width = g.store.shape(left), g.store.shape(right)
    if len(width) != 2 or len(shape) < 2:
        return None
    if len(shape) == 2:
        return g.store.add("matmul", left, right)
    if not can_be_asked((*shape[:-1], width[-1])):
        return None
    rows = total(shape[:-1])
    (flat,) = g.store.add("reshape", left, shape=(rows, shape[-1]))
    (product,) = g.store.add("matmul", flat, right)
    return g.store.add("reshape", product, shape=(*shape[:-1], width[-1]))


def _gemm(g: Importer, node: Node) -> Values:
    if node.attribute("alpha") != 1.0 or (len(node.inputs) > 2 and node.attribute("beta") != 1.0):
        return None
    sides = [g.value(node, 0), g.value(node, 1)]
    for position, name in enumerate(("transA", "transB")):
        if node.attribute(name):
            (sides[position],) = g.store.add("transpose", sides[position], perm=(1, 0))
    product = g.store.add("matmul", *sides)
    return combine(g, ADD, product[0], g.value(node, 2)) if len(node.inputs) > 2 and node.inputs[2] else product


def window(g: Importer, node: Node, kernel: Shape) -> dict[str, Any] | None:
    """Kernel, strides and explicit pads of a two-dimensional window; None where it is not one, or where automatic pads
    differ from size to size."""
    image = g.shape(node, 0)
    if len(image) != 4 or len(kernel) != 2:
        return None
    strides = tuple(node.attribute("strides", None) or (1, 1))
    dilations = tuple(node.attribute("dilations", None) or (1, 1))
    pads = tuple(node.attribute("pads", None) or (0, 0, 0, 0))
    auto = node.attribute("auto_pad", "NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        padding = [
            max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            for n, k, s, d in zip(image[2:], kernel, strides, dilations, strict=True)
        ]
        if any(map(is_open, padding)) or any(s > 1 and is_open(n) for n, s in zip(image[2:], strides, strict=True)):
            return None
        less, more = tuple(t // 2 for t in padding), tuple(t - t // 2 for t in padding)
        pads = (*less, *more) if auto == "SAME_UPPER" else (*more, *less)
    elif auto == "VALID":
        pads = (0, 0, 0, 0)
    return {"kernel": tuple(kernel), "strides": strides, "pads": pads, "dilations": dilations}


def _conv(g: Importer, node: Node) -> Values:
    kernel = g.shape(node, 1)
    settings = window(g, node, kernel[2:])
    if settings is None:
        return None
    image = g.store.add("conv", g.value(node, 0), g.value(node, 1), **settings, groups=node.attribute("group"))
    if len(node.inputs) < 3 or not node.inputs[2]:
        return image
    return g.store.add("bias", image[0], g.value(node, 2), axis=1)


def _pool(op: str) -> Callable[[Importer, Node], Values]:
    def form(g: Importer, node: Node) -> Values:
        settings = window(g, node, tuple(node.attribute("kernel_shape")))
        plain = not node.attribute("ceil_mode") and not node.attribute("storage_order", 0) and len(node.writes) == 1
        if settings is None or not plain or settings.pop("dilations") != (1, 1):
            return None
        if op == "avgpool":
            settings["count_padding"] = bool(node.attribute("count_include_pad"))
        return g.store.add(op, g.value(node, 0), **settings)

    return form


def _batch_normalization(g: Importer, node: Node) -> Values:
    """In evaluation mode: x * f + (bias - mean * f) with f = scale / sqrt(variance + epsilon), in float64."""
    arrays = [g.array(node, position) for position in range(1, 5)]
    if g.training or node.attribute("training_mode") or len(node.writes) > 1 or any(array is None for array in arrays):
        return None
    dtype = g.store.dtype(g.value(node, 0))
    scale, bias, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    factor = scale / np.sqrt(variance + node.attribute("epsilon"))
    vectors = [g.store.constant(array.astype(dtype), array) for array in (factor, bias - mean * factor)]
    (scaled,) = g.store.add("gain", g.value(node, 0), vectors[0], axis=1)
    return g.store.add("bias", scaled, vectors[1], axis=1)


# -- layout -------------------------------------------------------------------------------------------------------
def _concat(g: Importer, node: Node) -> Values:
    axis = node.attribute("axis") % len(g.shape(node, 0))
    whole = g.value(node, 0)
    for position in range(1, len(node.inputs)):
        (whole,) = g.store.add("concat", whole, g.value(node, position), axis=axis)
    return (whole,)


def _split(g: Importer, node: Node) -> Values:
    shape = g.shape(node, 0)
    axis = node.attribute("axis") % len(shape)
    sizes = g.array(node, 1)
    if is_open(shape[axis]):
        return None
    if sizes is None:
        part = -(-shape[axis] // len(node.outputs))
        sizes = np.full(len(node.outputs), part)
        sizes[-1] = shape[axis] - part * (len(node.outputs) - 1)
    return _cut(g, g.value(node, 0), axis, [int(size) for size in sizes]) if len(node.writes) == len(sizes) else None


def _cut(g: Importer, value: StoreValue, axis: int, sizes: Sequence[int]) -> tuple[StoreValue, ...]:
    pieces = []
    for size in sizes[:-1]:
        first, value = g.store.add("split", value, axis=axis, cut=size)
        pieces.append(first)
    return (*pieces, value)


def _transpose(g: Importer, node: Node) -> Values:
    rank = len(g.shape(node, 0))
    return g.store.add("transpose", g.value(node, 0), perm=tuple(node.attribute("perm") or range(rank)[::-1]))


def _reshape(g: Importer, node: Node) -> Values:
    """Reshape, Flatten, Squeeze and Unsqueeze: the same elements in another shape."""
    shape, dtype = g._type(node.outputs[0])
    if dtype != g.store.dtype(g.value(node, 0)) or min(shape, default=1) <= 0:
        return None
    whole, array = g.shape(node, 0), g.array(node, 1)
    constant = len(node.inputs) < 2 or not node.inputs[1] or array is not None
    if constant and any(map(is_open, whole)):
        places = [node.attribute("axis")] if node.op_type == "Flatten" else [] if array is None else array.tolist()
        expected, shape = shape, reshaped(node.op_type, whole, places)
        if numbers(shape) != numbers(expected):
            return None
    if not can_be_asked(shape):
        return None
    return g.store.add("reshape", g.value(node, 0), shape=shape) if total(shape) == total(whole) else None


def _form(node: Node) -> Callable[[Any, Node], Values] | None:
    """The form of a node's operator: of the table, or of an activation that someone added."""
    for name, activation in OWN.items():
        if activation.op_type == node.op_type:
            same = all(node.attribute(key) == value for key, value in activation.attributes.items())
            return _activation(name) if same and len(node.inputs) == 1 else None
    return FORMS.get(node.op_type)


FORMS: dict[str, Callable[[Any, Node], Values]] = {
    "Add": _binary(ADD),
    "AveragePool": _pool("avgpool"),
    "BatchNormalization": _batch_normalization,
    "Concat": _concat,
    "Conv": _conv,
    "Div": _binary(MULTIPLY, lambda array: 1.0 / array),
    "Dropout": _dropout,
    "Flatten": _reshape,
    "Gemm": _gemm,
    "Identity": _identity,
    "MatMul": _matmul,
    "MaxPool": _pool("maxpool"),
    "Mul": _binary(MULTIPLY),
    "Reshape": _reshape,
    "Split": _split,
    "Squeeze": _reshape,
    "Sub": _binary(ADD, lambda array: -array),
    "Sum": _sum,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
    **{op_type: _activation(op) for op, op_type in ACTIVATIONS.items()},
}
