"""Random graphs of the rule language in which given patterns occur, and their values in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.transformations.substitutions.graph.store import CONSTANT, Store, StoredGraph, StoreValue
from deep500.transformations.substitutions.operators.arithmetic import Real
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import ShapeMismatch, operator
from deep500.transformations.substitutions.proofs.validation import CHOICES, RANKED, operand_ranks
from deep500.transformations.substitutions.rules.building import builder
from deep500.transformations.substitutions.rules.conditions import Bindings, order, read_line, solve
from deep500.transformations.substitutions.rules.matching import DirectedRule
from deep500.transformations.substitutions.rules.patterns import Pattern, arguments, literal, parse

KERNELS = ((3, 3), (1, 1), (1, 3), (3, 1))


class Planter:
    """A store with a pool of inputs and of what was made from them.

    Args:
        seed: of everything.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.store = np.random.default_rng(seed), Store()
        self.pool: dict[int | tuple[int, ...], list[StoreValue]] = {}
        self.made: list[StoreValue] = []
        self.values: dict[int, tuple[np.ndarray[Any, Any], ...]] = {}
        size, other = (int(drawn) for drawn in self.random.choice([2, 3, 4], 2))
        for shape in ((), (size,), (other,), (size, size), (size, other), (other, size), (other, other)):
            self._inputs(shape, len(shape))
        for channels, count in ((size, size), (other, size), (2 * size, size)):
            self._inputs((count, channels, 4, 5), 4)
        for kernel in KERNELS:
            for shape in ((size, size), (size, 1), (2 * size, 1), (other, size)):
                self._inputs((*shape, *kernel), kernel)

    def _inputs(self, shape: tuple[int, ...], key: int | tuple[int, ...]) -> None:
        for _ in range(2):
            constant = bool(self.random.integers(2))
            array = self.random.normal(size=shape)
            value = (
                self.store.constant(array)
                if constant
                else self.store.input(f"x{len(self.store.nodes)}", shape, "float64")
            )
            self.values[value.node] = (array,)
            self.pool.setdefault(key, []).append(value)

    def pick(self, key: int | tuple[int, ...]) -> StoreValue:
        """A value of a rank, or a kernel of a size; kernels and images are both of rank 4."""
        values = self.pool[key]
        return values[self.random.integers(len(values))]

    # -- planting ---------------------------------------------------------------------------------------------------
    def plant(self, way: DirectedRule, attempts: int = 60) -> bool:
        """Make the source side of a rule out of values of the pool; False if no attempt fits together."""
        texts = way.rule.right if way.reverse else way.rule.left
        patterns = [parse(text) for text in texts]
        for _ in range(attempts):
            bindings = self._draw(way, patterns)
            try:
                made = [builder(value)(self.store, bindings, "float64") for value in patterns]
            except (ShapeMismatch, KeyError):
                continue
            self.made += made
            for value in made:
                self.pool.setdefault(len(self.store.shape(value)), []).append(value)
            return True
        return False

    def _draw(self, way: DirectedRule, patterns: list[Pattern]) -> Bindings:
        """Values for all names but those of cuts that concatenations show."""
        bindings: Bindings = {}
        text = " ".join((*way.rule.left, *way.rule.right))
        rank = next((RANKED[op] for op in RANKED if f"({op} " in text), int(self.random.choice([2, 4])))
        for pattern in patterns:
            self._names(pattern, rank, None, bindings)
        steps = order([read_line(line) for line in way.rule.where if "= (" in line], set(bindings))[0]
        return next(solve(steps, bindings, self.store.shape), bindings)

    def _names(self, pattern: Pattern, rank: int, kernel: tuple[int, ...] | None, bindings: Bindings) -> None:
        if isinstance(pattern, str):
            bindings.setdefault(pattern, self.pick(rank if kernel is None else kernel))
            return
        kinds, given, inputs = arguments(pattern)
        shown = pattern[0] == "concat" or any(operand[0] == "concat" for operand in inputs)
        for kind, word in zip(kinds, given, strict=True):
            if literal(word, kind) is None and word not in bindings:
                if kind == "shape":
                    bindings[word] = self._constant(pattern[0], kernel or (3, 3))
                elif kind != "cut" or not shown:
                    bindings[word] = self._parameter(kind, rank, kernel)
        known = {
            kind: bindings.get(word) if literal(word, kind) is None else literal(word, kind)
            for kind, word in zip(kinds, given, strict=True)
        }
        for operand, (inner, window) in zip(inputs, operand_ranks(pattern[0], known, rank, kernel), strict=True):
            self._names(operand, inner, window, bindings)

    def _parameter(self, kind: str, rank: int, kernel: tuple[int, ...] | None) -> Any:
        if kind == "axis":
            return int(self.random.integers(min(2, rank)))
        if kind == "perm":
            return tuple(int(item) for item in self.random.permutation(rank))
        if kind == "pads":
            return ((1, 1, 1, 1), (0, 0, 0, 0), (0, 1, 0, 1))[self.random.integers(3)]
        if kind == "factor":
            return 2
        if kind == "groups":
            return int(self.random.choice([1, 2, 3, 4]))
        choices = CHOICES[kind]
        return choices[self.random.integers(len(choices))]

    def _constant(self, op: str, window: tuple[int, ...]) -> tuple[int, ...]:
        shape = self.store.shape(self.pick({"identity": 2, "ones": 2}.get(op, tuple(window))))
        return (shape[0], 1, *window) if op == "pool_kernel" else shape

    def noise(self, count: int) -> None:
        """Apply random operators to random values."""
        for _ in range(count):
            try:
                self.made.append(self._noise(int(self.random.choice([2, 2, 4]))))
            except ShapeMismatch:
                continue
            self.pool[len(self.store.shape(self.made[-1]))].append(self.made[-1])

    def _noise(self, rank: int) -> StoreValue:
        op = str(self.random.choice(["relu", "tanh", "gelu", "add", "mul", "scale", "bias", "concat", "matmul"]))
        if op in ACTIVATIONS:
            return self.store.add(op, self.pick(rank))[0]
        if op == "scale":
            return self.store.add(op, self.pick(rank), self.pick(0))[0]
        axis = {"axis": int(self.random.integers(2))} if op in ("bias", "concat") else {}
        return self.store.add(op, self.pick(rank), self.pick(1 if op == "bias" else rank), **axis)[0]

    # -- values -----------------------------------------------------------------------------------------------------
    def graph(self) -> StoredGraph:
        """What was made, as the outputs of a graph."""
        return StoredGraph(self.store, tuple(dict.fromkeys(self.made)))

    def value(self, value: StoreValue) -> np.ndarray[Any, Any]:
        """A value in float64, by the operators' specifications."""
        for number in self.store.reachable([value]):
            if number not in self.values:
                self.values[number] = self._evaluate(number)
        return self.values[value.node][value.output]

    def _evaluate(self, number: int) -> tuple[np.ndarray[Any, Any], ...]:
        node = self.store.nodes[number]
        if node.op == CONSTANT:
            return (self.store.arrays[number],)
        inputs = [self.values[item.node][item.output][None] for item in node.inputs]
        return tuple(item[0] for item in operator(node.op).evaluate(Real(), inputs, dict(node.parameters)))
