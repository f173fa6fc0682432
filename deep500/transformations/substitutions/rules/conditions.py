"""A rule's ``where`` lines, put in an order in which each checks a name or defines it.

A sum or product defines whichever of its names is missing. A product of which only the result is known is a choice:
all factors greater than one are tried, so merging the groups of a convolution is one rule for every factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from deep500.transformations.substitutions.rules.patterns import CONSTANTS, arguments, literal, names, parse

Bindings = dict[str, Any]  # names of tensors -> values of a store; of parameters -> their values
Shapes = Callable[[Any], tuple[int, ...]]  # of a tensor's value


@dataclass(frozen=True)
class Condition:
    """``name = sign(operands)``; signs: ``size`` (of a tensor along an axis), ``+``, ``*``, or nothing (a number)."""

    name: str
    sign: str
    operands: tuple[Any, ...]


def read_line(line: str) -> Condition:
    """Parse one line.

    Example:
        >>> read_line("p = size x 1")
        Condition(name='p', sign='size', operands=('x', '1'))
    """
    name, body = (part.strip() for part in line.split("=", 1))
    if not body.startswith(("(", "size")):
        return Condition(name, "", (body,))
    sign, *operands = parse(body if body.startswith("(") else f"({body})")
    return Condition(name, sign, tuple(operands))


@dataclass(frozen=True)
class OrderedCondition:
    """A condition, and the names that it defines when its turn comes; without any it checks."""

    line: Condition
    defines: tuple[str, ...] = ()


def _needs(line: Condition) -> list[str]:
    if line.sign == "size":
        needed = list(names(line.operands[0]))
        return needed + [line.operands[1]] * (not line.operands[1].isdigit())
    return [word for word in line.operands if not word.isdigit()]


def order(lines: Iterable[Condition], known: Iterable[str]) -> tuple[list[OrderedCondition], list[Condition], set[str]]:
    """(steps that can be taken, lines that cannot, names known afterwards), from the names that are known."""
    left, bound = list(lines), set(known)
    steps: list[OrderedCondition] = []
    while True:
        step = next((candidate for line in left if (candidate := _step(line, bound))), None)
        if step is None:
            return steps, left, bound
        steps.append(step)
        left.remove(step.line)
        bound.update(step.defines)


def _step(line: Condition, bound: set[str]) -> OrderedCondition | None:
    missing = [word for word in _needs(line) if word not in bound]
    if not missing:
        return OrderedCondition(line, () if line.name in bound else (line.name,))
    if line.name not in bound or line.sign in ("size", ""):
        return None
    if len(missing) == 1 or (line.sign == "*" and len(set(missing)) == 2):
        return OrderedCondition(line, tuple(missing))
    return None


def solve(steps: list[OrderedCondition], bindings: Bindings, shapes: Shapes) -> Iterator[Bindings]:
    """All bindings that meet the steps; ``shapes(value)`` is the shape of a tensor's value."""
    if not steps:
        yield bindings
        return
    step, rest = steps[0], steps[1:]
    for extended in _take(step, bindings, shapes):
        yield from solve(rest, extended, shapes)


def _take(step: OrderedCondition, bindings: Bindings, shapes: Shapes) -> Iterator[Bindings]:
    line = step.line
    if not step.defines or step.defines == (line.name,):
        value = _value(line, bindings, shapes)
        if value is None or bindings.get(line.name, value) != value:
            return
        yield {**bindings, line.name: value}
        return
    # The result is known and an operand is not: the condition is solved for it. Two unknown factors are a choice.
    whole = bindings[line.name]
    if len(step.defines) == 2:
        first, second = step.defines
        yield from ({**bindings, first: whole // n, second: n} for n in range(2, whole + 1) if whole % n == 0)
        return
    known = [_number(word, bindings) for word in line.operands if word != step.defines[0]]
    if line.sign == "+" and len(known) == 1 and whole > known[0]:
        yield {**bindings, step.defines[0]: whole - known[0]}
    elif line.sign == "+" and not known and whole % 2 == 0:
        yield {**bindings, step.defines[0]: whole // 2}
    elif line.sign == "*" and len(known) == 1 and known[0] and whole % known[0] == 0:
        yield {**bindings, step.defines[0]: whole // known[0]}


def _number(word: str, bindings: Bindings) -> int:
    return int(literal(word, "cut")) if word.isdigit() else bindings[word]


def _value(line: Condition, bindings: Bindings, shapes: Shapes) -> int | None:
    if line.sign == "size":
        tensor, axis = line.operands
        if isinstance(tensor, list):
            shape = bindings[arguments(tensor)[1][0]] if tensor[0] in CONSTANTS else ()
        else:
            shape = shapes(bindings[tensor])
        place = int(axis) if axis.isdigit() else bindings[axis]
        return shape[place] if place < len(shape) else None
    values = [_number(word, bindings) for word in line.operands]
    return values[0] * values[1] if line.sign == "*" else sum(values)
