"""Nodes of a network and their agreement with ONNX's operator schemas, which are the only operator specification.

Domains without schemas (custom operators) are taken as they are: their plugins check them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from deep500.errors import NetworkError, nearest
from deep500.networks import flow
from deep500.operators.registry import DOMAIN

OPSET = onnx.defs.onnx_opset_version()
"""The one opset of networks in memory: the newest that the installed ``onnx`` knows."""

EXACT = "float64"
"""Says of an array in a file that it is a custom operator's number, or numbers, of 64 bits: ONNX's own have 32."""

RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators of ONNX that draw random numbers: run again, or in another order, they would draw others."""

_AttrType = onnx.defs.OpSchema.AttrType
_Option = onnx.defs.OpSchema.FormalParameterOption
_ATTRIBUTE_KINDS: dict[Any, Any] = {
    _AttrType.INT: lambda v: isinstance(v, (int, np.integer)),
    _AttrType.FLOAT: lambda v: isinstance(v, (int, float, np.number)),
    _AttrType.STRING: lambda v: isinstance(v, (str, bytes)),
    _AttrType.INTS: lambda v: _is_list(v) and all(isinstance(i, (int, np.integer)) for i in v),
    _AttrType.FLOATS: lambda v: _is_list(v) and all(isinstance(i, (int, float, np.number)) for i in v),
    _AttrType.STRINGS: lambda v: _is_list(v) and all(isinstance(i, (str, bytes)) for i in v),
}


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray))


@dataclass(frozen=True, eq=False)
class Node:
    """One operator application. ``""`` among the inputs or outputs is an optional one that is left out.

    Attributes hold Python values: numbers, strings, tuples of them, NumPy arrays for tensors, ``onnx.GraphProto`` for
    the bodies of If, Loop and Scan.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "domain", "" if self.domain == "ai.onnx" else self.domain)
        frozen = {name: _freeze(value) for name, value in self.attributes.items()}
        if self.op_type == "Transpose" and not self.domain and frozen.get("perm"):
            # some exporters count axes from the end, which ONNX leaves open: the only axes without a rank beside them
            frozen["perm"] = tuple(axis + len(frozen["perm"]) * (axis < 0) for axis in frozen["perm"])
        object.__setattr__(self, "attributes", MappingProxyType(frozen))

    @cached_property
    def captured(self) -> tuple[str, ...]:
        """Values that its sub-graphs read from the network around."""
        return tuple(n for graph in self.graphs for n in captures(graph))

    @cached_property
    def defines(self) -> tuple[str, ...]:
        """Values that its sub-graphs define for themselves."""
        return tuple(n for graph in self.graphs for n in defined(graph))

    @cached_property
    def graphs(self) -> tuple[onnx.GraphProto, ...]:
        """Its sub-graphs, in the order of the attributes' names."""
        return tuple(v for _, v in sorted(self.attributes.items()) if isinstance(v, onnx.GraphProto))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Values that must exist before the node runs: its inputs and what its sub-graphs capture."""
        return (*(n for n in self.inputs if n), *self.captured)

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Values that the node produces."""
        return tuple(n for n in self.outputs if n)

    @property
    def is_random(self) -> bool:
        """Whether the node itself draws random numbers (see :data:`RANDOM`); its sub-graphs do not count."""
        return not self.domain and self.op_type in RANDOM

    def attribute(self, name: str, default: Any = None) -> Any:
        """The attribute's value, else the schema's default, else ``default``."""
        if name in self.attributes:
            return self.attributes[name]
        schema = find_schema(self.op_type, self.domain)
        declared = schema.attributes.get(name) if schema else None
        if declared is not None and declared.default_value.type:
            return decode(onnx.helper.get_attribute_value(declared.default_value))
        return default

    def all_attributes(self) -> dict[str, Any]:
        """Every attribute with a value: the node's own over the schema's defaults."""
        schema = find_schema(self.op_type, self.domain)
        defaults = {n: self.attribute(n) for n in (schema.attributes if schema else ())}
        return {**{n: v for n, v in defaults.items() if v is not None}, **self.attributes}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        names = self.attributes.keys() == other.attributes.keys()
        return (
            self._key == other._key and names and all(_same(v, other.attributes[n]) for n, v in self.attributes.items())
        )

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        return self.op_type, self.inputs, self.outputs, self.name, self.domain

    def __str__(self) -> str:
        kind = f"{self.domain}.{self.op_type}" if self.domain else self.op_type
        return f"{', '.join(self.outputs)} = {kind}({', '.join(self.inputs)})  # {self.name}"


