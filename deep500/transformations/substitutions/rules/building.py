"""Building the other side of a match: a compiled pattern that makes nodes of a store out of bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deep500.transformations.substitutions.graph.store import Store, StoreValue
from deep500.transformations.substitutions.operators.specification import require
from deep500.transformations.substitutions.rules.conditions import (
    Bindings,
    Condition,
    OrderedCondition,
    order,
    read_line,
)
from deep500.transformations.substitutions.rules.patterns import CONSTANTS, Pattern, arguments, literal, names

Builder = Callable[[Store, Bindings, str], StoreValue]
SIBLINGS = ("add", "mul")  # operators whose operands have one shape: a constant takes the other's
KEEPING = ("gain", "scale")  # operators that keep the shape of their first operand, and may stand between


def unbound(pattern: Pattern, known: set[str]) -> set[str]:
    """Names that building a pattern needs beyond ``known``, which gains what building binds: cuts and shapes."""
    if isinstance(pattern, str):
        return set() if pattern in known else {pattern}
    kinds, words, inputs = arguments(pattern)
    missing: set[str] = set()
    for operand in _siblings_last(pattern[0], inputs):
        if _takes_shape(pattern[0], inputs, operand):
            known.add(str(shape_name(operand)))
        missing |= unbound(operand, known)
    if pattern[0] == "concat":
        known.add(words[1])
    return missing | {
        word for word, kind in zip(words, kinds, strict=True) if literal(word, kind) is None and word not in known
    }


def determined(
    source: Sequence[Pattern], target: Sequence[Pattern], where: Iterable[str]
) -> tuple[list[OrderedCondition], list[Condition]] | None:
    """(steps to take before building, lines to check after it) if one side determines the other, else None.

    Example:
        >>> from deep500.transformations.substitutions.rules.patterns import parse
        >>> twice, x = [parse("(transpose t (transpose t x))")], ["x"]
        >>> determined(twice, x, ()), determined(x, twice, ())
        (([], []), None)
    """
    if any(isinstance(pattern, str) or pattern[0] in CONSTANTS for pattern in source):
        return None  # matches everywhere
    steps, late, known = order([read_line(line) for line in where], set().union(*map(names, source)))
    missing = [unbound(pattern, known) for pattern in target]
    return None if any(missing) or order(late, known)[1] else (steps, late)


def shape_name(pattern: Pattern) -> str | None:
    """The name of the shape of a constant, or of one that is multiplied along an axis or as a whole; else None.

    Example:
        >>> from deep500.transformations.substitutions.rules.patterns import parse
        >>> shape_name(parse("(gain 0 (identity_kernel q) v)")), shape_name(parse("(add (ones q) x)"))
        ('q', None)
    """
    while isinstance(pattern, list) and pattern[0] in KEEPING:
        pattern = arguments(pattern)[2][0]
    return arguments(pattern)[1][0] if isinstance(pattern, list) and pattern[0] in CONSTANTS else None


def _siblings_last(op: str, inputs: list[Pattern]) -> list[Pattern]:
    return sorted(inputs, key=lambda operand: shape_name(operand) is not None) if op in SIBLINGS else inputs


def _takes_shape(op: str, inputs: list[Pattern], operand: Pattern) -> bool:
    others = [other for other in inputs if shape_name(other) is None]
    return op in SIBLINGS and shape_name(operand) is not None and bool(others)


def builder(pattern: Pattern) -> Builder:
    """A function (store, bindings, dtype) -> value, which raises `ShapeMismatch` where the pattern does not fit."""
    if isinstance(pattern, str):
        return lambda store, bindings, dtype: bindings[pattern]
    op, (kinds, words, inputs) = pattern[0], arguments(pattern)
    if op in CONSTANTS:
        name = words[0]
        return lambda store, bindings, dtype: store.add(op, shape=bindings[name], dtype=dtype)[0]
    ordered = _siblings_last(op, inputs)
    shaped_names = [shape_name(operand) if _takes_shape(op, inputs, operand) else None for operand in ordered]
    parts = list(zip(map(builder, ordered), shaped_names, strict=True))
    places = [ordered.index(operand) for operand in inputs]
    fixed = {kind: literal(word, kind) for word, kind in zip(words, kinds, strict=True)}
    free = [(kind, word) for word, kind in zip(words, kinds, strict=True) if fixed[kind] is None]

    def build(store: Store, bindings: Bindings, dtype: str) -> StoreValue:
        operands: list[StoreValue] = []
        for part, shaped in parts:
            if shaped is not None:
                bindings.setdefault(shaped, store.shape(operands[0]))
            operands.append(part(store, bindings, dtype))
        values = [operands[place] for place in places]
        if op == "concat":
            _bind_cut(store, values[0], words, fixed, bindings)
        known = {**fixed, **{kind: bindings[word] for kind, word in free}}
        if op == "concat":
            known.pop("cut")
        if op == "matmul":  # an axis in a pattern is one of a matrix
            require(len(store.shape(values[0])) == 2, "matmul in a rule", store.shape(values[0]), "matrices")
        output = known.pop("output", 0)
        return store.add(known.pop("function", op), *values, **known)[output]

    return build


def _bind_cut(store: Store, first: StoreValue, words: list[str], fixed: dict[str, Any], bindings: Bindings) -> None:
    axis = fixed["axis"] if fixed["axis"] is not None else bindings[words[0]]
    shape = store.shape(first)
    require(axis < len(shape), "concat", shape, f"an axis {axis}")
    require(bindings.setdefault(words[1], shape[axis]) == shape[axis], "concat", shape, f"a cut at {words[1]}")
