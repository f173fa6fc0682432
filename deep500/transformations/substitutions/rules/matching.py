"""Matching of rules: patterns compiled to straight lines of checks, indexed by their first operators, tried on graphs.

A pattern whose sums and products may be read in two orders is compiled once per order, so no check needs a second try.
Those that may match at a node are found by its operator and the operators of what it reads. Rules of two outputs join
the matches of both patterns by the values they share.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deep500.transformations.substitutions.graph.store import CONSTANT, Store, StoredGraph, StoreValue
from deep500.transformations.substitutions.operators.arithmetic import Real
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import ShapeMismatch, operator, require
from deep500.transformations.substitutions.rules.building import Builder, builder, determined
from deep500.transformations.substitutions.rules.conditions import Bindings, Condition, OrderedCondition, order, solve
from deep500.transformations.substitutions.rules.patterns import (
    CONSTANTS,
    Pattern,
    arguments,
    flips,
    literal,
    names,
    orders,
    parse,
    words,
)
from deep500.transformations.substitutions.rules.rule_file import PatternRule

Key = tuple[str | None, ...]
FLOATS = ("float16", "float32", "float64", "bfloat16")


# -- one pattern on one node -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class OperatorMatch:
    """One operator of a source: what the value in a register must be, and what it gives.

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
class CompiledPattern:
    """One pattern, its sums and products in one order."""

    key: Key
    checks: tuple[OperatorMatch, ...]
    registers: int


def compiled(pattern: Pattern) -> CompiledPattern:
    """Compile a pattern whose operands are in a given order.

    Example:
        >>> from deep500.transformations.substitutions.rules.patterns import parse
        >>> compiled(parse("(add (matmul x y) z)")).key
        ('add', 'matmul', None)
    """
    checks: list[OperatorMatch] = []
    todo, registers = [(pattern, 0)], 1
    while todo:
        current, register = todo.pop(0)
        kinds, parameters, inputs = arguments(current)
        targets: list[int | str] = []
        for part in inputs:
            if isinstance(part, str):
                targets.append(part)
            else:
                todo.append((part, registers))
                targets.append(registers)
                registers += 1
        values = {kind: literal(word, kind) for word, kind in zip(parameters, kinds, strict=True)}
        cut = None
        if current[0] == "concat":
            del values["cut"]
            cut = (parameters[1], parameters[0] if values["axis"] is None else values["axis"])
        output = values.pop("output", None) or 0
        fixed = tuple((kind, value) for kind, value in values.items() if value is not None)
        words = dict(zip(kinds, parameters, strict=True))
        free = tuple((kind, words[kind]) for kind, value in values.items() if value is None)
        checks.append(OperatorMatch(register, current[0], output, fixed, free, tuple(targets), cut))
    kinds_of = tuple(None if isinstance(operand, str) else operand[0] for operand in arguments(pattern)[2])
    return CompiledPattern((pattern[0], *kinds_of), tuple(checks), registers)


class Kinds:
    """Kinds that the nodes of a store count as: an operator's name, ``"unary"``, and the constants they equal."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[int, tuple[str | None, ...]] = {}

    def names(self, number: int) -> tuple[str | None, ...]:
        """All names by which a pattern may ask for a node; None, which stands for any, first."""
        kinds = self._known.get(number)
        if kinds is None:
            kinds = self._known[number] = self._find(number)
        return kinds

    def _find(self, number: int) -> tuple[str | None, ...]:
        node = self.store.nodes[number]
        if node.op in ACTIVATIONS:
            return None, "unary"
        if node.op == CONSTANT:
            array = self.store.arrays[number]
            return (None, *(op for op in CONSTANTS if is_constant(op, array)))
        return None, node.op


def is_constant(op: str, array: np.ndarray[Any, Any]) -> bool:
    """Return whether an array is the constant ``op`` of its shape, up to rounding in float64.

    A ninth rounded to float32 is no ninth: a rule that says so would fail the check of its result.

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
        (constant,) = operator(op).evaluate(Real(), [], {"shape": array.shape})
    except ShapeMismatch:
        return False
    return bool(np.array_equal(constant[0], array.astype(np.float64)))


