"""Normalization where ONNX Runtime has no kernel, or one that is less precise than the dtype."""

from __future__ import annotations

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion


@expansion("BatchNormalization")
def batch_normalization(op: ExpansionEmitter) -> dict[str, str] | None:
    """The node with momentum 0 and memory of its own for the batch's statistics; then the average in their dtype."""
    node, momentum = op.node, float(op.node.attribute("momentum"))
    if op.dtype(1) == "float64":
        return _in_primitives(op, momentum)
    if not node.attribute("training_mode") or momentum == 0:
        return None
    attributes = {**node.attributes, "momentum": 0.0}
    zeros = [op("Sub", old, old) for old in node.inputs[3:]]  # not a constant: that would be overwritten for good
    y, *now = op.many("BatchNormalization", *node.inputs[:3], *zeros, outputs=3, **attributes)
    return {node.outputs[0]: y, **_averaged(op, now, momentum)}


def _averaged(op: ExpansionEmitter, now: list[str], momentum: float) -> dict[str, str]:
    """momentum * old + (1 - momentum) * new, for the statistics that the node has as outputs."""
    taken = {}
    for value, old, new in zip(op.node.outputs[1:], op.node.inputs[3:], now, strict=False):
        if value:
            share = op("Mul", old, op.like(momentum, 3))
            taken[value] = op("Add", share, op("Mul", new, op.like(1 - momentum, 3)))
    return taken


def _in_primitives(op: ExpansionEmitter, momentum: float) -> dict[str, str] | None:
    """In float64, where the kernel's attributes would round epsilon and momentum to float32."""
    x, scale, bias, mean, variance = op.node.inputs
    rank = op.rank(0)
    if rank is None or rank < 2:
        return None
    axes, wide, now = op.ints(0, *range(2, rank)), op.ints(*range(1, rank - 1)), []
    if op.node.attribute("training_mode"):
        centred = op("Sub", x, op("ReduceMean", x, axes))
        spread = op("ReduceMean", op("Mul", centred, centred), axes)
        now = [op("ReduceMean", x, axes, keepdims=0), op("Squeeze", spread, axes)]
    else:
        centred, spread = (op("Sub", x, op("Unsqueeze", mean, wide)), op("Unsqueeze", variance, wide))
    y = _scaled(op, centred, spread, *(op("Unsqueeze", v, wide) for v in (scale, bias)))
    return {op.node.outputs[0]: y, **_averaged(op, now, momentum)}


def _scaled(op: ExpansionEmitter, centred: str, variance: str, scale: str, bias: str) -> str:
    normal = op("Div", centred, op("Sqrt", op("Add", variance, op.like(op.node.attribute("epsilon")))))
    y = op("Mul", normal, scale)
    return op("Add", y, bias) if bias else y


@expansion("LayerNormalization")
def layer_normalization(op: ExpansionEmitter) -> dict[str, str] | None:
    """Primitives, in float64 only, where the kernel would round epsilon to float32, and only for one output."""
    if op.dtype(1) != "float64" or any(op.node.outputs[1:]):
        return None
    rank, x = op.rank(0), op.node.inputs[0]
    if rank is None:
        return None
    axes = op.ints(*range(int(op.node.attribute("axis")) % rank, rank))
    centred = op("Sub", x, op("ReduceMean", x, axes))
    variance = op("ReduceMean", op("Mul", centred, centred), axes)
    return {op.node.outputs[0]: _scaled(op, centred, variance, op.node.inputs[1], op.operand(2))}


@expansion("InstanceNormalization")
def instance_normalization(op: ExpansionEmitter) -> dict[str, str] | None:
    """Primitives over the spatial axes."""
    x, scale, bias = op.node.inputs
    rank = op.rank(0)
    if rank is None:
        return None
    axes = op.ints(*range(2, rank))
    centred = op("Sub", x, op("ReduceMean", x, axes))
    variance = op("ReduceMean", op("Mul", centred, centred), axes)
    y = _scaled(op, centred, variance, *(op("Unsqueeze", v, op.ints(*range(1, rank - 1))) for v in (scale, bias)))
    return {op.node.outputs[0]: y}
