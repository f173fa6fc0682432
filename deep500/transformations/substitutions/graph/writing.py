"""A graph as a network: constants computed, units written as ONNX nodes, names kept where values are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from deep500.errors import NetworkError
from deep500.networks.graph import Graph
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.transformations.substitutions.graph.attention import fused
from deep500.transformations.substitutions.graph.importing import Imported, named
from deep500.transformations.substitutions.graph.sizes import Size, is_open, numbers, ones_between, reshaped, symbol
from deep500.transformations.substitutions.graph.stacked import unstacked
from deep500.transformations.substitutions.graph.store import INPUT, OPAQUE, Store, StoredGraph, StoreValue, parts
from deep500.transformations.substitutions.graph.units import Unit, Units, ordered
from deep500.transformations.substitutions.operators.arithmetic import Real
from deep500.transformations.substitutions.operators.specification import operator

Array = np.ndarray[Any, Any]
SPOKEN = 4
"""Parameters that the name of what is made of them tells."""


def constant_array(store: Store, value: StoreValue, wide: bool = False) -> Array:
    """Array of a constant value, computed in float64 and rounded once to its dtype; with ``wide`` not at all.

    Example:
        >>> store = Store()
        >>> w = store.constant(np.ones((2, 2), "float32"))
        >>> constant_array(store, store.add("add", w, w)[0]).tolist()
        [[2.0, 2.0], [2.0, 2.0]]
    """
    if value.node in store.arrays:
        array = store.arrays[value.node]
        return store.exact.get(value.node, array.astype(np.float64)) if wide and array.dtype.kind == "f" else array
    joined = _joined(store, value, wide)
    if joined is not None:
        return joined
    known: dict[StoreValue, Array] = {}
    for number in store.reachable([value]):
        node = store.nodes[number]
        if number in store.arrays:
            known[StoreValue(number)] = np.asarray(store.exact.get(number, store.arrays[number]), np.float64)[None]
            continue
        results = operator(node.op).evaluate(Real(), [known[read] for read in node.inputs], dict(node.parameters))
        known.update({StoreValue(number, output): result for output, result in enumerate(results)})
    return np.ascontiguousarray(known[value][0].astype("float64" if wide else store.dtype(value)))


def _joined(store: Store, value: StoreValue, wide: bool) -> Array | None:
    """A concatenation, of parts that are computed each for itself and copied once; None if it is none.

    Nested as they are, concatenations would copy their first parts as often as they have others, and in float64.
    """
    node = store.node(value)
    if node.op != "concat":
        return None
    axis = node.parameter("axis")
    return np.concatenate([constant_array(store, part, wide) for part in parts(store, value, axis)], axis)


def spoken(names: Sequence[str]) -> str:
    """One name for what is made of several: what they share once, the rest joined; of many the first ones.

    Example:
        >>> spoken(["att.q.weight", "att.k.weight", "att.v.weight"]), spoken(["w"]), spoken([])
        ('att.q+k+v.weight', 'w', '')
    """
    words = [name.split(".") for name in dict.fromkeys(names)]
    if len(words) < 2:
        return "".join(map(".".join, words))
    least = min(map(len, words)) - 1
    before = next((n for n in range(least) if len({word[n] for word in words}) > 1), least)
    after = next((n for n in range(least - before) if len({word[-1 - n] for word in words}) > 1), least - before)
    middles = [".".join(word[before : len(word) - after]) for word in words]
    shown = [*middles[:SPOKEN], *[f"{len(middles) - SPOKEN}_more"] * (len(middles) > SPOKEN)]
    return ".".join([*words[0][:before], "+".join(shown), *words[0][len(words[0]) - after :]])


class Writer:
    """Writes units into a network.

    Args:
        network: receives nodes and parameters.
        graph: what is written.
        names: names of values that have one; the others get fresh ones.
        imported: the network that this is, or is a part of: reshapes keep its symbolic sizes open, nodes their names.
        wide: whether computed constants stay in float64.
    """

    def __init__(
        self,
        network: Graph,
        graph: StoredGraph,
        names: dict[StoreValue, str],
        imported: Imported | None = None,
        wide: bool = False,
    ) -> None:
        self.network, self.graph, self.store, self.wide = network, graph, graph.store, wide
        self.names, self.taken, self._count = dict(names), {*names.values(), *network.values()}, 0
        self.opaque: dict[str, Node] = {} if imported is None else imported.opaque
        sizes = {} if imported is None else imported.sizes
        self.alone, self.training = imported is None, imported is not None and imported.training
        self.symbols: dict[Size, tuple[str, int]] = {}  # an input that has a symbolic size, and its axis
        self.made_by: dict[str, Node] = {}  # nodes of the source by their first output: their names stay
        if imported is not None:
            source = imported.network
            self.taken |= {*source.values(), *(node.name for node in source.nodes)}
            self.made_by = {node.outputs[0]: node for node in source.nodes if node.outputs}
            for name, described in named(source).inputs.items():
                for axis, size in enumerate(described.shape or ()):
                    if size in sizes:
                        self.symbols.setdefault(symbol(str(size), sizes[size]), (name, axis))

    def fresh(self, prefix: str) -> str:
        """A name that nothing has."""
        while True:
            self._count += 1
            name = f"{prefix}_{self._count}"
            if name not in self.taken:
                self.taken.add(name)
                return name

    def name(self, value: StoreValue) -> str:
        """A value's name; a constant is computed and becomes a parameter."""
        if self.store.node(value).constant and not self.network.has_value(self.names.get(value, "")):
            self.names.setdefault(value, self._spoken(value))
            array = constant_array(self.store, value, self.wide)
            # What is to be trained is an input here, and a computed number, like 1 / sqrt(2), is no weight.
            weight = array.dtype.kind == "f" and array.size > 1 and not self.training
            self.network.add_parameter(self.names[value], array, trainable=weight)
        if value not in self.names:
            self.names[value] = self.fresh(self.store.node(value).op)
        return self.names[value]

    def _spoken(self, value: StoreValue) -> str:
        """A name that says which parameters a constant is made of: ``q+k+v.weight``."""
        known, todo = dict[StoreValue, None](), [value]
        while todo:  # from left to right, as concatenations lie
            current = todo.pop()
            todo.extend(reversed(self.store.node(current).inputs))
            known.update({current: None} if current in self.names else {})
        most = max((len(self.store.shape(leaf)) for leaf in known), default=0)  # of a weight and vectors, the weight
        names = [self.names[leaf] for leaf in known if len(self.store.shape(leaf)) == most]
        name = spoken(names if self.store.node(value).op == "concat" else sorted(names))
        if not name or name in self.taken:
            return self.fresh(name or "folded")
        self.taken.add(name)
        return name

    def array(self, array: Array) -> str:
        """The name of a new parameter that is no weight."""
        name = self.fresh("constant")
        self.network.add_parameter(name, array, trainable=False)
        return name

    def write(self, unit: Unit) -> None:
        """Add the nodes of a unit."""
        if unit.kind == OPAQUE:
            return self._write_opaque(unit)
        inputs, outputs = [self.name(value) for value in unit.inputs], [self.name(value) for value in unit.outputs]
        protos = _WRITERS.get(unit.kind, Writer._plain)(self, unit, inputs, outputs)
        for proto in protos:
            self._add(proto)
        return None

    def _add(self, proto: NodeProto) -> None:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in proto.attribute}
        if proto.op_type == "Constant":
            self.taken.add(proto.output[0])
            self.network.add_parameter(proto.output[0], numpy_helper.to_array(attributes["value"]), trainable=False)
            return
        before = self.made_by.get(proto.output[0])
        name = before.name if before is not None and before.op_type == proto.op_type else None
        self.network.add_node(proto.op_type, list(proto.input), list(proto.output), name, **attributes)

    def _write_opaque(self, unit: Unit) -> None:
        node = self.opaque[dict(unit.settings)["digest"]]
        read = iter(unit.inputs)
        inputs = [self.name(next(read)) if name else "" for name in node.inputs]
        for captured, value in zip(node.captured, read, strict=True):
            if self.name(value) != captured and not self.network.has_value(captured):
                self.network.add_node("Identity", [self.name(value)], [captured])
        results = iter(unit.outputs)
        outputs = [self.name(next(results)) if name else "" for name in node.outputs]
        taken = {written.name for written in self.network.nodes}
        name = node.name if node.name not in taken else None
        attributes = dict(node.attributes)
        self.network.add_node(node.op_type, inputs, outputs, name, node.domain, **attributes)

    # -- kinds of units ---------------------------------------------------------------------------------------------
    def _plain(self, unit: Unit, inputs: list[str], outputs: list[str]) -> list[NodeProto]:
        shapes = [self.store.shape(value) for value in unit.inputs]
        return operator(unit.kind).onnx(inputs, outputs, dict(unit.settings), shapes)

    def _conv_bias(self, unit: Unit, inputs: list[str], outputs: list[str]) -> list[NodeProto]:
        shapes = [self.store.shape(value) for value in unit.inputs[:2]]
        (node,) = operator("conv").onnx(inputs[:2], outputs, dict(unit.settings), shapes)
        node.input.append(inputs[2])
        return [node]

    def _as_it_is(self, unit: Unit, inputs: list[str], outputs: list[str]) -> list[NodeProto]:
        return [helper.make_node(unit.kind.capitalize(), inputs, outputs, **dict(unit.settings))]

    def _normalize(self, unit: Unit, inputs: list[str], outputs: list[str]) -> list[NodeProto]:
        if self.training or is_open(self.store.shape(unit.inputs[1])[0]):
            middle, shape = self.fresh("gain"), self.store.shape(unit.inputs[0])
            vector = (-1,)  # as long as it is
            first = operator("gain").onnx(inputs[:2], [middle], {"axis": 1}, [shape, vector])
            return [*first, *operator("bias").onnx([middle, inputs[2]], outputs, {"axis": 1}, [shape, vector])]
        size, dtype = self.store.shape(unit.inputs[1]), self.store.dtype(unit.inputs[1])
        mean, variance = self.array(np.zeros(size, dtype)), self.array(np.ones(size, dtype))
        return [helper.make_node("BatchNormalization", [*inputs, mean, variance], outputs, epsilon=0.0)]

    def _vector(self, unit: Unit, inputs: list[str], outputs: list[str]) -> list[NodeProto]:
        """A bias or gain whose vector is constant: its shape for broadcasting is given to it beforehand."""
        (whole, vector), axis = unit.inputs, dict(unit.settings)["axis"]
        if len(self.store.shape(vector)) > 1:  # a column, which broadcasts as it is
            return [helper.make_node("Mul", inputs, outputs)]
        after = len(self.store.shape(whole)) - 1 - axis
        if not self.store.node(vector).constant or after == 0:
            return operator(unit.kind).onnx(inputs, outputs, dict(unit.settings), [self.store.shape(whole), (-1,)])
        spread = self.array(constant_array(self.store, vector, self.wide).reshape(-1, *[1] * after))
        return [helper.make_node("Add" if unit.kind == "bias" else "Mul", [inputs[0], spread], outputs)]

    def _split(self, unit: Unit, inputs: list[str], outputs: list[str]) -> list[NodeProto]:
        settings = dict(unit.settings)
        if any(map(is_open, settings["sizes"])) and not self.alone:
            raise NetworkError(f"got parts {settings['sizes']} of open sizes; expected numbers; report this")
        sizes = self.array(np.array(settings["sizes"], np.int64))
        return [helper.make_node("Split", [*inputs, sizes], outputs, axis=settings["axis"])]

    def _reshape(self, unit: Unit, inputs: list[str], outputs: list[str]) -> list[NodeProto]:
        target, whole = dict(unit.settings)["shape"], self.store.shape(unit.inputs[0])
        shape = list(target)
        places = [] if self.alone else [axis for axis, size in enumerate(shape) if is_open(size)]
        if len(places) > 1:  # 0: as it is in what is read
            stay = [axis for axis in places if axis < len(whole) and whole[axis] == shape[axis]]
            shape = [0 if axis in stay else size for axis, size in enumerate(shape)]
            places = [axis for axis in places if axis not in stay]
        follow = [axis for axis in places if shape[axis] not in self.symbols] or places[: len(places) == 1]
        if len(follow) > 1:
            for axis in range(len(whole) + 1):
                if reshaped("Flatten", whole, (axis,)) == tuple(target):
                    return [helper.make_node("Flatten", inputs, outputs, axis=axis)]
            raise NetworkError(f"got shape {shape}, of which {len(follow)} sizes follow; expected one; report this")
        ones = ones_between(whole, target) if follow else None
        if ones is not None:  # what follows from nothing where a size is 0 is no number
            axes = self.array(np.array(ones[1], np.int64))
            return [helper.make_node(ones[0], [inputs[0], axes], outputs)]
        for axis in follow:
            shape[axis] = -1
        if len(places) > len(follow):
            return self._reshape_by_inputs(inputs[0], outputs[0], shape)
        written = self.array(np.array(shape, np.int64))
        return [helper.make_node("Reshape", [inputs[0], written], outputs)]

    def _reshape_by_inputs(self, whole: str, result: str, shape: list[int]) -> list[NodeProto]:
        """Sizes that more than one symbol has are read from the inputs' shapes when the network runs."""
        nodes, parts = [], []
        for size in shape:
            if isinstance(size, Size):
                name, axis = self.symbols[size]
                part = self.fresh("size")
                nodes.append(helper.make_node("Shape", [name], [part], start=axis, end=axis + 1))
            else:
                part = self.array(np.array([size], np.int64))
            parts.append(part)
        target = self.fresh("shape")
        nodes.append(helper.make_node("Concat", parts, [target], axis=0))
        return [*nodes, helper.make_node("Reshape", [whole, target], [result])]


