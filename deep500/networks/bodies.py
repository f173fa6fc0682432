"""Function bodies: what ONNX's schema says that an operator is, in other operators.

Backends run them where they have no kernel, and gradients pass through them where there is no rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, inliner, numpy_helper, version_converter

from deep500.errors import NetworkError, UnsupportedOperator
from deep500.networks.node import OPSET, Node, find_schema, from_proto, rename_captures
from deep500.networks.protos import UNKNOWN, node_proto, tensor_proto, type_proto, value_info
from deep500.tensors import TensorDescriptor

Descriptors = Mapping[str, TensorDescriptor]


def expand(node: Node, descriptors: Descriptors) -> list[Node] | None:
    """The body that the operator's schema gives it, as nodes with names of their own; None if it has none."""
    function = _function(node, descriptors)
    if function is None:
        return None
    node = replace(node, attributes=node.all_attributes())  # bodies refer to attributes, also to those left out
    proto = node_proto(node)
    proto.domain, proto.op_type = function.domain, function.name
    graph = onnx.GraphProto(name="body", node=[proto])
    graph.input.extend(value_info(n, descriptors.get(n, UNKNOWN)) for n in dict.fromkeys(node.reads))
    graph.output.extend(value_info(n, descriptors.get(n, UNKNOWN)) for n in node.writes)
    model = helper.make_model(
        graph,
        functions=[function],
        opset_imports=[*function.opset_import, helper.make_operatorsetid(function.domain, 1)],
    )
    try:
        body = _at_newest(inliner.inline_local_functions(model))
    except (RuntimeError, version_converter.ConvertError) as error:  # a body of a case that ONNX did not think of
        raise UnsupportedOperator(
            f"node {node.name!r} ({node.op_type}): got attributes or inputs for which ONNX's own body is not sound "
            f"({error}); expected those that the operator describes: check the node"
        ) from error
    names = {n: n for n in (*node.inputs, *node.outputs)}
    prefix = f"{node.name}/"
    if computes_in_float64(node, descriptors):
        body = in_float64(body)
    nodes = [from_proto(proto, proto.name or f"{prefix}{i}") for i, proto in enumerate(body)]
    return [_renamed(n, lambda v: names.get(v, prefix + v) if v else v) for n in nodes]


def _function(node: Node, descriptors: Descriptors) -> onnx.FunctionProto | None:
    """The schema's body for this node as a function of a domain of its own."""
    schema = find_schema(node.op_type, node.domain)
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        return None
    if schema.has_function:
        data = schema.get_function_with_opset_version(max(schema.function_opset_versions))
    else:
        types = [type_proto(descriptors.get(n, UNKNOWN)).SerializeToString() if n else b"" for n in node.inputs]
        version = max(schema.context_dependent_function_opset_versions)
        try:
            data = schema.get_context_dependent_function_with_opset_version(
                version, node_proto(node).SerializeToString(), types
            )
        except (ValueError, RuntimeError) as error:  # types that the body cannot be written for
            raise NetworkError(
                f"node {node.name!r} ({node.op_type}): got {error}; expected operands of its types: check what it reads"
            ) from error
    function = onnx.FunctionProto()
    function.ParseFromString(data)
    if not function.node:
        return None
    function.domain = "deep500.bodies"
    return function


def _at_newest(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Bodies are written for the opset at which they entered ONNX; bring them up to ours."""
    if all(o.version == OPSET for o in model.opset_import if o.domain in ("", "ai.onnx")):
        return list(model.graph.node)
    return list(version_converter.convert_version(model, OPSET).graph.node)


def _renamed(node: Node, rename: Any) -> Node:
    return replace(
        node,
        name=node.name,
        inputs=tuple(rename(v) for v in node.inputs),
        outputs=tuple(rename(v) for v in node.outputs),
        attributes={k: rename_captures(v, rename) for k, v in node.attributes.items()},
    )


def in_float64(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """A function body for operands in float64: its literals, and what ``stash_type`` makes it compute in, are float32.

    Example:
        >>> cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
        >>> [node.attribute[0].i == TensorProto.DOUBLE for node in in_float64([cast])]
        [True]
    """
    wide = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for attribute in copy.attribute:
            if attribute.type == AttributeProto.GRAPH:
                inner = in_float64(attribute.g.node)
                del attribute.g.node[:]
                attribute.g.node.extend(inner)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
            elif node.op_type in ("Constant", "ConstantOfShape"):
                _widen(attribute)
        wide.append(copy)
    return wide


def _widen(attribute: AttributeProto) -> None:
    """A literal in float64, with the value that it has in float32."""
    if attribute.name == "value" and attribute.t.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(attribute.t)
    elif attribute.name in ("value_float", "value_floats"):
        array = np.array(attribute.f if attribute.name == "value_float" else attribute.floats, np.float32)
    else:
        return
    attribute.CopyFrom(helper.make_attribute("value", tensor_proto(array.astype(np.float64))))


def computes_in_float64(node: Node, descriptors: Mapping[str, TensorDescriptor]) -> bool:
    """Whether the floating operands of a node are all in float64, and there are some, or it is told to give float64.

    Example:
        >>> from deep500.networks import Node
        >>> computes_in_float64(Node("Mish", ("x",), ("y",), "n"), {"x": TensorDescriptor("float64", (2,))})
        True
    """
    if node.attributes.get("output_datatype") == TensorProto.DOUBLE:
        return True
    kinds = {descriptors.get(name, UNKNOWN).dtype or "" for name in node.inputs if name}
    return {kind for kind in kinds if "float" in kind or not kind} == {"float64"}
