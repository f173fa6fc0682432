"""Nodes of a network and their agreement with ONNX's operator schemas, which are the only operator specification.

Domains without schemas (custom operators) are taken as they are: their plugins check them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from deep500.errors import NetworkError, nearest

OPSET = onnx.defs.onnx_opset_version()
"""The one opset of networks in memory: the newest that the installed ``onnx`` knows."""

_AttrType = onnx.defs.OpSchema.AttrType
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


@dataclass(frozen=True)
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
        object.__setattr__(self, "attributes", MappingProxyType(dict(self.attributes)))

    @property
    def reads(self) -> tuple[str, ...]:
        """Values that must exist before the node runs: its inputs and what its sub-graphs capture."""
        captured = [n for v in self.attributes.values() if isinstance(v, onnx.GraphProto) for n in captures(v)]
        return (*(n for n in self.inputs if n), *captured)

    @property
    def writes(self) -> tuple[str, ...]:
        """Values that the node produces."""
        return tuple(n for n in self.outputs if n)

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

    def __str__(self) -> str:
        kind = f"{self.domain}.{self.op_type}" if self.domain else self.op_type
        return f"{', '.join(self.outputs)} = {kind}({', '.join(self.inputs)})  # {self.name}"


def captures(graph: onnx.GraphProto) -> list[str]:
    """Names that a sub-graph reads from the graph around it, in order of first use."""
    known = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    found: dict[str, None] = {}
    for node in graph.node:
        inner = [n for a in node.attribute if a.type == onnx.AttributeProto.GRAPH for n in captures(a.g)]
        for name in (*node.input, *inner):
            if name and name not in known:
                found[name] = None
        known.update(node.output)
    found.update({v.name: None for v in graph.output if v.name not in known})
    return list(found)


def decode(value: Any) -> Any:
    """An attribute value as ONNX stores it, in Python's own terms (bytes to str, TensorProto to array, list to tuple)."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="surrogateescape")
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, (str, onnx.GraphProto, np.ndarray)) or not isinstance(value, Sequence):
        return value
    return tuple(decode(v) for v in value)


def find_schema(op_type: str, domain: str = "") -> onnx.defs.OpSchema | None:
    """The operator's schema at :data:`OPSET` (newest version in other domains), None if ONNX has none."""
    try:
        return onnx.defs.get_schema(op_type, OPSET, domain) if not domain else onnx.defs.get_schema(op_type, domain)
    except onnx.defs.SchemaError:
        return None


def check_node(node: Node) -> None:
    """Raise :class:`NetworkError` unless the node agrees with its schema in operator name, arity and attributes."""
    schema = find_schema(node.op_type, node.domain)
    where = f"node {node.name!r} ({node.op_type})"
    if schema is None:
        if node.domain in ("", "ai.onnx"):
            names = {s.name for s in onnx.defs.get_all_schemas() if s.domain == node.domain}
            raise NetworkError(
                f"node {node.name!r}: got operator {node.op_type!r}; expected one of ONNX opset {OPSET}: "
                f"{nearest(node.op_type, sorted(names))} For a custom operator give its domain=..."
            )
        return
    if schema.deprecated:
        raise NetworkError(
            f"{where}: got an operator that ONNX removed; expected a current one of opset {OPSET}: use its successor"
        )
    _check_arity(where, "inputs", node.inputs, schema.min_input, schema.max_input, schema.inputs)
    _check_arity(where, "outputs", node.outputs, schema.min_output, schema.max_output, schema.outputs)
    _check_attributes(where, node.attributes, schema)


def _check_arity(where: str, what: str, names: tuple[str, ...], low: int, high: int, formal: Any) -> None:
    if not low <= len(names) <= high:
        expected = f"{low}" if low == high else f"{low} to {high}" if high < 2**31 - 1 else f"at least {low}"
        raise NetworkError(
            f"{where}: got {len(names)} {what}; expected {expected} ({', '.join(f.name for f in formal)}): "
            "give the missing ones, '' for an optional one"
        )
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for name, declared in zip(names, formal, strict=False):
        if what == "inputs" and not name and declared.option == single:
            raise NetworkError(
                f"{where}: got '' for input {declared.name!r}; expected a value, it is not optional: name one"
            )


def _check_attributes(where: str, attributes: Mapping[str, Any], schema: onnx.defs.OpSchema) -> None:
    for name, value in attributes.items():
        if name not in schema.attributes:
            raise NetworkError(
                f"{where}: got attribute {name!r}; expected one of the operator's: {nearest(name, schema.attributes)}"
            )
        fits = _ATTRIBUTE_KINDS.get(schema.attributes[name].type)
        if fits is not None and not fits(value):
            kind = schema.attributes[name].type.name.lower()
            raise NetworkError(f"{where}: got {name}={value!r}; expected a value of kind {kind}: convert it")
    missing = [n for n, a in schema.attributes.items() if a.required and n not in attributes]
    if missing:
        raise NetworkError(
            f"{where}: got no attribute {missing[0]!r}; expected one, it is required: pass {missing[0]}=..."
        )
