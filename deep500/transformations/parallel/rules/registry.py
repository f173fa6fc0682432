"""The table of rules: operator to a function that names its factors."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

from deep500.transformations.parallel.strategies import Factors, SizedNode

Rule: TypeAlias = Callable[[SizedNode], Factors | None]

SHARDING_RULES: dict[str, Rule] = {}
"""By operator of ONNX; None from a rule says that this node is only replicated."""


def sharding_rule(*op_types: str) -> Callable[[Rule], Rule]:
    """Decorator: enter a rule for operators.

    Example:
        >>> @sharding_rule("DocOperator")
        ... def same(view):
        ...     return Factors([["a"]], [["a"]])
        >>> SHARDING_RULES.pop("DocOperator") is same
        True
    """

    def enter(rule: Rule) -> Rule:
        for op_type in op_types:
            if op_type in SHARDING_RULES:
                raise ValueError(f"got a second rule of {op_type}; expected one: extend it")
            SHARDING_RULES[op_type] = rule
        return rule

    return enter


def letters(rank: int) -> list[str | None]:
    """Factors ``d0``, ``d1``, ... for the axes of a tensor.

    Example:
        >>> letters(2)
        ['d0', 'd1']
    """
    return [f"d{axis}" for axis in range(rank)]


def without(labels: list[str | None], axes: Collection[int]) -> list[str | None]:
    """The factors with those of some axes taken out.

    Example:
        >>> without(["d0", "d1"], [1])
        ['d0', None]
    """
    return [None if axis in axes else label for axis, label in enumerate(labels)]


def passing(view: SizedNode, axes: Collection[int], linear: bool = False) -> Factors:
    """Factors of a node whose first operand and outputs share all axes but some; its other operands are whole.

    Args:
        view: of the node.
        axes: that are whole, counted from the front or from behind.
        linear: whether terms of a sum give terms of a sum.
    """
    rank = len(view.inputs[0])
    labels = without(letters(rank), [axis % rank for axis in axes])
    others: list[list[str | None]] = [[None] * len(shape) for shape in view.inputs[1:]]
    return Factors([labels, *others], [labels] * len(view.outputs), linear=[frozenset({0})] if linear else [])