def _same(left: Any, right: Any) -> bool:
    """Whether two attribute values are equal, in type too."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return type(left) is type(right) and bool(left == right)


def _freeze(value: Any) -> Any:
    """A value that the caller cannot change any more: lists become tuples, arrays and graphs are copied."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.copy()
        value.flags.writeable = False
    elif isinstance(value, onnx.GraphProto):
        graph = onnx.GraphProto()
        graph.CopyFrom(value)
        return graph
    return value


_PLAIN_KINDS = frozenset(
    getattr(onnx.AttributeProto, kind) for kind in ("FLOAT", "INT", "STRING", "TENSOR", "FLOATS", "INTS", "STRINGS")
)


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The sub-graphs of a node; asks before it touches a field, for messages are made by being touched.

    An attribute that says it is something else, and holds a graph all the same, is refused by ONNX's checker.
    """
    for attribute in node.attribute:
        if attribute.type in _PLAIN_KINDS:
            continue
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def defined(graph: onnx.GraphProto) -> list[str]:
    """Names that a sub-graph, and those within it, define."""
    names = (
        [v.name for v in graph.input] + [t.name for t in graph.initializer] + [o for n in graph.node for o in n.output]
    )
    inner = [
        n for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH for n in defined(a.g)
    ]
    return [n for n in (*names, *inner) if n]


def captures(graph: onnx.GraphProto) -> list[str]:
    """Names that a sub-graph reads from the graph around it, in order of first use."""
    known = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    captured: dict[str, None] = {}
    for node in graph.node:
        inner = [n for a in node.attribute if a.type == onnx.AttributeProto.GRAPH for n in captures(a.g)]
        for name in (*node.input, *inner):
            if name and name not in known:
                captured[name] = None
        known.update(node.output)
    captured.update({v.name: None for v in graph.output if v.name not in known})
    return list(captured)


def rename_captures(value: Any, rename: Any) -> Any:
    """A sub-graph whose captured names follow the renaming; other attributes as they are."""
    if not isinstance(value, onnx.GraphProto):
        return value
    graph = onnx.GraphProto()
    graph.CopyFrom(value)
    names = {n: rename(n) for n in captures(value)}
    _rename_in(graph, names)
    return graph


def _rename_in(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    hidden = {v.name for v in graph.input} | {o for n in graph.node for o in n.output}
    inner = {old: new for old, new in names.items() if old not in hidden}
    for proto in graph.node:
        proto.input[:] = [inner.get(n, n) for n in proto.input]
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename_in(attribute.g, inner)
    for value in graph.output:
        value.name = inner.get(value.name, value.name)


def decode(value: Any) -> Any:
    """An attribute value as ONNX stores it, in Python's terms: str, tuple, array for bytes, list, TensorProto."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="surrogateescape")
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, (str, onnx.GraphProto, np.ndarray)) or not isinstance(value, Sequence):
        return value
    return tuple(decode(v) for v in value)


@cache
def find_schema(op_type: str, domain: str = "") -> onnx.defs.OpSchema | None:
    """The operator's schema at :data:`OPSET` (newest version in other domains), None if there is none.

    Custom operators have none, although shape inference gives them some for a moment.
    """
    if domain == DOMAIN:
        return flow.SCHEMAS.get(op_type)
    try:
        return onnx.defs.get_schema(op_type, OPSET, domain) if not domain else onnx.defs.get_schema(op_type, domain)
    except onnx.defs.SchemaError:
        return None


@lru_cache(maxsize=1)
def _operators() -> dict[str, list[str]]:
    """Names of ONNX's operators by domain."""
    names: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain != DOMAIN:  # shape inference enters some for a moment
            names.setdefault(schema.domain, set()).add(schema.name)
    return {domain: sorted(operators) for domain, operators in names.items()}


def most_outputs(op_type: str, domain: str = "") -> int:
    """How many outputs an operator may have; any number if ONNX does not know it."""
    schema = find_schema(op_type, domain)
    return schema.max_output if schema else 2**31 - 1