_WRITERS: dict[str, Any] = {
    "conv+bias": Writer._conv_bias,
    "gemm": Writer._as_it_is,
    "normalize": Writer._normalize,
    "bias": Writer._vector,
    "gain": Writer._vector,
    "concat": Writer._as_it_is,
    "split": Writer._split,
    "reshape": Writer._reshape,
}


def export_network(
    imported: Imported,
    graph: StoredGraph,
    wide: bool = False,
    names: dict[StoreValue, str] | None = None,
    whole: bool = False,
) -> Network:
    """The network that a graph is, with the inputs and outputs of the one that was imported.

    Parameters keep their names and whether they are trained; what is computed from them beforehand is named anew, and
    stays in float64 with ``wide``, for the network's twin in float64. ``names`` receives what values are called. With
    ``whole`` attention is one operator (`graph.attention`).

    Example:
        >>> from deep500.networks import create
        >>> from deep500.transformations.substitutions.graph.importing import import_network
        >>> imported = import_network(create("mlp", batch=2))
        >>> [node.op_type for node in export_network(imported, imported.graph).nodes]
        ['Reshape', 'Gemm', 'Relu', 'Gemm', 'Relu', 'Gemm']
    """
    source, network = imported.network, Network(imported.network.name)
    for name, described in source.inputs.items():
        network.add_input(name, described.shape, described.dtype)  # type: ignore[arg-type]
    outputs = dict.fromkeys(zip(graph.outputs, source.outputs, strict=True))
    permanent = {*source.inputs, *source.parameters}  # such an output keeps its name for those who read it
    known = {value: name for value, name in imported.names.items() if name in permanent or name not in source.outputs}
    for value, name in reversed(outputs):
        node = graph.store.node(value)
        if node.op != INPUT and not node.constant:
            known[value] = name
    _add_parameters(imported, graph, network)
    writer = Writer(network, graph, known, imported, wide)
    for unit in ordered(list(Units(graph)), graph.outputs):
        writer.write(unit)
    for value, name in outputs:
        if not network.has_value(name):
            network.add_node("Identity", [writer.name(value)], [name])
        network.add_output(name)
    if names is not None:
        names.update(writer.names)
    network = unstacked(network)
    # What a file declared of values behind operators that ONNX does not know stays known.
    network.declare(source.declared)
    return fused(network) if whole else network


