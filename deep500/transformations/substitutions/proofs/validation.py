"""Validation of the axioms: both sides evaluated modulo a prime, for many shapes.

An axiom is wrong if for some sizes the sides differ, or if one side fits together and the other does not, although its
conditions hold. Shapes are drawn from small pools, so that sizes agree often enough to fit. Values are random residues:
two different polynomials of degree d agree with probability at most d / prime (Schwartz-Zippel).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import Shape, ShapeMismatch, operator
from deep500.transformations.substitutions.proofs.axioms import Axiom
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.substitutions.proofs.saturation import direction
from deep500.transformations.substitutions.rules.patterns import CONSTANTS, Pattern, arguments, literal, parse

RANKED = {"matmul": 2, 'transpose "1,0"': 2, "identity": 2, "conv": 4, "enlarge": 4, "avgpool": 4, "maxpool": 4}
KERNELS = ((1, 1), (3, 3), (1, 3), (3, 1))


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


@dataclass(frozen=True)
class Failure:
    """Sizes for which an axiom is wrong.

    Attributes:
        shapes: variable -> shape (or value, for parameters).
        what: how the sides differ.
    """

    shapes: dict[str, Any]
    what: str


@dataclass(frozen=True)
class Validation:
    """Outcome of validating one axiom.

    Attributes:
        tried: choices of sizes drawn.
        legal: choices for which a side fits together and the conditions hold.
        failure: the first that fails; None if none does.
    """

    tried: int
    legal: int
    failure: Failure | None


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
        for line in where:
            name, body = (part.strip() for part in line.split("=", 1))
            value = self._define(body)
            if value is None:
                continue
            if self.bound.setdefault(name, value) != value:
                return False
        return True

    def _define(self, body: str) -> Any:
        if body.startswith("size"):
            pattern = parse(f"({body})")
            shape = self.evaluate(pattern[1]).shape[1:]
            axis = self.parameter(pattern[2], "axis")
            return shape[axis] if axis < len(shape) else None
        if body.startswith("("):
            sign, *words = parse(body)
            values = [self.bound.get(word) if (value := literal(word, "cut")) is None else value for word in words]
            return None if None in values else (math.prod if sign == "*" else sum)(values)
        return self.parameter(body, "size")


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


def directions(axiom: Axiom) -> Iterator[tuple[str, str]]:
    """Ways in which an axiom rewrites: (from, to), as far as one side names what the other needs."""
    for left, right in ((axiom.left, axiom.right), (axiom.right, axiom.left)):
        if direction(left, right, axiom.where):
            yield left, right


def validate(axiom: Axiom, seed: int = 0, trials: int = 20_000, legal: int = 50) -> Validation:
    """Evaluate both sides of an axiom for random sizes, until ``legal`` choices fit or ``trials`` are drawn.

    Example:
        >>> validation = validate(Axiom("wrong", "(matmul x y)", "(matmul y x)"))
        >>> validation.failure is None
        False
    """
    generator, fitting, tried = np.random.default_rng(seed), 0, 0
    while tried < trials and fitting < legal:
        tried += 1
        draw = Draw(axiom, generator)
        numbers = Prime(PRIMES[tried % len(PRIMES)])
        values = {
            name: generator.integers(0, numbers.prime, (1, *shape)).astype(np.float64)
            for name, shape in draw.shapes.items()
        }
        for left, right in directions(axiom):
            what = compare(Sides(values, draw.parameters, numbers), left, right, axiom.where)
            fitting += what is not None
            if what:
                return Validation(tried, fitting, Failure({**draw.shapes, **draw.parameters}, what))
    return Validation(tried, fitting, None)


def compare(sides: Sides, left: str, right: str, where: tuple[str, ...]) -> str | None:
    """Difference of the sides of an axiom in words; None where it does not apply, empty where they are equal."""
    try:
        first = sides.evaluate(parse(left))
        if not sides.conditions(where):
            return None
    except (ShapeMismatch, IndexError):
        return None
    try:
        second = sides.evaluate(parse(right))
    except ShapeMismatch as problem:
        return f"{right} does not fit together: {problem}"
    if first.shape != second.shape:
        return f"shapes {first.shape[1:]} and {second.shape[1:]}"
    return "" if np.array_equal(first, second) else f"{int((first != second).sum())} of {first.size} elements differ"
