"""Operators of sequences and optional values that are Python alone: the same in every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deep500.networks.execution.operator_table import OperatorTable, positive


def enter_sequences(
    table: OperatorTable[Any], scalar: Callable[..., Any], array: Callable[[Any], Any], **traits: Any
) -> None:
    """Enter them into a backend's table: a sequence is a list of tensors, an optional value is the value or None.

    Args:
        scalar: ``(position, default)`` to the number of a tensor of one element, or the default of None.
        array: makes a tensor of a truth value or a whole number, in int64.
        traits: of the entries.

    Example:
        >>> from deep500.networks.execution.operator_table import OperatorEntry
        >>> table = OperatorTable(OperatorEntry)
        >>> enter_sequences(table, lambda position, default=None: default if position is None else position, int)
        >>> table["", "SequenceInsert"].function(["a", "b"], "c", -1)
        ['a', 'c', 'b']
    """

    def op(name: str, *static: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        return table.op(name, static=static, **traits)

    @op("SequenceConstruct")
    def construct(*xs: Any) -> list[Any]:
        return list(xs)

    @op("SequenceEmpty")
    def empty(*, dtype: int = 1) -> list[Any]:
        return []

    @op("SequenceLength")
    def length(xs: list[Any]) -> Any:
        return array(len(xs))

    @op("SequenceAt", 1)
    def at(xs: list[Any], position: Any) -> Any:
        return xs[scalar(position)]

    @op("SequenceErase", 1)
    def erase(xs: list[Any], position: Any = None) -> list[Any]:
        place = positive(scalar(position, -1), len(xs))
        return xs[:place] + xs[place + 1 :]

    @op("SequenceInsert", 2)
    def insert(xs: list[Any], x: Any, position: Any = None) -> list[Any]:
        place = positive(scalar(position, len(xs)), len(xs))
        return [*xs[:place], x, *xs[place:]]

    @op("Optional")
    def optional(x: Any = None, *, type: Any = None) -> Any:
        return x

    @op("OptionalGetElement")
    def element(x: Any) -> Any:
        return x

    @op("OptionalHasElement")
    def is_there(x: Any = None) -> Any:
        return array(x is not None)
