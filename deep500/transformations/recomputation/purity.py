"""Operators whose results may not be computed again: what they write is kept, and the report says so."""

from __future__ import annotations

from deep500.networks.node import Node


def impurity(node: Node) -> str | None:
    """Why a node must not run again, None if it may.

    BatchNormalization may: only its running statistics are state, and those are written by nodes outside of regions,
    once. Custom operators may hold state that we cannot see, control flow may hold any operator.

    Example:
        >>> impurity(Node("Dropout", ("x",), ("y",), "drop"))
        'random numbers'
        >>> impurity(Node("Relu", ("x",), ("y",), "relu"))
    """
    if node.domain:
        return "custom operator, which may hold state"
    if node.is_random:
        return "random numbers"
    return "control flow" if node.graphs else None
