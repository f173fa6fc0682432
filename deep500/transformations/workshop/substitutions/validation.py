"""Validation of the axioms: both sides evaluated modulo a prime, for many shapes.

An axiom is wrong if for some sizes the sides differ, or if one side fits together and the other does not, although its
conditions hold. Values are random residues: two different polynomials of degree d agree with probability at most
d / prime (Schwartz-Zippel).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.proofs.axioms import Axiom
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.substitutions.proofs.saturation import direction
from deep500.transformations.substitutions.proofs.validation import Draw, Sides
from deep500.transformations.substitutions.rules.patterns import parse


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
