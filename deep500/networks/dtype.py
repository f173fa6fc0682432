"""`to_dtype`: a copy of a network in another floating-point precision, such as float64 for tests of correctness."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from deep500.networks.drawing import check_drawn
from deep500.networks.graph import AnyGraph
from deep500.networks.node import Node, decode, find_schema, from_proto
from deep500.networks.protos import node_proto
from deep500.tensors import dtype_to_onnx

_TYPED = {"to", "dtype", "stash_type", "output_dtype"}  # attributes that hold ONNX's number of a dtype


def to_dtype(network: AnyGraph, dtype: str, source: str = "float32") -> AnyGraph:
    """A copy with every input, parameter and tensor attribute of dtype ``source`` turned into ``dtype``.

    So are those of sub-graphs, where values are cast back before an operator that takes ``source`` only.

    What an operator's schema fixes stays as it is, for instance the float32 scales of Resize. Random initial weights
    are those of the original, rounded if the new precision is lower.

    Example:
        >>> from deep500.networks.zoo import create
        >>> to_dtype(create("mlp"), "float64").descriptors()["output"].dtype
        'float64'
    """
    check_drawn(network, f"a copy in {dtype}")
    copy = network.copy()
    fixed = {name for node in copy.nodes for name in fixed_inputs(node, dtype)}
    for name, parameter in copy.parameters.items():
        if str(parameter.value.dtype) == source and name not in fixed:
            copy.put_parameters({name: replace(parameter, value=parameter.value.astype(np.dtype(dtype)))})
    for name, described in copy.inputs.items():
        if described.dtype == source and name not in fixed:
            copy.set_input(name, described.shape, dtype)
    copy.set_nodes(_converted(node, dtype, source) for node in copy.nodes)
    copy.declare({n: replace(d, dtype=dtype) for n, d in copy.declared.items() if d.dtype == source})
    return copy


def fixed_inputs(node: Node, dtype: str) -> list[str]:
    """Inputs whose schema does not allow ``dtype``."""
    return [name for name, types in _allowed(node) if _type(dtype) not in types]


def _allowed(node: Node) -> list[tuple[str, Collection[str]]]:
    """The inputs of a node with the types that its schema allows."""
    schema = find_schema(node.op_type, node.domain)
    if schema is None:
        return []
    formal = list(schema.inputs)
    formal += formal[-1:] * (len(node.inputs) - len(formal))  # the last may be variadic
    return [(name, declared.types) for name, declared in zip(node.inputs, formal, strict=False) if name]


def _type(dtype: str) -> str:
    name = {"float64": "double", "float32": "float"}.get(dtype, dtype)
    return f"tensor({name})"


def _converted(node: Node, dtype: str, source: str) -> Node:
    changed = {key: _convert(key, value, dtype, source) for key, value in node.attributes.items()}
    if node.op_type == "ConstantOfShape" and not changed and source == "float32":
        changed = {"value": np.zeros(1, np.dtype(dtype))}  # what is absent means zeros in float32
    return replace(node, attributes=changed)


def _convert(key: str, value: Any, dtype: str, source: str) -> Any:
    if isinstance(value, np.ndarray) and str(value.dtype) == source:
        return value.astype(np.dtype(dtype))
    if isinstance(value, onnx.GraphProto):
        return _sub_graph(value, dtype, source)
    if key in _TYPED and value == dtype_to_onnx(source):
        return dtype_to_onnx(dtype)
    return value


def _sub_graph(graph: onnx.GraphProto, dtype: str, source: str) -> onnx.GraphProto:
    new, old_type = onnx.GraphProto(), dtype_to_onnx(source)
    new.CopyFrom(graph)
    for tensor in new.initializer:
        if tensor.data_type == old_type:
            tensor.CopyFrom(onnx.numpy_helper.from_array(_convert("", decode(tensor), dtype, source), tensor.name))
    for value in (*new.input, *new.output, *new.value_info):
        holder = value.type
        while holder.HasField("sequence_type") or holder.HasField("optional_type"):
            holder = (holder.sequence_type if holder.HasField("sequence_type") else holder.optional_type).elem_type
        if holder.tensor_type.elem_type == old_type:
            holder.tensor_type.elem_type = dtype_to_onnx(dtype)
    del new.node[:]
    for proto in graph.node:
        node = _converted(from_proto(proto), dtype, source)
        narrow = [n for n, types in _allowed(node) if _type(dtype) not in types and _type(source) in types]
        renamed = {name: f"{name} in {source} for {node.writes[0]}" for name in dict.fromkeys(narrow)}
        for name, cast in renamed.items():
            new.node.append(onnx.helper.make_node("Cast", [name], [cast], to=old_type))
        new.node.append(node_proto(replace(node, inputs=tuple(renamed.get(n, n) for n in node.inputs))))
    return new
