"""Normalization where ONNX Runtime has no kernel, or one that is less precise than the dtype."""

from __future__ import annotations

from deep500.frameworks.onnxruntime.operators.table import Body, expansion
from deep500.networks.node import Node


def overwrites(node: Node) -> bool:
    """Whether ONNX Runtime's kernel would write a node's results over its inputs.

    Its BatchNormalization leaves the new running statistics in the memory of the old ones, whoever else reads these, our
    parameters included; and in float64 it rounds the momentum to float32. See :func:`batch_normalization` for the way out.
    """
    training = node.op_type == "BatchNormalization" and not node.domain and node.attribute("training_mode")
    return bool(training) and any(node.outputs[1:]) and node.attribute("momentum") != 0


@expansion("BatchNormalization")
def batch_normalization(op: Body) -> dict[str, str] | None:
    """The node with momentum 0 and fresh memory for its statistics, which then are the batch's; the average in the dtype."""
    node, momentum = op.node, float(op.node.attribute("momentum"))
    if not node.attribute("training_mode") or momentum == 0:
        return None
    attributes = {**node.attributes, "momentum": 0.0}
    zeros = [op("Sub", old, old) for old in node.inputs[3:]]  # not a constant: that would be overwritten for good
    y, *now = op.many("BatchNormalization", *node.inputs[:3], *zeros, outputs=3, **attributes)
    taken = {node.outputs[0]: y}
    for value, old, new in zip(node.outputs[1:], node.inputs[3:], now, strict=False):
        if value:
            kept = op("Mul", old, op.like(momentum, 3))
            taken[value] = op("Add", kept, op("Mul", new, op.like(1 - momentum, 3)))
    return taken


@expansion("InstanceNormalization")
def instance_normalization(op: Body) -> dict[str, str] | None:
    """Primitives over the spatial axes."""
    x, scale, bias = op.node.inputs
    rank = op.rank(0)
    if rank is None:
        return None
    axes = op.ints(*range(2, rank))
    centred = op("Sub", x, op("ReduceMean", x, axes))
    variance = op("ReduceMean", op("Mul", centred, centred), axes)
    normal = op("Div", centred, op("Sqrt", op("Add", variance, op.like(op.node.attribute("epsilon")))))
    scale, bias = (op("Unsqueeze", v, op.ints(*range(1, rank - 1))) for v in (scale, bias))
    return {op.node.outputs[0]: op("Add", op("Mul", normal, scale), bias)}
