"""Trials of rules on random sizes: modulo primes, where agreement means equality, and in real numbers, where a
difference is a counter-example.

In a finite field an activation is some polynomial, so that a rule which needs what only this activation has (that
``relu`` of ``relu`` is ``relu``) fails there and holds all the same. A rule without activations is an equation of
polynomials: integers for which its sides differ modulo a prime refute it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Array, Real
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.proofs.axioms import Axiom, equations
from deep500.transformations.substitutions.proofs.kernels import Magnitude
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.substitutions.proofs.validation import Drawn, Sides, Values, fitting
from deep500.transformations.substitutions.rules.patterns import parse
from deep500.transformations.substitutions.rules.rule_file import PatternRule

LEGAL = 200  # choices of sizes that fit
SHOWN = 12  # counter-examples of which the smallest is shown
LARGEST = 1e-9  # relative difference in float64 that rounding explains, with values of at most 4
WIDE = 1e-12  # likewise as a part of the largest that the terms of a sum can be
NONLINEAR = frozenset({"unary", "maxpool", "batchnorm"})
ELEMENTWISE = frozenset(
    {"unary", "add", "mul", "scale", "shift", "gain", "bias", "concat", "split", "transpose", "ones"}
)
"""Of rules that are tried on extreme numbers: products of matrices make nan of infinities that meet a 0."""


@dataclass(frozen=True)
class Counterexample:
    """A place where the two sides of a rule differ, in real numbers.

    Attributes:
        output: which output of the rule.
        values: name of a tensor -> its value.
        parameters: name -> value, sizes among them.
        index: of an element that differs; None where shapes do.
        left, right: that element, or the shapes.
        prime: the sides are these modulo it; None: in float64.
    """

    output: int
    values: Mapping[str, Array]
    parameters: Mapping[str, Any]
    index: tuple[int, ...] | None
    left: Any
    right: Any
    prime: int | None = None

    def __str__(self) -> str:
        tensors = [f"{name} = {_shown(value)}" for name, value in sorted(self.values.items())]
        settings = [f"{name} = {value}" for name, value in sorted(self.parameters.items())]
        if self.index is None:
            what = f"left has shape {self.left}, right has shape {self.right}"
        else:
            what = f"left{list(self.index)} = {self.left:.6g}, right{list(self.index)} = {self.right:.6g}"
        output = f" (output {self.output})" if self.output else ""
        modulo = f" modulo {self.prime}" if self.prime else ""
        return f"{', '.join([*tensors, *settings])}: {what}{modulo}{output}"


def _shown(value: Array) -> str:
    return f"{value.tolist()}" if value.size <= 16 else f"an array {value.shape}"


def holds(rule: PatternRule, seed: int = 0) -> bool:
    """Return whether every output was equal, modulo primes, for all random sizes tried that both sides fit.

    Example:
        >>> holds(PatternRule(("(matmul x y)",), ("(matmul y x)",)))
        False
    """
    return all(0 < fits == equal for fits, equal in (field_trials(axiom, seed) for axiom in equations(rule)))


def field_trials(axiom: Axiom, seed: int = 0, legal: int = LEGAL) -> tuple[int, int]:
    """(choices of sizes for which both sides fit, and of these: with sides that are equal modulo a prime).

    It ends at the first that differs: one suffices.
    """
    fits = equal = 0
    for _, sides in fitting(axiom, seed, (_residues,), lambda trial: Prime(PRIMES[trial % len(PRIMES)])):
        fits += 1
        equal += np.array_equal(*sides)
        if equal < fits or fits == legal:
            break
    return fits, equal


def polynomial(rule: PatternRule) -> bool:
    """Return whether both sides are polynomials, so that what differs in a finite field differs.

    Example:
        >>> polynomial(PatternRule(("(add x y)",), ("(add y x)",))), polynomial(PatternRule(("(relu x)",), ("x",)))
        (True, False)
    """
    return not rule.operators & {*NONLINEAR, *ACTIVATIONS}


def field_counterexample(rule: PatternRule, seed: int = 0) -> Counterexample | None:
    """Integers for which the sides of a `polynomial` rule differ, small ones if there are; None where none were seen.

    Example:
        >>> str(field_counterexample(PatternRule(("(scale x s)",), ("(scale (scale x s) s)",))))[:8]
        's = -3.0'
    """
    for output, axiom in enumerate(equations(rule)):
        generator = np.random.default_rng(seed)
        every = fitting(axiom, seed, (_residues,), lambda trial: Prime(PRIMES[trial % len(PRIMES)]))
        for draw, (left, right) in itertools.islice(every, LEGAL):
            if np.array_equal(left, right):
                continue
            for _ in range(SHOWN):  # a polynomial that is not zero is rarely zero at small integers either
                arrays = {name: _integers(generator, (1, *value.shape)) for name, value in draw.values.items()}
                sides = Sides(arrays, draw.parameters, Real())
                small = Drawn(
                    {name: array[0] for name, array in arrays.items()}, draw.parameters, sides.numbers, _integers
                )
                both = (sides.evaluate(parse(text)) for text in (axiom.left, axiom.right))
                if difference := _difference(output, small, *both):
                    return difference
            place = tuple(map(int, np.argwhere(left != right)[0])) if left.shape == right.shape else None
            apart = (left[place], right[place]) if place else (left.shape[1:], right.shape[1:])
            prime = getattr(draw.numbers, "prime", None)
            return Counterexample(output, draw.values, draw.parameters, place and place[1:], *apart, prime)
    return None


def counterexample(rule: PatternRule, seed: int = 0, legal: int = 60, extreme: bool = False) -> Counterexample | None:
    """Numbers for which the sides of a rule differ by more than rounding; None where none were found.

    Small integers and fractions in turn; with ``extreme`` also numbers of all sizes, signed zeros and infinities, where
    every operator works element by element.

    Args:
        rule: the rule.
        seed: of sizes and values.
        legal: choices of sizes that are tried.
        extreme: refute what holds for moderate numbers only.

    Example:
        >>> rule = PatternRule(("(matmul x y)",), ("(matmul y x)",))
        >>> found = counterexample(rule)
        >>> found.left != found.right
        True
        >>> idempotent = PatternRule(('(unary "relu" (unary "relu" x))',), ('(unary "relu" x)',))
        >>> counterexample(idempotent) is None, holds(idempotent)  # true, and of this activation only
        (True, False)
    """
    kinds: tuple[Values, ...] = (_integers, _fractions)
    if extreme and rule.operators <= {*ELEMENTWISE, *ACTIVATIONS}:
        kinds, legal = (*kinds, _wide, _special), 2 * legal
    for output, axiom in enumerate(equations(rule)):
        differences: list[Counterexample] = []
        for number, (draw, sides) in enumerate(fitting(axiom, seed, kinds, lambda _: Real())):
            terms = _terms(axiom, draw) if draw.kind is _wide else None
            different = _difference(output, draw, *sides, terms)
            differences += [different] if different is not None else []
            if number >= legal or len(differences) == SHOWN:
                break
        if differences:
            return min(differences, key=_size)
    return None


def _size(difference: Counterexample) -> tuple[bool, int, int]:
    """How hard it is to read."""
    return difference.index is None, sum(value.size for value in difference.values.values()), len(str(difference))


def _terms(axiom: Axiom, draw: Drawn) -> Array:
    """The largest that what is added up on either side can be."""
    arrays = {name: np.abs(value)[None] for name, value in draw.values.items()}
    sides = Sides(arrays, draw.parameters, Magnitude())
    return np.maximum(sides.evaluate(parse(axiom.left)), sides.evaluate(parse(axiom.right)))


def _difference(
    output: int, draw: Drawn, left: Array, right: Array, terms: Array | None = None
) -> Counterexample | None:
    """The first element that differs; with the size of ``terms`` only one that is finite on both sides."""
    known = functools.partial(Counterexample, output, draw.values, draw.parameters)
    if left.shape != right.shape:
        return known(None, left.shape[1:], right.shape[1:])
    with np.errstate(invalid="ignore", over="ignore"):
        apart = ~((left == right) | (np.isnan(left) & np.isnan(right)))
        allowed = LARGEST * (1 + np.abs(left) + np.abs(right))
        if terms is not None:
            allowed, apart = allowed + WIDE * terms, apart & np.isfinite(left) & np.isfinite(right)
        near = np.abs(left - right) <= allowed
        apart &= ~(near & np.isfinite(left) & np.isfinite(right))
    if not apart.any():
        return None
    place = tuple(int(position) for position in np.argwhere(apart)[0])
    return known(place[1:], float(left[place]), float(right[place]))


def _residues(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.integers(0, PRIMES[-1], shape).astype(np.float64)


def _integers(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.integers(-3, 4, shape).astype(np.float64)


def _fractions(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.integers(-32, 33, shape) / generator.integers(8, 12, shape)


def _wide(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(generator.choice([-1, 1], shape) * 10.0 ** generator.uniform(-8, 8, shape))


def _special(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(generator.choice([0.0, -0.0, np.inf, -np.inf, 1.0, -2.5], shape))
