"""Labels and indices that come as inputs: what range they must be in, and the check on the host before a run."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.errors import InputError
from deep500.networks.execution.operands import INDEXED, largest_axis
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor

if TYPE_CHECKING:
    from deep500.networks.execution.program import Program

LOSSES = frozenset({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"})
"""Operators whose second input holds class labels; sums over labels, which sums over pieces make again."""


def class_labels(
    nodes: Iterable[Node], inputs: Container[str], descriptors: Mapping[str, TensorDescriptor]
) -> dict[str, tuple[Any, ...]]:
    """Inputs that are class labels, with their range and the label to ignore: a bad one would go unnoticed.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> net = add_loss(create("mlp", shape=(4,), classes=3))
        >>> class_labels(net.nodes, net.inputs, net.descriptors())
        {'label': (0, 3, None)}
    """
    ranges: dict[str, tuple[Any, ...]] = {}
    for node in nodes:
        if node.op_type in LOSSES and node.inputs[1] in inputs:
            scores = descriptors.get(node.inputs[0])
            classes = scores.shape[1] if scores is not None and scores.shape else None
            if isinstance(classes, int):
                ranges[node.inputs[1]] = (0, classes, node.attribute("ignore_index"))
    return ranges


def label_checks(program: Program) -> dict[str, tuple[Any, ...]]:
    """:func:`class_labels` of a program, and inputs that are indices, with their range."""
    ranges = class_labels(program.nodes, program.inputs, program.descriptors)
    for node in program.nodes:
        if node.op_type in INDEXED and node.inputs[1] in program.inputs:
            table, index = (program.descriptors.get(name) for name in node.inputs[:2])
            size = None if table is None or index is None else largest_axis(node, table.shape, index.shape)
            if size is not None:
                ranges[node.inputs[1]] = (-size, size, None)
    return ranges


def check_range(name: str, value: Any, low: int, high: int, ignored: int | None) -> None:
    """Refuse labels and indices that do not exist, where they are on the host: JAX and ONNX Runtime read something
    else, PyTorch leaves -100 out, and a GPU stops the whole process."""
    if not isinstance(value, np.ndarray) or not value.size or (value.min() >= low and value.max() < high):
        return
    wrong = (value < low) | (value >= high)
    if ignored is not None:
        wrong &= value != ignored
    if wrong.any():
        raise InputError(
            f"input {name!r}: got label or index {int(value[wrong][0])}; expected {low} to {high - 1}: check the data"
        )
