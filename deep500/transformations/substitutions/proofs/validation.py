"""Both sides of an axiom, evaluated for sizes from small pools, which agree often enough to fit together."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import Shape, ShapeMismatch, operator
from deep500.transformations.substitutions.proofs.axioms import Axiom
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.substitutions.rules.conditions import Condition, read_line
from deep500.transformations.substitutions.rules.patterns import CONSTANTS, Pattern, arguments, literal, parse

RANKED = {"matmul": 2, 'transpose "1,0"': 2, "identity": 2, "conv": 4, "enlarge": 4, "avgpool": 4, "maxpool": 4}
KERNELS = ((1, 1), (3, 3), (1, 3), (3, 1))
TRIALS = 6000  # at most this many choices of sizes


def walk(pattern: Pattern) -> Iterator[tuple[str, str, str]]:
    """(operator, parameter's kind, word) for every parameter of a pattern, outer operators first."""
    if isinstance(pattern, list):
        names, words, inputs = arguments(pattern)
        yield from ((pattern[0], name, word) for name, word in zip(names, words, strict=True))
        for operand in inputs:
            yield from walk(operand)


def operand_ranks(
    op: str, known: Mapping[str, Any], rank: int, tail: tuple[int, ...] | None
) -> list[tuple[int, tuple[int, ...] | None]]:
    """Rank of every operand and, of kernels, height and width, where the operator's result has these."""
    vector: tuple[int, tuple[int, ...] | None] = (1, None)
    if op == "conv":
        return [(4, None), (4, known["kernel"])]
    if op == "enlarge":
        return [(4, known["source"])]
    if op in ("scale", "shift"):
        return [(rank, tail), (0, None)]
    if op in ("bias", "gain"):
        return [(rank, tail), vector]
    if op == "batchnorm":
        return [(rank, tail), *[vector] * 4]
    return [(rank, tail)] * (1 if op == "unary" else operator(op).arity)


class Sides:
    """Evaluation of both sides of one axiom for one choice of sizes; binds cuts as concatenations show them."""

    def __init__(self, values: Mapping[str, Any], parameters: Mapping[str, Any], numbers: Arithmetic) -> None:
        self.values, self.numbers = values, numbers
        self.bound: dict[str, Any] = dict(parameters)

    def parameter(self, word: str, name: str) -> Any:
        value = literal(word, name)
        if value is not None:
            return value
        if word not in self.bound:
            raise ShapeMismatch(f"got no value for {word}; expected one from a condition; add it to the axiom")
        return self.bound[word]

    def evaluate(self, pattern: Pattern) -> Array:
        if isinstance(pattern, str):
            return self.values[pattern]
        op, (names, words, operands) = pattern[0], arguments(pattern)
        inputs = [self.evaluate(operand) for operand in operands]
        if op == "concat":
            self._cut(words[1], inputs[0].shape[1:], self.parameter(words[0], "axis"))
        known = {name: self.parameter(word, name) for name, word in zip(names, words, strict=True)}
        if op == "unary":
            return self.apply(known["function"], inputs, {}, 0)
        if op == "concat":
            del known["cut"]
        return self.apply(op, inputs, known, known.pop("output", 0))

    def apply(self, op: str, inputs: Sequence[Any], known: Mapping[str, Any], output: int) -> Any:
        """One output of an operator; raises `ShapeMismatch` where it does not fit."""
        operator(op).infer([array.shape[1:] for array in inputs], known)
        return operator(op).evaluate(self.numbers, inputs, known)[output]

    def _cut(self, word: str, shape: Shape, axis: int) -> None:
        if axis >= len(shape):
            raise ShapeMismatch(f"got axis {axis} of {shape}; expected one that it has; draw another")
        if word in self.bound and self.bound[word] != shape[axis]:
            raise ShapeMismatch(f"got a cut at {shape[axis]}; expected {self.bound[word]}; sizes differ")
        self.bound[word] = shape[axis]

    def conditions(self, where: tuple[str, ...]) -> bool:
        """Bind the definitions; False where a bound name has another value."""
        for line in map(read_line, where):
            value = self._define(line)
            if value is not None and self.bound.setdefault(line.name, value) != value:
                return False
        return True

    def _define(self, line: Condition) -> Any:
        if line.sign == "size":
            shape, axis = self.evaluate(line.operands[0]).shape[1:], self.parameter(line.operands[1], "axis")
            return shape[axis] if axis < len(shape) else None
        literals = [(word, literal(word, "cut")) for word in line.operands]
        values = [self.bound.get(word) if value is None else value for word, value in literals]
        return None if None in values else (math.prod if line.sign == "*" else sum)(values)


# fmt: off
CHOICES: dict[str, tuple[Any, ...]] = {
    "kernel": KERNELS, "source": KERNELS, "target": KERNELS, "strides": ((1, 1), (2, 1)),
    "dilations": ((1, 1), (2, 2)), "pads": ((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 2)), "groups": (1, 2, 3),
    "count_padding": (False, True), "function": tuple(ACTIVATIONS), "output": (0, 1), "cut": (1, 2, 3, 4),
    "factor": (1, 2, 3),
}
# fmt: on


class Draw:
    """Sizes and parameters of one trial: every name has a value of the kind of the place where it stands."""

    def __init__(self, axiom: Axiom, generator: np.random.Generator) -> None:
        self.generator = generator
        patterns = [parse(axiom.left), parse(axiom.right)]
        ranks = [RANKED[op] for op in RANKED if f"({op} " in axiom.left + axiom.right]
        self.rank = ranks[0] if ranks else int(generator.choice([2, 3, 4]))
        self.pool = generator.integers(1, 6, 2)
        self.parameters: dict[str, Any] = {}
        self.shapes: dict[str, Shape] = {}
        computed = {line.split("=", 1)[0].strip() for line in axiom.where if "= (" in line}
        uses = [use for pattern in patterns for use in walk(pattern)]
        shown = {word for op, kind, word in uses if op == "concat" and kind == "cut"}
        cut = re.compile(r"\(split \S+ \S+ (\S+) [a-z0-9]+\)")  # of what is no concatenation
        computed |= shown - set(cut.findall(axiom.left + axiom.right))
        for op, kind, word in uses:
            if literal(word, kind) is None and word not in computed and op not in CONSTANTS:
                self.parameters.setdefault(word, self._choose(kind))
        sides = Sides({}, self.parameters, Prime(PRIMES[0]))
        if sides.conditions(tuple(line for line in axiom.where if "= (" in line)):
            self.parameters = sides.bound
        groups = [sides.bound.get(word) or literal(word, kind) for _, kind, word in uses if kind == "groups"]
        if (most := max(filter(None, groups), default=1)) > 1 and generator.integers(2):
            self.pool = generator.integers(1, 4) * np.array([1, most])  # else several groups hardly ever fit
        # A condition may name a tensor that only the rule's other output reads.
        sizes = (parse(f"({line.split('=', 1)[1]})")[1] for line in axiom.where if "= size" in line)
        for pattern in [*patterns, *(tensor for tensor in sizes if isinstance(tensor, str))]:
            self._shape(pattern, self.rank, None)

    def size(self) -> int:
        return int(self.pool[self.generator.integers(2)])

    def _choose(self, kind: str) -> Any:
        if kind == "axis":
            return int(self.generator.integers(self.rank))
        if kind == "perm":
            return tuple(int(axis) for axis in self.generator.permutation(self.rank))
        return CHOICES[kind][self.generator.integers(len(CHOICES[kind]))]

    def _constant(self, op: str, window: tuple[int, ...]) -> Shape:
        size, groups = self.size(), int(self.generator.integers(1, 4))
        if op == "ones":
            return next(iter(self.shapes.values()))
        if op == "identity":
            return size, size
        divides = op == "identity_kernel" and size % groups == 0
        return (size, size // groups if divides else 1, *window)

    def _shape(self, pattern: Pattern, rank: int, kernel: tuple[int, ...] | None) -> None:
        """Draw a shape for every variable and constant of a pattern; ``kernel`` is that of convolution kernels."""
        if isinstance(pattern, str):
            tail = kernel or tuple(self.size() for _ in range(2))
            shape = (self.size(), self.size(), *tail)[:rank]
            self.shapes.setdefault(pattern, shape)
            return
        names, words, inputs = arguments(pattern)
        if pattern[0] in CONSTANTS:
            self.parameters.setdefault(words[0], self._constant(pattern[0], kernel or (3, 3)))
            return
        known = {name: literal(word, name) for name, word in zip(names, words, strict=True)}
        known = {
            name: self.parameters.get(word) if known[name] is None else known[name]
            for name, word in zip(names, words, strict=True)
        }
        operands = zip(inputs, operand_ranks(pattern[0], known, rank, kernel), strict=True)
        for operand, (inner, window) in sorted(operands, key=lambda pair: pair[0][0] in CONSTANTS):
            self._shape(operand, inner, window)


# -- choices of sizes that fit -----------------------------------------------------------------------------------------
Values = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""Numbers of a kind for a shape."""


@dataclass(frozen=True)
class Drawn:
    """Values and parameters for which both sides of an axiom fit together, and how they were drawn."""

    values: dict[str, Array]
    parameters: dict[str, Any]
    numbers: Arithmetic
    kind: Values


def fitting(
    axiom: Axiom, seed: int, kinds: Sequence[Values], numbers: Callable[[int], Arithmetic], trials: int | None = None
) -> Iterator[tuple[Drawn, tuple[Array, Array]]]:
    """Choices of sizes and values for which both sides fit together and the conditions hold, and both sides."""
    generator = np.random.default_rng(seed)
    patterns = parse(axiom.left), parse(axiom.right)
    for trial in range(TRIALS if trials is None else trials):
        draw = Draw(axiom, generator)
        kind = kinds[trial % len(kinds)]
        arrays = {name: kind(generator, (1, *shape)) for name, shape in draw.shapes.items()}
        sides = Sides(arrays, draw.parameters, numbers(trial))
        try:
            with np.errstate(all="ignore"):
                left, right = (sides.evaluate(pattern) for pattern in patterns)
            fits = sides.conditions(axiom.where)
        except (ShapeMismatch, IndexError):
            continue
        if fits:
            known = {name: array[0] for name, array in arrays.items()}
            yield Drawn(known, dict(sides.bound), sides.numbers, kind), (left, right)
