"""Patterns as programs: straight lines of checks on the nodes of a store.

A pattern whose sums and products may be read in two orders is compiled once per order, so no check needs a second try.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.transformations.substitutions.arithmetic import Real
from deep500.transformations.substitutions.conditions import Bindings
from deep500.transformations.substitutions.encoding import CONSTANTS
from deep500.transformations.substitutions.graph.store import CONSTANT, Store, Value
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.specification import ShapeMismatch, operator
from deep500.transformations.substitutions.validate import Pattern, arguments, literal

Key = tuple[str | None, ...]


@dataclass(frozen=True)
class Check:
    """One operator of a program: what the value in a register must be, and what it gives.

    Attributes:
        register: of the value.
        op: ``"unary"`` for any activation; a constant's name for one recognised by value.
        output: of a split.
        fixed: parameters with their values.
        names: (parameter, name) to bind or compare.
        inputs: registers or names that the operands go to.
        cut: the name of a concatenation's cut, and its axis or the axis' name.
    """

    register: int
    op: str
    output: int
    fixed: tuple[tuple[str, Any], ...]
    names: tuple[tuple[str, str], ...]
    inputs: tuple[int | str, ...]
    cut: tuple[str, Any] | None = None


@dataclass(frozen=True)
class Program:
    """One pattern, its sums and products in one order."""

    key: Key
    checks: tuple[Check, ...]
    registers: int


def compiled(pattern: Pattern) -> Program:
    """Compile a pattern whose operands are in a given order.

    Example:
        >>> from deep500.transformations.substitutions.validate import parse
        >>> compiled(parse("(add (matmul x y) z)")).key
        ('add', 'matmul', None)
    """
    checks: list[Check] = []
    todo, registers = [(pattern, 0)], 1
    while todo:
        one, register = todo.pop(0)
        kinds, given, inputs = arguments(one)
        targets: list[int | str] = []
        for part in inputs:
            if isinstance(part, str):
                targets.append(part)
            else:
                todo.append((part, registers))
                targets.append(registers)
                registers += 1
        values = {kind: literal(word, kind) for word, kind in zip(given, kinds, strict=True)}
        cut = None
        if one[0] == "concat":
            del values["cut"]
            cut = (given[1], given[0] if values["axis"] is None else values["axis"])
        output = values.pop("output", None) or 0
        fixed = tuple((kind, value) for kind, value in values.items() if value is not None)
        words = dict(zip(kinds, given, strict=True))
        free = tuple((kind, words[kind]) for kind, value in values.items() if value is None)
        checks.append(Check(register, one[0], output, fixed, free, tuple(targets), cut))
    kinds_of = tuple(None if isinstance(one, str) else one[0] for one in arguments(pattern)[2])
    return Program((pattern[0], *kinds_of), tuple(checks), registers)


class Kinds:
    """What the nodes of a store count as: an operator's name, ``"unary"``, and the constants they equal."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[int, tuple[str | None, ...]] = {}

    def of(self, number: int) -> tuple[str | None, ...]:
        """All names by which a pattern may ask for a node; None, which stands for any, first."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = self._find(number)
        return found

    def _find(self, number: int) -> tuple[str | None, ...]:
        node = self.store.nodes[number]
        if node.op in ACTIVATIONS:
            return None, "unary"
        if node.op == CONSTANT:
            array = self.store.arrays[number]
            return (None, *(op for op in CONSTANTS if is_constant(op, array)))
        return None, node.op


def is_constant(op: str, array: np.ndarray[Any, Any]) -> bool:
    """Whether an array is the constant ``op`` of its shape.

    Example:
        >>> is_constant("identity", np.eye(3)), is_constant("ones", np.eye(3))
        (True, False)
    """
    if array.dtype.kind != "f" or array.size == 0:
        return False
    corner, middle = float(array.flat[0]), float(array.flat[array.size // 2])
    if op in ("ones", "identity") and corner != 1.0:
        return False
    if op in ("pool_kernel", "identity_kernel") and (array.ndim != 4 or (op == "pool_kernel" and corner != middle)):
        return False
    try:
        (wanted,) = operator(op).evaluate(Real(), [], {"shape": array.shape})
    except ShapeMismatch:
        return False
    return bool(np.array_equal(wanted[0].astype(array.dtype), array))


def run(program: Program, store: Store, kinds: Kinds, root: Value) -> Bindings | None:
    """The bindings under which a program's pattern is ``root``; None if it is not."""
    registers, found = [root] * program.registers, dict[str, Any]()
    for check in program.checks:
        if not holds(check, store, kinds, registers[check.register], found, registers):
            return None
    return found


def holds(
    check: Check,
    store: Store,
    kinds: Kinds,
    value: Value,
    found: Bindings,
    registers: list[Value],
    find: Callable[[Value], Value] = lambda value: value,
) -> bool:
    """Whether a value is what a check asks for; binds names, and sets the registers of what it reads.

    Args:
        check: one line of a program.
        store: where the value is.
        kinds: of the store's nodes.
        value: in the check's register.
        found: what names stand for so far; is added to.
        registers: are set.
        find: what stands for a value where names are compared: itself, or the first of those equal to it.
    """
    node = store.nodes[value.node]
    if check.op not in kinds.of(value.node) or value.output != check.output:
        return False
    if check.op in CONSTANTS:
        return bool(found.setdefault(check.names[0][1], node.shapes[0]) == node.shapes[0])
    if check.op == "matmul" and len(node.shapes[0]) != 2:
        return False  # an axis in a pattern is one of a matrix
    given = dict(node.parameters)
    if check.op == "unary":
        given["function"] = node.op
    for kind, wanted in check.fixed:
        if given[kind] != wanted:
            return False
    for kind, name in check.names:
        if found.setdefault(name, given[kind]) != given[kind]:
            return False
    for target, operand in zip(check.inputs, node.inputs, strict=True):
        if isinstance(target, int):
            registers[target] = operand
        elif found.setdefault(target, find(operand)) != find(operand):
            return False
    if check.cut:
        name, axis = check.cut
        size = store.shape(node.inputs[0])[found[axis] if isinstance(axis, str) else axis]
        return bool(found.setdefault(name, size) == size)
    return True