def first_variadic(op_type: str, domain: str = "") -> int:
    """Index of the first input of a variadic list (0 for unknown operators, beyond all if there is none)."""
    schema = find_schema(op_type, domain)
    if schema is None:
        return 0
    return next((i for i, formal in enumerate(schema.inputs) if formal.option == _Option.Variadic), 2**31 - 1)


def check_node(node: Node) -> None:
    """Raise :class:`NetworkError` unless the node and those of its sub-graphs agree with their schemas.

    Checked are the operator's name, the number of inputs and outputs, and the attributes.
    """
    schema = find_schema(node.op_type, node.domain)
    where = f"node {node.name!r} ({node.op_type})"
    if not node.writes:
        raise NetworkError(f"{where}: got no output; expected at least one: name it")
    for graph in node.graphs:
        for inner in graph.node:
            check_node(from_proto(inner))
    if schema is None:
        if node.domain in _operators():
            raise NetworkError(
                f"node {node.name!r}: got operator {node.op_type!r}; expected one of ONNX opset {OPSET}: "
                f"{nearest(node.op_type, _operators()[node.domain])} For a custom operator give its domain=..."
            )
        return
    if schema.deprecated:
        raise NetworkError(
            f"{where}: got an operator that ONNX removed; expected a current one of opset {OPSET}: use its successor"
        )
    _check_arity(f"{where}: got %s inputs", node.inputs, schema.min_input, schema.max_input, schema.inputs)
    _check_arity(f"{where}: got %s outputs", node.outputs, schema.min_output, schema.max_output, schema.outputs)
    if "" in node.inputs and "" in node.inputs[first_variadic(node.op_type, node.domain) :]:
        raise NetworkError(f"{where}: got '' in a list of inputs; expected values, none is optional: leave it out")
    _check_attributes(where, node.attributes, schema)
    if node.domain == DOMAIN and node.op_type == flow.CUSTOM:
        flow.check_custom_gradient(where, node.inputs, node.outputs, node.attributes, node.captured)
    if not node.domain:
        from deep500.networks.settings import check_settings  # for who adds nodes, not for who reads a graph

        check_settings(where, node.op_type, node.attributes, len(node.inputs), len(node.outputs))


def from_proto(proto: onnx.NodeProto, name: str | None = None) -> Node:
    """ONNX's message as a node, by default under its own name."""
    attributes = {a.name: decode(onnx.helper.get_attribute_value(a)) for a in proto.attribute}
    for exact in (a for a in proto.attribute if a.doc_string == EXACT and a.HasField("t")):
        attributes[exact.name] = onnx.numpy_helper.to_array(exact.t).tolist()
    return Node(
        proto.op_type,
        tuple(proto.input),
        tuple(proto.output),
        proto.name if name is None else name,
        proto.domain,
        attributes,
    )


def _check_arity(got: str, names: tuple[str, ...], low: int, high: int, formal: Any) -> None:
    """``got`` is the message's beginning with ``%s`` where the number or the empty name goes."""
    if not low <= len(names) <= high:
        expected = f"{low}" if low == high else f"{low} to {high}" if high < 2**31 - 1 else f"at least {low}"
        raise NetworkError(
            f"{got % len(names)}; expected {expected} ({', '.join(f.name for f in formal)}): "
            "give the missing ones, '' for an optional one"
        )
    for name, declared in zip(names, formal, strict=False):
        if not name and declared.option == _Option.Single:
            raise NetworkError(
                f"{got % repr('')} for {declared.name!r}; expected a value, it is not optional: name one"
            )


def _check_attributes(where: str, attributes: Mapping[str, Any], schema: onnx.defs.OpSchema) -> None:
    for name, value in attributes.items():
        if name not in schema.attributes:
            raise NetworkError(
                f"{where}: got attribute {name!r}; expected one of the operator's: {nearest(name, schema.attributes)}"
            )
        fits = _ATTRIBUTE_KINDS.get(schema.attributes[name].type)
        if fits is not None and not fits(value):
            kind = str(schema.attributes[name].type).rpartition(".")[2].lower()
            raise NetworkError(f"{where}: got {name}={value!r}; expected a value of kind {kind}: convert it")
    missing = [n for n, a in schema.attributes.items() if a.required and n not in attributes]
    if missing:
        raise NetworkError(
            f"{where}: got no attribute {missing[0]!r}; expected one, it is required: pass {missing[0]}=..."
        )
