"""Networks as ONNX files that a plain ``onnxruntime.InferenceSession`` runs, without Deep500."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import onnx
import onnxruntime as ort

from deep500.errors import UnsupportedOperator
from deep500.frameworks.onnxruntime.compiler import compile_model
from deep500.frameworks.onnxruntime.session import BUILD_ERRORS, options, reason
from deep500.networks.custom import is_custom
from deep500.networks.graph import Graph
from deep500.networks.onnx.dump import CONSTANTS_KEY, UNRANKED_KEY, give_ranks
from deep500.networks.protos import UNKNOWN, type_proto, value_info
from deep500.tensors import TensorDescriptor


def to_model(network: Graph, variables: Sequence[str] = (), notes: Mapping[str, str] | None = None) -> onnx.ModelProto:
    """The network as a model at the newest opset and IR version that the installed ONNX Runtime reads.

    Operators that ONNX Runtime lacks, or lacks for a dtype, are written as others, as :class:`Executor` does it.

    Args:
        network: is not changed.
        variables: parameters that a run may override: inputs whose default is the initializer.
        notes: what inputs and outputs are, by name; they become their ``doc_string``.

    Raises:
        UnsupportedOperator: operators that ONNX Runtime cannot run, custom operators among them; all are named.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> net = add_loss(create("mlp", shape=(4,), classes=3))
        >>> model = to_model(net.with_gradient(), net.trainable())
        >>> [output.name for output in model.graph.output][:3]
        ['output', 'loss', 'fc1.weight.grad']
    """
    custom = [node for node in network.nodes if is_custom(node)]
    if custom:
        raise UnsupportedOperator(
            f"got custom operator {custom[0].op_type!r} in node {custom[0].name!r}; expected operators of ONNX, for a "
            "plain session has no others: run the network with backend 'onnxruntime' instead"
        )
    outputs = [name for name in network.outputs if network.producer(name) is not None]
    model, _ = compile_model(network, outputs, (), options(1), ["CPUExecutionProvider"], 0)
    descriptors, graph = network.descriptors(), model.graph
    for output in graph.output:
        output.type.CopyFrom(type_proto(descriptors.get(output.name, UNKNOWN)))
    unranked = give_ranks(graph)
    initializers, trainable = {tensor.name for tensor in graph.initializer}, set(network.trainable())
    for name in variables:
        if name in initializers:
            array = network.parameters[name].value
            graph.input.append(value_info(name, TensorDescriptor(str(array.dtype), array.shape)))
    for value in (*graph.input, *graph.output):
        value.doc_string = (notes or {}).get(value.name, "")
    constants = [tensor.name for tensor in graph.initializer if tensor.name not in trainable]
    onnx.helper.set_model_props(model, {CONSTANTS_KEY: json.dumps(constants), UNRANKED_KEY: json.dumps(unranked)})
    try:
        onnx.checker.check_model(model)
        ort.InferenceSession(model.SerializeToString(), options(1), providers=["CPUExecutionProvider"])
    except (*BUILD_ERRORS, onnx.checker.ValidationError, ValueError) as error:
        raise UnsupportedOperator(
            f"got a network that a plain ONNX Runtime session refuses ({reason(error)}); expected one that it reads: "
            "run it with backend 'onnxruntime' instead"
        ) from error
    return model
