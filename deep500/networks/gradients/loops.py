"""Control flow that is known when the network is built, written out: short loops step by step, an If as its branch.

The gradient of what is written out needs no second run of the body and no stored states; longer loops run backwards as
loops (:mod:`deep500.networks.gradients.rules.control`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from deep500.networks.emit import Emitter
from deep500.networks.graph import Graph
from deep500.networks.node import Node, from_proto
from deep500.networks.shapes import folded_value, known_value
from deep500.tensors import TensorDescriptor

STEPS, NODES = 16, 512
"""The most steps, and the most nodes altogether, that are written out."""


def unroll_loop(network: Graph, node: Node, descriptors: Mapping[str, TensorDescriptor]) -> dict[str, str] | None:
    """Add the nodes of all steps of a Loop under fresh names; None if it is long, or the run decides when it ends.

    Returns:
        for each output of the node the value that equals it.
    """
    graph = node.attributes["body"]
    trips = known_value(network, node.inputs[0]) if node.inputs[0] else None
    go = known_value(network, node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else np.array(True)
    if trips is None or go is None or not np.all(go) or not _goes_on(graph):
        return None
    count = int(np.ravel(trips)[0])
    if not 0 < count <= STEPS or count * len(graph.node) > NODES:
        return None
    emit = Emitter(network, f"{node.name}/")
    states, rows = list(node.inputs[2:]), []
    for step in range(count):
        inputs = [emit.constant(np.array(step, np.int64)), emit.constant(np.array(True)), *states]
        results = emit.inline(graph, inputs)[1:]
        states, row = results[: len(states)], results[len(states) :]
        rows.append([emit("Unsqueeze", value, emit.ints(0)) for value in row])
    stacks = [emit("Concat", *column, axis=0) for column in zip(*rows, strict=True)]
    ends = zip(node.outputs, [*states, *stacks], strict=False)
    return {output: emit("Identity", value) for output, value in ends if output}


def _goes_on(graph: onnx.GraphProto) -> bool:
    """Whether the body's condition is the one it was given, or true."""
    name, condition = graph.output[0].name, graph.input[1].name
    producers = {output: proto for proto in graph.node for output in proto.output}
    while name in producers and producers[name].op_type == "Identity":
        name = producers[name].input[0]
    arrays = {tensor.name: tensor for tensor in graph.initializer}
    if name in producers and producers[name].op_type == "Constant":
        value = from_proto(producers[name]).attributes.get("value")
        return value is not None and bool(np.all(value))
    return name == condition or (name in arrays and bool(np.all(numpy_helper.to_array(arrays[name]))))


def take_branch(network: Graph, node: Node, descriptors: Mapping[str, TensorDescriptor]) -> dict[str, str] | None:
    """Add the nodes of the branch that an If takes, where that is known before the run; None where it is not.

    Exporters write such nodes for ranks that they do not know.

    Returns:
        for each output of the node the value that equals it.
    """
    condition = folded_value(network, descriptors, node.inputs[0])
    if condition is None:
        return None
    emit = Emitter(network, f"{node.name}/")
    results = emit.inline(node.attributes["then_branch" if np.all(condition) else "else_branch"], [])
    return {output: emit("Identity", value) for output, value in zip(node.outputs, results, strict=False) if output}
