"""Division of whole numbers that ends the process: the least int64 by -1, which the processor traps.

ONNX Runtime divides as C does, where that quotient is undefined. Here it wraps around, as in NumPy: the least number
again, with nothing left over. So a divisor that may be -1 is replaced by 1 where it is, and the quotient by the negated
dividend. Division by zero stays an error of ONNX Runtime's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

TRAPPED = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
"""Types of elements whose division by -1 may trap; narrower ones are divided as int32, whose quotient fits."""
_UNKNOWN = onnx.TensorProto.UNDEFINED
_Lookup = Callable[[str], int]


def guard_division(graph: onnx.GraphProto, opset: int) -> None:
    """Rewrite every such Div and Mod of a graph and its sub-graphs, unless the divisor is a constant without -1."""
    if any(node.op_type in ("Div", "Mod") for node in _every(graph)):
        _guard(graph, opset, lambda name: _UNKNOWN, lambda name: None)


def _every(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _every(attribute.g)


def _guard(
    graph: onnx.GraphProto, opset: int, outer: _Lookup, outer_value: Callable[[str], onnx.TensorProto | None]
) -> None:
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)}
    values = {tensor.name: tensor for tensor in graph.initializer}
    types |= {name: tensor.data_type for name, tensor in values.items()}
    producers = {name: node for node in graph.node for name in node.output}

    def type_of(name: str) -> int:
        if name not in types:
            types[name] = _UNKNOWN  # until it is known, which also ends what would go in a circle
            types[name] = _type(producers[name], name, opset, type_of) if name in producers else outer(name)
        return types[name]

    def value_of(name: str) -> onnx.TensorProto | None:
        node = producers.get(name)
        if node is not None:
            return node.attribute[0].t if node.op_type == "Constant" and node.attribute[0].name == "value" else None
        return values[name] if name in values else outer_value(name)

    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _guard(attribute.g, opset, type_of, value_of)
        floored = node.op_type == "Mod" and not any(a.name == "fmod" and a.i for a in node.attribute)
        if node.domain or not (node.op_type == "Div" or floored) or _harmless(value_of(node.input[1])):
            nodes.append(node)
            continue
        kind = next((k for k in map(type_of, node.input) if k != _UNKNOWN), _UNKNOWN)
        nodes.extend(_guarded(node, kind) if kind in TRAPPED else [node])
    del graph.node[:]
    graph.node.extend(nodes)


def _harmless(divisor: onnx.TensorProto | None) -> bool:
    if divisor is None or divisor.external_data:
        return False
    return divisor.data_type not in TRAPPED or not (numpy_helper.to_array(divisor) == -1).any()


def _guarded(node: onnx.NodeProto, kind: int) -> list[onnx.NodeProto]:
    (a, b), name = node.input, node.output[0]
    names = {key: f"{name}/{key}" for key in ("minus one", "one", "turns", "divisor", "negated", "quotient")}
    dtype = helper.tensor_dtype_to_np_dtype(kind)

    def constant(key: str, value: int) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [names[key]], value=numpy_helper.from_array(np.array(value, dtype)))

    nodes = [
        constant("minus one", -1),
        constant("one", 1),
        helper.make_node("Equal", [b, names["minus one"]], [names["turns"]]),
        helper.make_node("Where", [names["turns"], names["one"], b], [names["divisor"]]),
    ]
    guarded = onnx.NodeProto()
    guarded.CopyFrom(node)
    guarded.input[1] = names["divisor"]
    if node.op_type == "Mod":
        return [*nodes, guarded]
    guarded.output[0] = names["quotient"]
    return [
        *nodes,
        guarded,
        helper.make_node("Neg", [a], [names["negated"]]),
        helper.make_node("Where", [names["turns"], names["negated"], names["quotient"]], [name]),
    ]


def _type(node: onnx.NodeProto, name: str, opset: int, type_of: _Lookup) -> int:
    """Type of the elements of a node's output, by what the operator's schema says of it."""
    attributes: Mapping[str, onnx.AttributeProto] = {attribute.name: attribute for attribute in node.attribute}
    if node.op_type in ("Cast", "EyeLike", "RandomNormal", "RandomUniform", "Multinomial"):
        chosen = attributes.get("to", attributes.get("dtype"))
        return chosen.i if chosen is not None else _UNKNOWN
    if node.op_type in ("Constant", "ConstantOfShape"):
        return attributes["value"].t.data_type if "value" in attributes else _UNKNOWN
    if node.op_type in ("If", "Loop", "Scan"):
        return _type_of_body(node, name, type_of)
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return _UNKNOWN
    index = min(list(node.output).index(name), len(schema.outputs) - 1)
    declared = schema.outputs[index].type_str
    if declared.startswith("tensor("):
        return onnx.TensorProto.DataType.Value(declared[7:-1].upper())
    for i, operand in enumerate(node.input):
        if operand and schema.inputs and schema.inputs[min(i, len(schema.inputs) - 1)].type_str == declared:
            return type_of(operand)
    return _UNKNOWN


def _type_of_body(node: onnx.NodeProto, name: str, type_of: _Lookup) -> int:
    """Of an output of If, Loop or Scan: what the body declares for it, else the state that it starts with."""
    index = list(node.output).index(name)
    bodies = [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]
    shift = 1 if node.op_type == "Loop" else 0  # a loop's body gives its condition first
    for body in bodies:
        declared = body.output[index + shift].type.tensor_type.elem_type if len(body.output) > index + shift else 0
        if declared:
            return declared
    first = {"Loop": 2, "Scan": 0, "If": len(node.input)}[node.op_type]
    return type_of(node.input[index + first]) if index + first < len(node.input) else _UNKNOWN