def run(source: CompiledPattern, store: Store, kinds: Kinds, root: StoreValue) -> Bindings | None:
    """The bindings under which a compiled pattern is ``root``; None if it is not."""
    registers, bindings = [root] * source.registers, dict[str, Any]()
    for check in source.checks:
        if not holds(check, store, kinds, registers[check.register], bindings, registers):
            return None
    return bindings


def holds(
    check: OperatorMatch, store: Store, kinds: Kinds, value: StoreValue, bindings: Bindings, registers: list[StoreValue]
) -> bool:
    """Return whether a value is what a check asks for; binds names, and sets the registers of what it reads.

    Args:
        check: one line of a compiled pattern.
        store: where the value is.
        kinds: of the store's nodes.
        value: in the check's register.
        bindings: what names stand for so far; is added to.
        registers: are set.
    """
    # This runs for every candidate at every node of every state, so the cheapest questions come first, and operands
    # are only noted: those that are patterns have checks of their own further down the line.
    node = store.nodes[value.node]
    if check.op not in kinds.names(value.node) or value.output != check.output:
        return False
    if check.op in CONSTANTS:
        return bool(bindings.setdefault(check.names[0][1], node.shapes[0]) == node.shapes[0])
    if check.op == "matmul" and len(node.shapes[0]) != 2:
        return False  # an axis in a pattern is one of a matrix
    parameters = dict(node.parameters)
    if check.op == "unary":
        parameters["function"] = node.op
    for kind, value_fixed in check.fixed:
        if parameters[kind] != value_fixed:
            return False
    for kind, name in check.names:
        if bindings.setdefault(name, parameters[kind]) != parameters[kind]:
            return False
    for target, operand in zip(check.inputs, node.inputs, strict=True):
        if isinstance(target, int):
            registers[target] = operand
        elif bindings.setdefault(target, operand) != operand:
            return False
    if check.cut:
        name, axis = check.cut
        size = store.shape(node.inputs[0])[bindings[axis] if isinstance(axis, str) else axis]
        return bool(bindings.setdefault(name, size) == size)
    return True


# -- rules on graphs ---------------------------------------------------------------------------------------------------
Index = dict[Key, list[tuple[int, int, CompiledPattern]]]


@dataclass(frozen=True)
class DirectedRule:
    """A rule in one direction, compiled.

    Attributes:
        rule: the rule.
        reverse: from right to left.
        sources: of every output of the source side.
        shared: names that the patterns of two outputs share.
        symmetric: whether both patterns are one but for names, so that each pair is met twice.
        steps: conditions and definitions, and (``late``) those that are known once the target is built.
        targets: one builder per output.
        tensors, chosen: names of tensors, and of parameters that `conditions.solve` chooses.
    """

    rule: PatternRule
    reverse: bool
    sources: tuple[tuple[CompiledPattern, ...], ...]
    shared: tuple[str, ...]
    symmetric: bool
    steps: list[OrderedCondition]
    late: list[Condition]
    targets: tuple[Builder, ...]
    tensors: tuple[str, ...]
    chosen: tuple[str, ...]

    @property
    def common(self) -> tuple[int, ...]:
        """Positions in ``tensors`` of those that every output of the source side is made from."""
        single = len(self.sources) == 1
        return tuple(n for n, tensor in enumerate(self.tensors) if single or tensor in self.shared)

    @property
    def growth(self) -> int:
        """Operators of the target beyond those of the source, constants not counted."""
        sides = (self.rule.right, self.rule.left) if self.reverse else (self.rule.left, self.rule.right)
        source, target = (_operators(side) for side in sides)
        return target - source

    @property
    def name(self) -> str:
        """The rule's id and its direction: ``>`` from left to right."""
        return f"{self.rule.id}{'<' if self.reverse else '>'}"


def _operators(patterns: Sequence[str]) -> int:
    """Applications in patterns, equal ones once and both outputs of a split as one."""
    applications: set[str] = set()

    def walk(pattern: Pattern) -> None:
        if isinstance(pattern, list):
            if pattern[0] not in CONSTANTS:
                applications.add(repr(["split", *pattern[2:]] if pattern[0] == "split" else pattern))
            for part in pattern[1:]:
                walk(part)

    for text in patterns:
        walk(parse(text))
    return len(applications)


