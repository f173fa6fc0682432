"""Nodes of domain ``deep500`` that decide where gradients flow and compute nothing.

* ``StopGradient``: one input, one output, the value itself; no gradient flows through it.
* ``CustomGradient``: the inputs are ``values`` many values, ``arguments`` many arguments and some residuals, the
  outputs the values themselves. The graph ``backward`` captures nothing: it takes the gradients of the outputs, then
  the residuals, and gives the gradients of the arguments. None flows into values or residuals.

Other runtimes read both as the Identity that they are: files bring a function for each (:func:`give_functions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx import defs, helper

from deep500.errors import NetworkError
from deep500.operators.registry import DOMAIN, RESERVED

STOP, CUSTOM = "StopGradient", "CustomGradient"
OVERLOADS_SINCE = 10
"""IR version of files from which on functions of one name may differ in their number of inputs."""


def _schema(name: str, attributes: Mapping[str, Any]) -> defs.OpSchema:
    many = defs.OpSchema.FormalParameterOption.Variadic
    option = defs.OpSchema.FormalParameterOption.Single if name == STOP else many

    def formal(label: str) -> defs.OpSchema.FormalParameter:
        return defs.OpSchema.FormalParameter(label, "T", param_option=option, is_homogeneous=name == STOP, min_arity=1)

    every = defs.get_schema("Identity").type_constraints[0].allowed_type_strs
    return defs.OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[formal("X")],
        outputs=[formal("Y")],
        type_constraints=[("T", every, "any tensor")],
        attributes=[defs.OpSchema.Attribute(key, kind, "", required=True) for key, kind in attributes.items()],
    )


_Kind = defs.OpSchema.AttrType
SCHEMAS: dict[str, defs.OpSchema] = {
    STOP: _schema(STOP, {}),
    CUSTOM: _schema(CUSTOM, {"values": _Kind.INT, "arguments": _Kind.INT, "backward": _Kind.GRAPH}),
}
"""Schemas of the two, which ONNX itself does not know."""


def values_of(op_type: str, attributes: Mapping[str, Any]) -> int:
    """How many of such a node's inputs are its outputs."""
    return int(attributes["values"]) if op_type == CUSTOM else 1


def check_custom_gradient(
    where: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any], captured: Sequence[str]
) -> None:
    """Raise NetworkError unless the numbers of a ``CustomGradient`` fit together.

    Args:
        where: how the error begins.
        inputs: of the node.
        outputs: of the node.
        attributes: of the node.
        captured: what its graph reads from outside.
    """
    values, arguments, graph = attributes["values"], attributes["arguments"], attributes["backward"]
    residuals = len(inputs) - values - arguments
    if values < 1 or arguments < 1 or residuals < 0 or len(outputs) != values:
        raise NetworkError(
            f"{where}: got {values} values, {arguments} arguments, {len(inputs)} inputs and {len(outputs)} outputs; "
            "expected at least one value and one argument, both among the inputs, and an output for each value: "
            "correct the attributes values and arguments"
        )
    takes, gives = len(graph.input), len(graph.output)
    if (takes, gives) != (values + residuals, arguments) or captured:
        captures = f" that captures {captured[0]!r}" if captured else ""
        raise NetworkError(
            f"{where}: got a backward graph of {takes} inputs and {gives} outputs{captures}; expected {values} output "
            f"gradients and {residuals} residuals as its inputs, {arguments} gradients as its outputs, and nothing "
            "captured: pass what it reads as residuals"
        )


def _functions(nodes: Iterable[onnx.NodeProto], version: onnx.OperatorSetIdProto) -> Iterator[onnx.FunctionProto]:
    """One Identity for each number of inputs; nodes of ``CustomGradient`` are given the overload that names theirs."""
    written = set()
    for node in nodes:
        values = next((a.i for a in node.attribute if a.name == "values"), 1)
        if node.op_type == CUSTOM:
            node.overload = f"{values}_of_{len(node.input)}"
        if (node.op_type, node.overload) in written:
            continue
        written.add((node.op_type, node.overload))
        inputs, outputs = [f"x{i}" for i in range(len(node.input))], [f"y{i}" for i in range(values)]
        same = [helper.make_node("Identity", [x], [y]) for x, y in zip(inputs, outputs, strict=False)]
        keys = [attribute.name for attribute in node.attribute]
        function = helper.make_function(DOMAIN, node.op_type, inputs, outputs, same, [version], keys)
        function.overload = node.overload
        yield function


def is_flow(node: Any) -> bool:
    """Whether a node, or ONNX's message of one, is one of the two."""
    return node.domain == DOMAIN and node.op_type in RESERVED


def gives_gradient(node: Any) -> bool:
    """Whether a node is a ``CustomGradient``."""
    return node.domain == DOMAIN and node.op_type == CUSTOM


def _every_flow_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Those of a graph and of the graphs in it."""
    for node in graph.node:
        if is_flow(node):
            yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _every_flow_node(attribute.g)


def give_functions(model: onnx.ModelProto) -> None:
    """Let other runtimes read a model's ``StopGradient`` and ``CustomGradient`` nodes; in place."""
    version = next(imported for imported in model.opset_import if imported.domain == "")
    model.functions.extend(_functions(_every_flow_node(model.graph), version))
    if model.functions:
        model.ir_version = max(model.ir_version, OVERLOADS_SINCE)


def take_functions(model: onnx.ModelProto) -> None:
    """Undo :func:`give_functions`, so that the nodes are not written out as Identities; in place."""
    others = [function for function in model.functions if function.domain != DOMAIN or function.name not in RESERVED]
    if len(others) < len(model.functions):
        del model.functions[:]
        model.functions.extend(others)
    for node in _every_flow_node(model.graph):
        node.ClearField("overload")
