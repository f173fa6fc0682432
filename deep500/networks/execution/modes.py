"""Training mode written into a network, for executors without automatic differentiation of their own.

A network's BatchNormalization with ``training_mode=0`` and its Dropout without a mode follow the executor's mode. Here
that mode becomes part of the graph: ``training_network(net)`` and then ``.with_gradient(loss)`` is one training step.
"""

from __future__ import annotations

import numpy as np

from deep500.networks.emit import Emitter
from deep500.networks.graph import AnyGraph, Graph
from deep500.networks.node import Node
from deep500.networks.rewrite import supersede
from deep500.networks.shapes import known_value
from deep500.tensors import TensorDescriptor, dtype_to_onnx


def training_network(network: AnyGraph) -> tuple[AnyGraph, dict[str, str]]:
    """The network in training mode, and what its running statistics become.

    BatchNormalization normalises by the batch's statistics, Dropout drops. The running variance is the unbiased one, as
    in PyTorch: new = momentum * old + (1 - momentum) * var * n / (n - 1), with ONNX's momentum (0.9 is PyTorch's 0.1);
    ONNX itself would keep the biased one. Statistics that several nodes share are updated by one after the other.
    Nodes with an explicit ``training_mode=1`` (a true one, for Dropout), and those whose statistics are trained or
    computed, mean what ONNX says and stay as they are.

    Returns:
        a copy, and for each running statistic (a parameter) the name of the value, a further output of the copy, that
        must replace it after the step.

    Example:
        >>> from deep500.networks.zoo import create
        >>> train, updates = training_network(create("resnet", depth=20))
        >>> updates["bn1.running_mean"]
        'bn1.running_mean.new'
    """
    work = network.copy()
    emitter = Emitter(work, "train/")
    updates: dict[str, str] = {}
    replaced: dict[str, dict[str, str]] = {}
    descriptors = network.descriptors()
    owned = {name for name, parameter in network.parameters.items() if not parameter.trainable}
    for node in network.nodes:
        if node.domain:
            continue
        if node.op_type == "Dropout" and not _has_mode(network, node):
            replaced[node.name] = _dropout(emitter, node)
        elif (
            node.op_type == "BatchNormalization"
            and not node.attribute("training_mode")
            and owned >= {*node.inputs[3:5]}
        ):
            described = descriptors.get(node.inputs[0], TensorDescriptor(None, None))
            replaced[node.name] = _batch_normalization(emitter, node, described, updates)
    supersede(work, replaced)
    for value in updates.values():
        if value not in work.outputs:
            work.add_output(value)
    return work, updates


def _has_mode(network: Graph, node: Node) -> bool:
    """Whether a Dropout has a mode of its own: a true constant, or a value that the network computes."""
    if len(node.inputs) < 3 or not node.inputs[2]:
        return False
    mode = known_value(network, node.inputs[2])
    return mode is None or bool(np.all(mode))


def _dropout(emitter: Emitter, node: Node) -> dict[str, str]:
    true = emitter.constant(np.array(True))
    inputs = (node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else "", true)
    outputs = emitter.many("Dropout", *inputs, outputs=len(node.outputs), **node.attributes)
    return dict(zip(node.outputs, outputs, strict=True))


def _batch_normalization(
    emitter: Emitter, node: Node, described: TensorDescriptor, updates: dict[str, str]
) -> dict[str, str]:
    """Emit the node in training mode and the new running statistics, which are entered into ``updates``."""
    x, scale, bias, mean, variance = node.inputs
    mean_now, variance_now = updates.get(mean, mean), updates.get(variance, variance)
    attributes = {**node.attributes, "training_mode": 1}
    y, new_mean, biased = emitter.many(
        "BatchNormalization", x, scale, bias, mean_now, variance_now, outputs=3, **attributes
    )
    dtype = described.dtype or "float32"
    decayed = emitter("Mul", variance_now, emitter.constant(np.array(node.attribute("momentum"), dtype)))
    share = emitter("Mul", emitter("Sub", biased, decayed), _correction(emitter, x, scale, described, dtype))
    updates[variance] = emitter("Add", decayed, share, output=emitter.network.fresh_name(f"{variance}.new"))
    updates[mean] = emitter("Identity", new_mean, output=emitter.network.fresh_name(f"{mean}.new"))
    return {node.outputs[0]: y}


def _correction(emitter: Emitter, x: str, scale: str, described: TensorDescriptor, dtype: str) -> str:
    """n / (n - 1), n being the number of elements per channel; 1 where n is 1."""
    shape = described.shape
    if described.is_static and shape is not None:
        n = int(np.prod([d for axis, d in enumerate(shape) if axis != 1 and isinstance(d, int)]))
        return emitter.constant(np.array(n / max(n - 1, 1), dtype))
    unit = emitter.constant(np.array(1, np.int64))
    count = emitter("Div", emitter("Size", x), emitter("Size", scale))
    less = emitter("Max", emitter("Sub", count, unit), unit)
    return emitter("Div", *(emitter("Cast", v, to=dtype_to_onnx(dtype)) for v in (count, less)))