def _add_parameters(imported: Imported, graph: StoredGraph, network: Graph) -> None:
    """Those parameters of the source that the written network reads as they are."""
    source = imported.network
    read = {value for unit in Units(graph) for value in unit.inputs} | set(graph.outputs)
    for name, parameter in source.parameters.items():
        if imported.training or (imported.values[name] in read and imported.names[imported.values[name]] == name):
            network.add_parameter(name, parameter.value, parameter.trainable)


def unit_network(graph: StoredGraph, unit: Unit, copies: int = 1) -> Graph:
    """A network that runs one unit ``copies`` times, each on inputs and constants of its own.

    Inputs are ``x0_0``, ``x0_1``, ... (copy, position); constants stay constants; outputs likewise ``y0_0``.

    Raises:
        NetworkError: the unit is opaque.

    Example:
        >>> from deep500.networks import create
        >>> from deep500.transformations.substitutions.graph.importing import import_network
        >>> imported = import_network(create("mlp", batch=2))
        >>> unit = next(unit for unit in Units(imported.graph) if unit.kind == "gemm")
        >>> [node.op_type for node in unit_network(imported.graph, unit, 2).nodes]
        ['Gemm', 'Gemm']
    """
    network, store = Graph("unit"), graph.store
    for copy in range(copies):
        writer = Writer(network, graph, {})
        for position, value in enumerate(dict.fromkeys(unit.inputs)):
            name = f"x{copy}_{position}"
            writer.names[value] = name
            if store.node(value).constant:
                network.add_parameter(name, constant_array(store, value).copy(), trainable=False)
            else:
                network.add_input(name, numbers(store.shape(value)), store.dtype(value))
        for position, value in enumerate(unit.outputs):
            writer.names[value] = f"y{copy}_{position}"
        writer.write(unit)
        for name in [writer.names[value] for value in unit.outputs]:
            network.add_output(name)
    return network
