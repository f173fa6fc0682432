"""Where rules apply: compiled patterns, indexed by the operators at their root, matched on graphs.

A pattern whose sums and products may be read in two orders is compiled once per order, so that each *program* is a
straight line of checks. Programs are found by the operator of a node and those of what it reads. Rules of two outputs
join the matches of both patterns by the values they share.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deep500.networks.substitutions.arithmetic import Real
from deep500.networks.substitutions.conditions import Bindings, Line, Step, names, order, solve
from deep500.networks.substitutions.encoding import CONSTANTS
from deep500.networks.substitutions.graph.store import CONSTANT, Graph, Store, Value
from deep500.networks.substitutions.operators.elementwise import ACTIVATIONS
from deep500.networks.substitutions.pattern_rules import PatternRule, flips
from deep500.networks.substitutions.specification import ShapeMismatch, operator
from deep500.networks.substitutions.targets import Builder, builder, determined
from deep500.networks.substitutions.validate import Pattern, arguments, literal, parse

FLOATS = ("float16", "float32", "float64", "bfloat16")
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
    nodes, registers = store.nodes, [root] * program.registers
    found: Bindings = {}
    for check in program.checks:
        value = registers[check.register]
        node = nodes[value.node]
        if check.op not in kinds.of(value.node) or value.output != check.output:
            return None
        if check.op in CONSTANTS:
            if found.setdefault(check.names[0][1], node.shapes[0]) != node.shapes[0]:
                return None
            continue
        if check.op == "matmul" and len(node.shapes[0]) != 2:
            return None  # an axis in a pattern is one of a matrix
        given = dict(node.parameters)
        if check.op == "unary":
            given["function"] = node.op
        for kind, wanted in check.fixed:
            if given[kind] != wanted:
                return None
        for kind, name in check.names:
            if found.setdefault(name, given[kind]) != given[kind]:
                return None
        for target, operand in zip(check.inputs, node.inputs, strict=True):
            if isinstance(target, int):
                registers[target] = operand
            elif found.setdefault(target, operand) != operand:
                return None
        if check.cut:
            name, axis = check.cut
            size = store.shape(node.inputs[0])[found[axis] if isinstance(axis, str) else axis]
            if found.setdefault(name, size) != size:
                return None
    return found


@dataclass(frozen=True)
class Way:
    """A rule in one direction, compiled.

    Attributes:
        rule: the rule.
        reverse: from right to left.
        programs: of every output of the source side.
        shared: names that the patterns of two outputs share.
        symmetric: whether both patterns are one but for names, so that each pair is met twice.
        steps: conditions and definitions, and (``late``) those that are known once the target is built.
        targets: one builder per output.
    """

    rule: PatternRule
    reverse: bool
    programs: tuple[tuple[Program, ...], ...]
    shared: tuple[str, ...]
    symmetric: bool
    steps: list[Step]
    late: list[Line]
    targets: tuple[Builder, ...]


@functools.cache
def ways(rule: PatternRule) -> tuple[Way, ...]:
    """The directions in which one side of a rule determines the other."""
    sides = [[parse(text) for text in side] for side in (rule.left, rule.right)]
    found = (_way(rule, reverse, sides[reverse], sides[not reverse]) for reverse in (False, True))
    return tuple(one for one in found if one is not None)


def _way(rule: PatternRule, reverse: bool, source: list[Pattern], target: list[Pattern]) -> Way | None:
    lines = determined(source, target, rule.where)
    if lines is None:
        return None
    each = [names(one) for one in source]
    programs = tuple(tuple(compiled(one) for one in flips(pattern)) for pattern in source)
    shared = tuple(sorted(set.intersection(*each))) if len(each) == 2 else ()
    symmetric = len(source) == 2 and _shape(source, shared) == _shape(source[::-1], shared)
    return Way(rule, reverse, programs, shared, symmetric, *lines, tuple(builder(one) for one in target))


def _shape(patterns: Sequence[Pattern], shared: Collection[str]) -> str:
    """Patterns with the names that are not shared numbered by first use."""
    numbers: dict[str, int] = {}

    def word(one: Pattern) -> Any:
        if isinstance(one, list):
            return [one[0], *map(word, one[1:])]
        own = one in own_names and one not in shared
        return numbers.setdefault(one, len(numbers)) if own else one

    own_names = set().union(*(names(one) for one in patterns))
    return repr([word(one) for one in patterns])


@dataclass(frozen=True, slots=True)
class Match:
    """A place where a rule applies.

    Attributes:
        rule: the rule.
        reverse: whether it is applied from right to left.
        sites: values that it replaces, one per output of the rule.
        bindings: names of the rule -> values and parameters.
    """

    way: Way = field(repr=False)
    store: Store = field(repr=False)
    sites: tuple[Value, ...]
    bindings: Bindings

    @property
    def rule(self) -> PatternRule:
        """The rule that applies."""
        return self.way.rule

    @property
    def reverse(self) -> bool:
        """Whether it is applied from right to left."""
        return self.way.reverse

    def build(self) -> dict[Value, Value] | None:
        """Make the other side in the store: site -> its replacement; None if it does not fit or changes nothing."""
        store, bindings = self.store, dict(self.bindings)
        dtype = store.dtype(self.sites[0])
        try:
            made = [target(store, bindings, dtype) for target in self.way.targets]
        except ShapeMismatch:
            return None
        steps = order(self.way.late, bindings)[0]
        if next(solve(steps, bindings, store.shape), None) is None:
            return None
        pairs = dict(zip(self.sites, made, strict=True))
        if any(store.shape(old) != store.shape(new) for old, new in pairs.items()):
            return None
        return pairs if any(old != new for old, new in pairs.items()) else None


class Matcher:
    """All ways of some rules, indexed.

    Example:
        >>> store = Store()
        >>> x = store.input("x", (2, 3), "float32")
        >>> y, = store.add("transpose", store.add("relu", x)[0], perm=(1, 0))
        >>> rule = PatternRule(("(transpose t (unary f x))",), ("(unary f (transpose t x))",))
        >>> match, = Matcher([rule]).matches(Graph(store, (y,)))
        >>> store.node(match.build()[y]).op
        'relu'
    """

    def __init__(self, rules: Iterable[PatternRule]) -> None:
        self.ways = [way for rule in rules for way in ways(rule)]
        self.index: dict[Key, list[tuple[int, int, Program]]] = {}
        for number, way in enumerate(self.ways):
            for output, programs in enumerate(way.programs):
                for program in programs:
                    self.index.setdefault(program.key, []).append((number, output, program))
        self._kinds: dict[int, Kinds] = {}

    def matches(self, graph: Graph, touched: Collection[int] | None = None) -> Iterator[Match]:
        """All places where a rule applies.

        Args:
            graph: where to look.
            touched: nodes of which a match must contain, or read, one as its root or within two nodes below; None: all.
        """
        store = graph.store
        kinds = self._kinds.get(id(store))
        if kinds is None or kinds.store is not store:
            kinds = self._kinds[id(store)] = Kinds(store)
        pairs: dict[int, tuple[list[Any], list[Any]]] = {}
        numbers = graph.nodes()
        near = None if touched is None else _near(store, numbers, touched)
        for number in numbers:
            for position, output, program in self._programs(store, kinds, number):
                way = self.ways[position]
                if near is not None and number not in near and len(way.programs) == 1:
                    continue
                root = Value(number, program.checks[0].output)
                found = run(program, store, kinds, root)
                if found is None:
                    continue
                if len(way.programs) == 2:
                    pairs.setdefault(position, ([], []))[output].append((root, found))
                else:
                    for bindings in solve(way.steps, found, store.shape):
                        yield Match(way, store, (root,), bindings)
        for position, sides in pairs.items():
            yield from _joined(self.ways[position], store, sides, near)

    def _programs(self, store: Store, kinds: Kinds, number: int) -> Iterator[tuple[int, int, Program]]:
        node = store.nodes[number]
        if node.dtypes[0] not in FLOATS:
            return
        for op in kinds.of(number)[1:]:
            for key in itertools.product((op,), *(kinds.of(one.node) for one in node.inputs)):
                yield from self.index.get(key, ())


def _near(store: Store, numbers: Sequence[int], touched: Collection[int], depth: int = 2) -> set[int]:
    """Nodes that are touched, or read within ``depth`` nodes what is."""
    found = {number: 0 for number in numbers if number in touched}
    for number in numbers:
        below = [found[one.node] + 1 for one in store.nodes[number].inputs if one.node in found]
        if number not in found and below and min(below) <= depth:
            found[number] = min(below)
    return set(found)


def _joined(way: Way, store: Store, sides: tuple[list[Any], list[Any]], near: set[int] | None) -> Iterator[Match]:
    """Matches of a rule of two outputs: pairs that agree on the names both patterns use."""
    index: dict[tuple[Any, ...], list[tuple[Value, Bindings]]] = {}
    for root, found in sides[1]:
        index.setdefault(tuple(found[name] for name in way.shared), []).append((root, found))
    for root, found in sides[0]:
        for other, more in index.get(tuple(found[name] for name in way.shared), ()):
            if root == other or (way.symmetric and other < root):
                continue
            if near is not None and root.node not in near and other.node not in near:
                continue
            for bindings in solve(way.steps, {**found, **more}, store.shape):
                yield Match(way, store, (root, other), bindings)
