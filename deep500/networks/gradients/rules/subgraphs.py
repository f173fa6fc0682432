"""Sub-graphs of If, Loop and Scan as networks that can be differentiated, and what comes of them as sub-graphs again.

A body runs again in the backward pass: what it computes inside is not kept, what it draws at random would differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx
from onnx import numpy_helper

from deep500.networks.emit import Emitter
from deep500.networks.gradients.rules.context import GradContext
from deep500.networks.graph import Graph
from deep500.networks.node import captures, defined, from_proto
from deep500.networks.protos import descriptor_of, graph_proto, value_info
from deep500.tensors import TensorDescriptor


def open_body(g: GradContext, graph: onnx.GraphProto, known: Sequence[TensorDescriptor]) -> Graph:
    """The sub-graph as a network whose inputs are its own and what it captures; captured constants are parameters.

    Args:
        g: of the node that has the sub-graph; refuses bodies that draw random numbers.
        graph: stays as it is.
        known: what is known of its inputs from outside; what is not is taken from their declarations.
    """
    body = Graph(graph.name or "body")
    for value, outside in zip(graph.input, known, strict=True):
        declared = descriptor_of(value.type)
        shape = declared.shape if outside.shape is None else outside.shape
        _add_input(g, body, value.name, TensorDescriptor(outside.dtype or declared.dtype, shape))
    for name in captures(graph):
        constant = g.known(name)
        if constant is None:
            _add_input(g, body, name, g.describe(name))
        else:
            body.add_parameter(name, constant, trainable=False)
    for tensor in graph.initializer:
        body.add_parameter(tensor.name, numpy_helper.to_array(tensor), trainable=False)
    for proto in graph.node:
        node = from_proto(proto)
        if node.is_random:
            g.refuse(f"its sub-graph draws random numbers ({node.op_type}), and would draw others when it runs again")
        body.add_node(node.op_type, node.inputs, node.outputs, domain=node.domain, **node.attributes)
    return body


def _add_input(g: GradContext, body: Graph, name: str, described: TensorDescriptor) -> None:
    if described.dtype is None or "(" in described.dtype:
        g.refuse(f"its sub-graph reads {name!r} of dtype {described.dtype or 'unknown'}; tensors of known dtype pass")
    body.add_input(name, described.shape, described.dtype)


def add_up(body: Graph, parts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """One seed per value where some have several: the outputs of a body may name a value twice."""
    emit = Emitter(body, "grad/")
    return {value: seeds[0] if len(seeds) == 1 else emit("Sum", *seeds) for value, seeds in parts.items()}


def close_body(
    g: GradContext,
    body: Graph,
    inputs: Sequence[str],
    outputs: Sequence[str],
    captured: Collection[str] = (),
    before: Sequence[onnx.NodeProto] = (),
) -> tuple[onnx.GraphProto, set[str]]:
    """Make a sub-graph of what outputs need of a body, under names that the network around does not have.

    Args:
        g: of the node that the sub-graph belongs to.
        body: a network from :func:`open_body`.
        inputs: those of its inputs that the sub-graph has; others are computed by ``before`` or captured.
        outputs: values of the body, in the sub-graph's order.
        captured: values of the network around that are parameters of ``body``.
        before: nodes with one output that come first; those that nothing needs are left out.

    Returns:
        the sub-graph, and the outputs of the nodes of ``before`` that are left.
    """
    descriptors = body.descriptors()
    emit = Emitter(body, "grad/")
    named = [emit("Identity", value) for value in outputs]  # outputs differ from one another and from inputs
    needed, nodes = set(named), []
    for node in reversed(body.nodes):
        if needed.intersection(node.writes):
            nodes.append(node)
            needed.update(node.reads)
    first = []
    for proto in reversed(before):
        if proto.output[0] in needed:
            first.append(proto)
            needed.update(proto.input)
    whole = graph_proto(body, {}, lambda name, _: name in needed and name not in captured)
    protos = {proto.name: proto for proto in whole.node}
    graph = onnx.GraphProto(name=f"{g.node.name}/grad")
    graph.initializer.extend(whole.initializer)
    graph.node.extend([*first[::-1], *(protos[node.name] for node in nodes[::-1])])
    graph.input.extend(_declared(name, descriptors[name]) for name in inputs)
    graph.output.extend(_declared(name, descriptors[value]) for name, value in zip(named, outputs, strict=True))
    _rename(graph, _fresh_names(g, graph))
    return graph, {proto.output[0] for proto in first}


def _declared(name: str, described: TensorDescriptor) -> onnx.ValueInfoProto:
    """Dtype and rank; sizes are left open, and a value of unknown rank has no type at all, as ONNX allows here."""
    if described.dtype is None or described.shape is None:
        return onnx.ValueInfoProto(name=name)
    return value_info(name, TensorDescriptor(described.dtype, (None,) * len(described.shape)))


def _fresh_names(g: GradContext, graph: onnx.GraphProto) -> dict[str, str]:
    network, taken, names = g.emitter.network, set[str](), dict[str, str]()
    for name in dict.fromkeys(defined(graph)):
        fresh = network.fresh_name(f"{g.emitter.prefix}{name}")
        while fresh in taken:
            fresh = network.fresh_name(f"{fresh}_")
        taken.add(fresh)
        names[name] = fresh
    return names


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename values everywhere, in nested sub-graphs too."""
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for proto in graph.node:
        proto.ClearField("name")
        proto.input[:] = [names.get(n, n) for n in proto.input]
        proto.output[:] = [names.get(n, n) for n in proto.output]
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, names)
