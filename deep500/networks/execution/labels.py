"""Labels and indices that come as inputs: what range they must be in, and the check on the host before a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.networks.execution.operands import INDEXED, largest_axis
from deep500.networks.execution.program import Program


def label_checks(program: Program) -> dict[str, tuple[Any, ...]]:
    """Inputs that are class labels, with their range and the label to ignore: a bad one would go unnoticed."""
    ranges: dict[str, tuple[Any, ...]] = {}
    for node in program.nodes:
        if (
            node.op_type in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
            and node.inputs[1] in program.inputs
        ):
            scores = program.descriptors.get(node.inputs[0])
            classes = scores.shape[1] if scores is not None and scores.shape else None
            if isinstance(classes, int):
                ranges[node.inputs[1]] = (0, classes, node.attribute("ignore_index"))
        elif node.op_type in INDEXED and node.inputs[1] in program.inputs:
            table, index = (program.descriptors.get(name) for name in node.inputs[:2])
            size = None if table is None or index is None else largest_axis(node, table.shape, index.shape)
            if size is not None:
                ranges[node.inputs[1]] = (-size, size, None)
    return ranges


def check_range(name: str, value: Any, low: int, high: int, ignored: int | None) -> None:
    """Refuse labels and indices that do not exist, where they are on the host: JAX reads something else, and a
    GPU stops the whole process."""
    if not isinstance(value, np.ndarray) or not value.size or (value.min() >= low and value.max() < high):
        return
    wrong = (value < low) | (value >= high)
    if ignored is not None:
        wrong &= value != ignored
    if wrong.any():
        raise InputError(
            f"input {name!r}: got label or index {int(value[wrong][0])}; expected {low} to {high - 1}: check the data"
        )
