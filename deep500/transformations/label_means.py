"""Mean losses over pieces of the labels: how much a piece counted, and the mean of the pieces' sums."""

from __future__ import annotations

import numpy as np

from deep500.networks.emit import Emitter
from deep500.networks.node import Node
from deep500.tensors import dtype_to_onnx


def counted_labels(op: Emitter, node: Node, labels: str, weight: str, dtypes: tuple[str, str]) -> str:
    """The number by which a mean loss divides: labels that count, each with the weight of its class.

    Args:
        op: writes the nodes.
        node: of an operator of :data:`~deep500.networks.execution.labels.LOSSES`.
        labels: names the labels, or a piece of them.
        weight: names the weights of the classes; ``""`` for none.
        dtypes: of the loss and of the labels.
    """
    dtype, ignored = dtype_to_onnx(dtypes[0]), node.attribute("ignore_index")
    if ignored is None and not weight:
        return op("Cast", op("Size", labels), to=dtype)
    if ignored is None:
        return op("ReduceSum", op("Gather", weight, labels), keepdims=0)
    counts = op("Not", op("Equal", labels, op.constant(np.array(ignored, dtypes[1]))))
    amount = op("Cast", counts, to=dtype)
    if weight:
        safe = op("Where", counts, labels, op.constant(np.array(0, dtypes[1])))
        amount = op("Mul", amount, op("Gather", weight, safe))
    return op("ReduceSum", amount, keepdims=0)


def mean_if_any(op: Emitter, whole: str, amount: str, dtype: str) -> str:
    """A sum over an amount; NaN with gradients of 0 where the amount is 0, as of a mean loss that ignores all labels.

    A plain quotient would have the NaN of a gradient of 0/0.
    """
    zero, unit, undefined = (op.constant(np.array(number, dtype)) for number in (0, 1, np.nan))
    none = op("Equal", amount, zero)
    return op("Where", none, undefined, op("Div", whole, op("Where", none, unit, amount)))