@functools.cache
def directions(rule: PatternRule) -> tuple[DirectedRule, ...]:
    """The directions in which one side of a rule determines the other."""
    sides = [[parse(text) for text in side] for side in (rule.left, rule.right)]
    both = (_directed(rule, reverse, sides[reverse], sides[not reverse]) for reverse in (False, True))
    return tuple(directed for directed in both if directed is not None)


def _directed(rule: PatternRule, reverse: bool, source: list[Pattern], target: list[Pattern]) -> DirectedRule | None:
    lines = determined(source, target, rule.where)
    if lines is None:
        return None
    names_by_output = [names(output) for output in source]
    each_order = [flips(output) for output in source] if len(source) > 1 else [orders(source[0], target[0], rule.where)]
    sources = tuple(tuple(map(compiled, forms)) for forms in each_order)
    shared = tuple(sorted(set.intersection(*names_by_output))) if len(names_by_output) == 2 else ()
    symmetric = len(source) == 2 and _shape(source, shared) == _shape(source[::-1], shared)
    tensors = dict.fromkeys(word for pattern in source for word, kind in words(pattern) if kind is None)
    chosen = tuple(name for step in lines[0] if len(step.defines) > 1 for name in step.defines)
    targets = tuple(builder(output) for output in target)
    return DirectedRule(rule, reverse, sources, shared, symmetric, *lines, targets, tuple(tensors), chosen)


def _shape(patterns: Sequence[Pattern], shared: Collection[str]) -> str:
    """Patterns with the names that are not shared numbered by first use."""
    numbers: dict[str, int] = {}

    def word(pattern: Pattern) -> Any:
        if isinstance(pattern, list):
            return [pattern[0], *map(word, pattern[1:])]
        local = pattern in named and pattern not in shared
        return numbers.setdefault(pattern, len(numbers)) if local else pattern

    named = set().union(*(names(pattern) for pattern in patterns))
    return repr([word(pattern) for pattern in patterns])


@dataclass(frozen=True, slots=True)
class Match:
    """A place where a rule applies.

    Attributes:
        directed: the rule and its direction.
        store: where the sites are.
        sites: values that it replaces, one per output of the rule.
        bindings: names of the rule -> values and parameters.
    """

    directed: DirectedRule = field(repr=False)
    store: Store = field(repr=False)
    sites: tuple[StoreValue, ...]
    bindings: Bindings

    @property
    def rule(self) -> str:
        """The rule's id, its direction, and the value of every name that was chosen and not found."""
        chosen = [f"{name}={self.bindings[name]}" for name in self.directed.chosen]
        return " ".join([self.directed.name, *chosen])

    @property
    def bound(self) -> tuple[StoreValue, ...]:
        """The values that the rule's variables stand for, in the order of the variables."""
        return tuple(self.bindings[name] for name in self.directed.tensors)

    @property
    def shared(self) -> tuple[int, ...]:
        """Positions in ``bound`` of the variables that every output of the rule is made from."""
        return self.directed.common

    def build(self) -> dict[StoreValue, StoreValue]:
        """Make the other side in the store: site -> its replacement.

        Raises:
            ShapeMismatch: it does not fit here.
        """
        store, bindings = self.store, dict(self.bindings)
        dtype = store.dtype(self.sites[0])
        replacements = [target(store, bindings, dtype) for target in self.directed.targets]
        steps = order(self.directed.late, bindings)[0]
        require(next(solve(steps, bindings, store.shape), None) is not None, self.rule, self.bindings, "its conditions")
        for old, new in zip(self.sites, replacements, strict=True):
            require(store.shape(old) == store.shape(new), self.rule, store.shape(new), f"{store.shape(old)}")
        return dict(zip(self.sites, replacements, strict=True))


