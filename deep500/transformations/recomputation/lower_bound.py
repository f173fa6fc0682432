"""A lower bound on what a training step holds, whatever runs again and whatever is cut: for budgets that no plan meets.

Two things hold for every order in which nodes run. When a step ends, the gradients of all parameters are there. And
while a convolution or a product with parameters runs, what it reads is there with what it writes, of one piece of the
batch at least. Products of two activations do not count: in attention, kernels form them a tile at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from deep500.errors import BudgetError
from deep500.networks.losses import gradient_name
from deep500.networks.node import Node
from deep500.transformations.recomputation.training_step import TrainingStep

KERNELS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators that, by parameters, read and write memory of their own on every backend, also where others are fused."""

_VIEWS = frozenset({"Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose result may be memory of their first input."""


class LowerBound(NamedTuple):
    """Bytes that every plan holds at some time, and when."""

    bytes: int
    when: str


def lower_bound(step: TrainingStep, pieces: int = 1) -> LowerBound:
    """The bytes that no plan for a step goes below.

    Args:
        step: without a plan.
        pieces: of the batch at most in which a plan may run a node; 1 for recomputation alone.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.training_step import training_step
        >>> lower_bound(training_step(add_loss(create("mlp", shape=(4,), hidden=(3,), classes=2)), 8))
        LowerBound(bytes=160, when="node 'fc2' (Gemm) runs")
    """
    gradients = sum(step.sizes.get(gradient_name(name), 0) for name in step.network.trainable())
    bounds = [LowerBound(gradients, "the gradients of all parameters are there")]
    moving = set(step.network.inputs)  # what depends on no input may have been computed before the step
    for node in step.forward:
        if moving.intersection(node.reads):
            moving.update(node.writes)
        factors = sum(name in moving for name in node.inputs[:2])
        if node.op_type in KERNELS and not node.domain and factors == 1:
            least = -(-_operand_bytes(step, node, moving) // pieces)
            bounds.append(LowerBound(least, f"node {node.name!r} ({node.op_type}) runs"))
    return max(bounds)


def with_bound(error: BudgetError, step: TrainingStep, pieces: int = 1) -> BudgetError:
    """An error of a budget that no plan meets, which also says what none can."""
    bound = lower_bound(step, pieces)
    return BudgetError(
        f"{error}; no plan at all holds less than {bound.bytes}, because at some time {bound.when}",
        error.smallest,
        bound.bytes,
    )


def _operand_bytes(step: TrainingStep, node: Node, moving: Collection[str]) -> int:
    """Bytes of a node's result and of what it reads, but for inputs and parameters, which are held by others."""
    operands: dict[str, int] = {}
    for name in node.reads:
        root = _root(step, name)
        if root in step.sizes and root in moving:
            operands[root] = max(operands.get(root, 0), min(step.sizes[name], step.sizes[root]))
    return sum(operands.values()) + sum(step.sizes[name] for name in node.writes)


def _root(step: TrainingStep, name: str) -> str:
    """The value in whose memory one may lie."""
    producer = step.network.producer(name)
    while producer is not None and producer.op_type in _VIEWS:
        name = producer.inputs[0]
        producer = step.network.producer(name)
    return name
