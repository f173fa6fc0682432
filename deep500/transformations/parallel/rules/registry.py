"""The table of rules: operator to a function that names its factors."""

from __future__ import annotations

from collections.abc import Callable
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


def letters(rank: int, first: int = 0) -> list[str | None]:
    """Factors ``d0``, ``d1``, ... for the axes of a tensor.

    Example:
        >>> letters(2)
        ['d0', 'd1']
    """
    return [f"d{axis}" for axis in range(first, first + rank)]


def without(labels: list[str | None], axes: list[int]) -> list[str | None]:
    """The factors with those of some axes taken out.

    Example:
        >>> without(["d0", "d1"], [1])
        ['d0', None]
    """
    return [None if axis in axes else label for axis, label in enumerate(labels)]