class Matcher:
    """Some rules in all their directions, indexed.

    Attributes:
        directed: the rules, each in the directions in which it may be applied.
        index: (operator of a root, operators of what it reads) -> (position in ``directed``, output, source).
        by_name: the same for each directed rule alone, by its name.

    Example:
        >>> store = Store()
        >>> x = store.input("x", (2, 3), "float32")
        >>> y, = store.add("transpose", store.add("relu", x)[0], perm=(1, 0))
        >>> rule = PatternRule(("(transpose t (unary f x))",), ("(unary f (transpose t x))",))
        >>> match, = Matcher([rule]).matches(StoredGraph(store, (y,)))
        >>> store.node(match.build()[y]).op
        'relu'
    """

    def __init__(
        self, rules: Iterable[PatternRule], growth: int | None = None, only: Collection[str] | None = None
    ) -> None:
        every = (way for rule in rules for way in directions(rule) if only is None or way.name in only)
        self.directed = [directed for directed in every if growth is None or directed.growth <= growth]
        self.index: Index = {}
        self.by_name: dict[str, Index] = {}
        for number, directed in enumerate(self.directed):
            index = self.by_name.setdefault(directed.name, {})
            for output, sources in enumerate(directed.sources):
                for source in sources:
                    index.setdefault(source.key, []).append((number, output, source))
                    self.index.setdefault(source.key, []).append((number, output, source))
        self._kinds = Kinds(Store())

    @property
    def unproved(self) -> set[str]:
        """Ids of rules without a proof."""
        return {directed.rule.id for directed in self.directed if directed.rule.verdict != "proved"}

    def matches(
        self, graph: StoredGraph, only: str | None = None, among: Iterable[int] | None = None
    ) -> Iterator[Match]:
        """All places where a rule applies.

        Args:
            graph: where to look.
            only: what `Match.rule` must be; None: anything.
            among: nodes of the graph, ascending, that may be replaced; all if None.
        """
        store = graph.store
        if self._kinds.store is not store:
            self._kinds = Kinds(store)
        kinds = self._kinds
        pairs: dict[int, tuple[list[Any], list[Any]]] = {}
        index = self.index if only is None else self.by_name.get(only.split(" ")[0], {})
        for number in graph.nodes() if among is None else among:
            for position, output, source in _candidates(store, kinds, number, index):
                directed = self.directed[position]
                root = StoreValue(number, source.checks[0].output)
                bindings = run(source, store, kinds, root)
                if bindings is None:
                    continue
                if len(directed.sources) == 2:
                    pairs.setdefault(position, ([], []))[output].append((root, bindings))
                else:
                    yield from with_conditions(directed, store, (root,), bindings, only)
        for position, sides in pairs.items():
            yield from joined(self.directed[position], store, sides, only)


def _candidates(store: Store, kinds: Kinds, number: int, index: Index) -> Iterator[tuple[int, int, CompiledPattern]]:
    """Patterns of an index that may match at a node."""
    node = store.nodes[number]
    if node.dtypes[0] not in FLOATS:
        return
    for op in kinds.names(number)[1:]:
        for key in itertools.product((op,), *(kinds.names(value.node) for value in node.inputs)):
            yield from index.get(key, ())


def with_conditions(
    directed: DirectedRule, store: Store, sites: tuple[StoreValue, ...], bindings: Bindings, only: str | None
) -> Iterator[Match]:
    """A match for every choice of parameters that meets the conditions."""
    for solved in solve(directed.steps, bindings, store.shape):
        match = Match(directed, store, sites, solved)
        if only is None or match.rule == only:
            yield match


def joined(
    directed: DirectedRule, store: Store, sides: tuple[list[Any], list[Any]], only: str | None
) -> Iterator[Match]:
    """Matches of a rule of two outputs: pairs that agree on the names both patterns use.

    Where they use none, or only a constant vector (half of a network may have the same), any two places would do; of
    these only such count whose first operands come from one node, as the parts of one split do.
    """

    def weak(value: Any) -> bool:
        constant = isinstance(value, StoreValue) and store.node(value).constant
        return not isinstance(value, StoreValue) or (constant and len(store.shape(value)) < 2)

    def common(root: StoreValue, bindings: Bindings) -> tuple[Any, ...]:
        shared = tuple(bindings[name] for name in directed.shared)
        return (*shared, store.node(root).inputs[0].node) if all(map(weak, shared)) else shared

    index: dict[tuple[Any, ...], list[tuple[StoreValue, Bindings]]] = {}
    for root, bindings in sides[1]:
        index.setdefault(common(root, bindings), []).append((root, bindings))
    for root, bindings in sides[0]:
        for other, more in index.get(common(root, bindings), ()):
            if root == other or (directed.symmetric and only is None and other < root):
                continue
            yield from with_conditions(directed, store, (root, other), {**bindings, **more}, only)
