"""Refutation: sizes and values for which the two sides of a rule differ.

A rule's sizes are sums of symbols; here the symbols take other values than in generation, and equal ones too, so that
accidents of two shape environments are found. Values are residues modulo a prime.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.specification import Shape, ShapeMismatch
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.workshop.substitutions.rules import Rule
from deep500.transformations.workshop.substitutions.terms import (
    ENVIRONMENTS,
    KINDS,
    SYMBOLS,
    Expression,
    Sizes,
    Variable,
    evaluate,
    extent,
    show,
    variables,
)


@dataclass(frozen=True)
class Refutation:
    """A place where two sides differ.

    Attributes:
        output: which output of the rule.
        shapes: variable -> its shape.
        seed: of the residues, modulo ``prime``.
        prime: the field.
        index: of the first element that differs; None where the shapes do.
    """

    output: int
    shapes: dict[str, Shape]
    seed: int
    prime: int
    index: tuple[int, ...] | None


@functools.cache
def symbolic(sizes: Sizes) -> tuple[str, ...]:
    """The shortest sum of symbols ("1" is one of them) that a size is in every environment.

    Example:
        >>> symbolic(Sizes((4, 6)))
        ('c', 'c')
    """
    known = {**SYMBOLS, "1": (1,) * ENVIRONMENTS}
    for count in (1, 2, 3, 4):
        for names in itertools.combinations_with_replacement(known, count):
            if tuple(map(sum, zip(*(known[name] for name in names), strict=True))) == tuple(sizes):
                return names
    raise ShapeMismatch(f"got size {tuple(sizes)}; expected a sum of up to four symbols {sorted(known)}; name it so")


def _with_sizes(value: Any, symbols: Mapping[str, int]) -> Any:
    if isinstance(value, Sizes):
        return sum(symbols.get(name, 1) for name in symbolic(value))
    return tuple(_with_sizes(item, symbols) for item in value) if isinstance(value, tuple) else value


def instantiate(term: Expression, symbols: Mapping[str, int]) -> Expression:
    """The term with plain numbers for its sizes."""
    if isinstance(term, Variable):
        return term
    parameters = tuple((name, _with_sizes(value, symbols)) for name, value in term.parameters)
    return term._replace(parameters=parameters, inputs=tuple(instantiate(operand, symbols) for operand in term.inputs))


def counterexample(rule: Rule, seed: int = 0, trials: int = 12) -> Refutation | None:
    """The first of ``trials`` random choices of sizes (1 to 5) and values where a rule fails; None if none does.

    A choice for which a side has no shape is passed over: it does not meet the rule's conditions.

    Example:
        >>> from deep500.transformations.workshop.substitutions.terms import make
        >>> x, y = Variable("x", 1), Variable("x", 2)
        >>> wrong = Rule((make("relu", make("add", x, y)),), (make("add", make("relu", x), make("relu", y)),))
        >>> counterexample(wrong) is None
        False
    """
    generator = np.random.default_rng(seed)
    for trial in range(trials):
        symbols = {name: int(generator.integers(1, 6)) for name in SYMBOLS}
        prime = PRIMES[trial % len(PRIMES)]
        difference = _differs(rule, symbols, prime, int(generator.integers(2**31)))
        if difference is not None:
            return difference
    return None


def _differs(rule: Rule, symbols: Mapping[str, int], prime: int, seed: int) -> Refutation | None:
    generator, values = np.random.default_rng(seed), {}
    for variable in variables(*rule.source, *rule.target):
        shape = tuple(extent(size, symbols) for size in KINDS[variable.kind])
        values[variable] = generator.integers(0, prime, (1, *shape)).astype(np.float64)
    shapes = {show(variable): value.shape[1:] for variable, value in values.items()}
    for output, pair in enumerate(zip(rule.source, rule.target, strict=True)):
        try:
            left, right = (evaluate(instantiate(side, symbols), values, Prime(prime), 0) for side in pair)
        except (ShapeMismatch, ValueError):
            continue
        if left.shape != right.shape:
            return Refutation(output, shapes, seed, prime, None)
        if not np.array_equal(left, right):
            index = tuple(int(position) for position in np.argwhere(left != right)[0][1:])
            return Refutation(output, shapes, seed, prime, index)
    return None
