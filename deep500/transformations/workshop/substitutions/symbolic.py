"""Validation of axioms for small sizes with symbols instead of numbers: every element is a polynomial that Z3 compares.

`Symbolic` is one more `Arithmetic`: the evaluators of the operators' specifications run on arrays of Z3's real terms.
Activations are unknown functions, of which nothing holds but f(0) = 0 where the real one has it. Optional, like
`solver`: ``pip install 'deep500[substitutions]'``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Array
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.proofs.axioms import Axiom
from deep500.transformations.substitutions.proofs.solver import engine
from deep500.transformations.substitutions.proofs.validation import Sides
from deep500.transformations.substitutions.rules.patterns import parse
from deep500.transformations.workshop.substitutions.combinations import Space
from deep500.transformations.workshop.substitutions.exhaustive import legal_rows
from deep500.transformations.workshop.substitutions.validation import Failure

ZERO_AT_ZERO = ("relu", "tanh", "gelu")
LIMIT = 200_000  # Z3's resource units for an element that normal forms do not decide


class Symbolic:
    """Z3's real terms in arrays of objects.

    Attributes:
        facts: what holds of the unknown functions.
    """

    def __init__(self) -> None:
        self.z3 = engine()
        real = self.z3.RealSort()
        self.functions = {name: self.z3.Function(name, real, real) for name in ("sigmoid", "rsqrt", *ZERO_AT_ZERO)}
        self.facts = [self.functions[name](0) == 0 for name in ZERO_AT_ZERO]

    def constant(self, values: Array) -> Array:
        """Rational constants."""
        exact = np.frompyfunc(
            lambda number: self.z3.RealVal(Fraction(float(number)).limit_denominator(1_000_000)), 1, 1
        )
        return np.asarray(exact(np.asarray(values, np.float64)), object)

    def add(self, left: Array, right: Array) -> Array:
        """Elementwise sum."""
        return left + right

    def multiply(self, left: Array, right: Array) -> Array:
        """Elementwise product."""
        return left * right

    def matmul(self, left: Array, right: Array) -> Array:
        """Matrix product over the last two axes."""
        return np.matmul(left, right)

    def divide(self, value: Array, count: Array) -> Array:
        """Quotient by positive integers."""
        return value * self.constant(1.0 / np.asarray(count, np.float64))

    def total(self, value: Array, axis: int) -> Array:
        """Sum over one axis."""
        return np.asarray(value.sum(axis), object)

    def unary(self, name: str, value: Array) -> Array:
        """An unknown function, one per name; of those that users registered nothing is known."""
        real = self.z3.RealSort()
        function = self.functions.setdefault(name, self.z3.Function(name, real, real))
        apply = np.frompyfunc(lambda element: function(self.z3.simplify(self.z3.RealVal(0) + element, som=True)), 1, 1)
        return np.asarray(apply(value), object)

    def maximum(self, value: Array, present: Array, axis: int) -> Array:
        """Greatest of the elements that are present."""
        present = np.broadcast_to(present, value.shape)
        greatest = np.empty(np.moveaxis(value, axis, -1).shape[:-1], object)
        rows = zip(
            np.moveaxis(value, axis, -1).reshape(-1, value.shape[axis]),
            np.moveaxis(present, axis, -1).reshape(-1, value.shape[axis]),
            strict=True,
        )
        for n, (elements, there) in enumerate(rows):
            greatest.ravel()[n] = self._greatest(
                [element for element, real in zip(elements, there, strict=True) if real]
            )
        return greatest

    def _greatest(self, elements: list[Any]) -> Any:
        greatest = elements[0]
        for element in elements[1:]:
            greatest = self.z3.If(element > greatest, element, greatest)
        return greatest

    def equal(self, left: Any, right: Any) -> bool | None:
        """Return whether two terms are equal for all values; None if Z3 does not decide within its limit."""
        difference = self.z3.simplify(self.z3.RealVal(0) + left - right, som=True)
        if self.z3.is_rational_value(difference):
            return bool(difference.numerator_as_long() == 0)
        solver = self.z3.Solver()
        solver.set("rlimit", LIMIT)
        solver.add(*self.facts, difference != 0)
        answer = solver.check()
        return None if answer == self.z3.unknown else bool(answer == self.z3.unsat)


@dataclass(frozen=True)
class Proved:
    """Outcome of a proof by symbols for one axiom.

    Attributes:
        combinations: of sizes and parameters for which a side fits together and the conditions hold.
        tried: how many of them were compared.
        undecided: how many of these Z3 did not decide.
        failure: the first for which the sides differ; None if none does.
        seconds: CPU seconds.
    """

    combinations: int
    tried: int
    undecided: int
    failure: Failure | None
    seconds: float


def prove_small(axiom: Axiom, space: Space | None = None, sample: int | None = None, seed: int = 0) -> Proved:
    """Prove an axiom for all combinations of small sizes, or for a sample, with every element a symbol.

    Args:
        axiom: what is to hold.
        space: sizes that are combined; 1 and 2, and kernels of 1 and 3, without it.
        sample: greatest number of combinations, drawn at random; all without it.
        seed: of the sample.

    Raises:
        MissingEngine: Z3 is not installed.
    """
    start, numbers = time.process_time(), Symbolic()
    rows = list(_choices(axiom, space or Space((1, 2))))
    chosen = list(range(len(rows)))
    if sample is not None and sample < len(rows):
        chosen = sorted(np.random.default_rng(seed).choice(len(rows), sample, replace=False).tolist())
    undecided = 0
    for tried, n in enumerate(chosen, 1):
        left, right, shapes, known = rows[n]
        what = _compare(numbers, axiom, (left, right), shapes, known)
        undecided += what is None
        if what:
            return Proved(len(rows), tried, undecided, Failure({**known, **shapes}, what), time.process_time() - start)
    return Proved(len(rows), len(chosen), undecided, None, time.process_time() - start)


def _choices(axiom: Axiom, space: Space) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """(from, to, shapes, parameters) of every combination, once."""
    for left, right, legal, columns in legal_rows(axiom, space):
        names = [name for name in columns if name in legal.domains]
        for row in zip(*(columns[name] for name in names), strict=True):
            shapes = {name: legal.domains[name][code] for name, code in zip(names, row, strict=True)}
            yield left, right, shapes, dict(legal.known)


def _compare(
    numbers: Symbolic, axiom: Axiom, sides: tuple[str, str], shapes: dict[str, Any], known: dict[str, Any]
) -> str | None:
    """Empty: equal; None: not decided; else how the sides differ."""
    values = {name: _symbols(numbers, name, shape) for name, shape in shapes.items()}
    whole = Sides(values, {**known, **shapes}, numbers)
    left = whole.evaluate(parse(sides[0]))
    whole.conditions(axiom.where)
    try:
        right = whole.evaluate(parse(sides[1]))
    except ShapeMismatch as problem:
        return f"{sides[1]} does not fit together: {problem}"
    if left.shape != right.shape:
        return f"shapes {left.shape[1:]} and {right.shape[1:]}"
    verdicts = {numbers.equal(*elements) for elements in zip(left.ravel(), right.ravel(), strict=True)}
    if False in verdicts:
        return "elements differ"
    return None if None in verdicts else ""


def _symbols(numbers: Symbolic, name: str, shape: tuple[int, ...]) -> Array:
    symbols = np.empty(shape, object)
    for index in np.ndindex(*shape):
        symbols[index] = numbers.z3.Real("_".join([name, *map(str, index)]))
    return symbols[None]
