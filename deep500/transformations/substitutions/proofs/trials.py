"""Trials of rules on random sizes: modulo primes, where agreement means equality, and in real numbers, where a
difference is a counter-example.

In a finite field an activation is some polynomial, so that a rule which needs what only this activation has (that
``relu`` of ``relu`` is ``relu``) fails there and holds all the same: only real numbers refute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array, Real
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.proofs.axioms import Axiom, equations
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.substitutions.proofs.validation import Draw, Sides
from deep500.transformations.substitutions.rules.patterns import parse
from deep500.transformations.substitutions.rules.rule_file import PatternRule

TRIALS, LEGAL = 6000, 200  # at most this many choices of sizes, until that many fit
SHOWN = 12  # counter-examples of which the smallest is shown
LARGEST = 1e-9  # relative difference in float64 that rounding explains, with values of at most 3
Values = Callable[[np.random.Generator, tuple[int, ...]], Array]


@dataclass(frozen=True)
class Counterexample:
    """A place where the two sides of a rule differ, in real numbers.

    Attributes:
        output: which output of the rule.
        values: name of a tensor -> its value.
        parameters: name -> value, sizes among them.
        index: of an element that differs; None where shapes do.
        left, right: that element, or the shapes.
    """

    output: int
    values: Mapping[str, Array]
    parameters: Mapping[str, Any]
    index: tuple[int, ...] | None
    left: Any
    right: Any

    def __str__(self) -> str:
        tensors = [f"{name} = {_shown(value)}" for name, value in sorted(self.values.items())]
        settings = [f"{name} = {value}" for name, value in sorted(self.parameters.items())]
        if self.index is None:
            what = f"left has shape {self.left}, right has shape {self.right}"
        else:
            what = f"left{list(self.index)} = {self.left:.6g}, right{list(self.index)} = {self.right:.6g}"
        output = f" (output {self.output})" if self.output else ""
        return f"{', '.join([*tensors, *settings])}: {what}{output}"


def _shown(value: Array) -> str:
    return f"{value.tolist()}" if value.size <= 16 else f"an array {value.shape}"


def holds(rule: PatternRule, seed: int = 0) -> bool:
    """Return whether every output was equal, modulo primes, for all random sizes tried that both sides fit.

    Example:
        >>> holds(PatternRule(("(matmul x y)",), ("(matmul y x)",)))
        False
    """
    return all(0 < fitting == equal for fitting, equal in (field_trials(axiom, seed) for axiom in equations(rule)))


def field_trials(axiom: Axiom, seed: int = 0, legal: int = LEGAL) -> tuple[int, int]:
    """(choices of sizes for which both sides fit, and of these: with sides that are equal modulo a prime).

    It ends at the first that differs: one suffices.
    """
    fitting = equal = 0
    for _, sides in _fitting(axiom, seed, _residues, lambda trial: Prime(PRIMES[trial % len(PRIMES)])):
        fitting += 1
        equal += np.array_equal(*sides)
        if equal < fitting or fitting == legal:
            break
    return fitting, equal


def counterexample(rule: PatternRule, seed: int = 0, legal: int = 60) -> Counterexample | None:
    """Small whole numbers for which the sides of a rule differ by more than rounding; None where none were found.

    Args:
        rule: the rule.
        seed: of sizes and values.
        legal: choices of sizes that are tried.

    Example:
        >>> rule = PatternRule(("(matmul x y)",), ("(matmul y x)",))
        >>> found = counterexample(rule)
        >>> found.left != found.right
        True
        >>> idempotent = PatternRule(('(unary "relu" (unary "relu" x))',), ('(unary "relu" x)',))
        >>> counterexample(idempotent) is None, holds(idempotent)  # true, and of this activation only
        (True, False)
    """
    for output, axiom in enumerate(equations(rule)):
        differences: list[Counterexample] = []
        for fitting, (draw, (left, right)) in enumerate(_fitting(axiom, seed, _integers, lambda _: Real())):
            different = _difference(output, draw, left, right)
            differences += [different] if different is not None else []
            if fitting >= legal or len(differences) == SHOWN:
                break
        if differences:
            return min(
                differences,
                key=lambda difference: (
                    difference.index is None,
                    sum(value.size for value in difference.values.values()),
                ),
            )
    return None


def _difference(output: int, draw: _Drawn, left: Array, right: Array) -> Counterexample | None:
    known = functools.partial(Counterexample, output, draw.values, draw.parameters)
    if left.shape != right.shape:
        return known(None, left.shape[1:], right.shape[1:])
    with np.errstate(invalid="ignore"):
        apart = ~((left == right) | (np.isnan(left) & np.isnan(right)))
        apart &= ~(np.abs(left - right) <= LARGEST * (1 + np.abs(left) + np.abs(right)))
    if not apart.any():
        return None
    place = tuple(int(position) for position in np.argwhere(apart)[0])
    return known(place[1:], float(left[place]), float(right[place]))


@dataclass(frozen=True)
class _Drawn:
    values: dict[str, Array]
    parameters: dict[str, Any]


def _residues(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.integers(0, PRIMES[-1], shape).astype(np.float64)


def _integers(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.integers(-3, 4, shape).astype(np.float64)


def _fitting(
    axiom: Axiom, seed: int, values: Values, numbers: Callable[[int], Arithmetic]
) -> Iterator[tuple[_Drawn, tuple[Array, Array]]]:
    """Choices of sizes and values for which both sides fit together and the conditions hold, and both sides."""
    generator = np.random.default_rng(seed)
    patterns = parse(axiom.left), parse(axiom.right)
    for trial in range(TRIALS):
        draw = Draw(axiom, generator)
        arrays = {name: values(generator, (1, *shape)) for name, shape in draw.shapes.items()}
        sides = Sides(arrays, draw.parameters, numbers(trial))
        try:
            left, right = (sides.evaluate(pattern) for pattern in patterns)
            fits = sides.conditions(axiom.where)
        except (ShapeMismatch, IndexError):
            continue
        if fits:
            yield _Drawn({name: array[0] for name, array in arrays.items()}, dict(sides.bound)), (left, right)
