"""Exact evaluation of operators: the integers modulo a prime, as one more `Arithmetic`."""

from __future__ import annotations

import functools
import hashlib
from fractions import Fraction
from typing import ClassVar

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Array

PRIMES = (1048573, 1048571)  # the two largest below 2**20: a product of residues is below 2**40, exact in float64


class Prime:
    """Integers modulo a prime below 2**20, held as float64 so that products run in BLAS and stay exact.

    Nonlinear functions become fixed polynomials, one per function, so that two expressions agree only where they agree
    for *every* function in its place; those with f(0) = 0 keep that. The maximum becomes a symmetric polynomial of the
    elements present, so padding is not the same as a zero. Sums of up to 2**13 products stay below 2**53.

    Example:
        >>> field = Prime(7)
        >>> field.multiply(np.array([3.0]), np.array([5.0]))
        array([1.])
        >>> field.divide(np.array([1.0]), np.array([2.0]))  # 4 * 2 = 8 = 1 (mod 7)
        array([4.])
    """

    # coefficients of x, x**2, x**3 and the constant
    POLYNOMIALS: ClassVar[dict[str, tuple[int, int, int, int]]] = {
        "relu": (523, 7919, 1, 0),
        "sigmoid": (104729, 31, 1, 4241),
        "tanh": (15485, 2741, 1, 0),
        "gelu": (32452, 6133, 1, 0),
        "rsqrt": (49979, 977, 1, 5003),
        "max": (86028, 131, 1, 7057),
    }

    def __init__(self, prime: int) -> None:
        self.prime = prime

    def _reduce(self, value: Array) -> Array:
        quotient = np.floor(value * (1.0 / self.prime))
        value = value - quotient * self.prime
        value += self.prime * (value < 0)
        value -= self.prime * (value >= self.prime)
        return value

    def constant(self, values: Array) -> Array:
        values = np.asarray(values, np.float64)
        residues = np.empty_like(values)
        for number in np.unique(values):
            meant = Fraction(float(number)).limit_denominator(1_000_000)  # below both primes, so it has an inverse
            residues[values == number] = meant.numerator * pow(meant.denominator, -1, self.prime) % self.prime
        return residues

    def add(self, left: Array, right: Array) -> Array:
        value = left + right
        value -= self.prime * (value >= self.prime)
        return value

    def multiply(self, left: Array, right: Array) -> Array:
        return self._reduce(left * right)

    def matmul(self, left: Array, right: Array) -> Array:
        return self._reduce(np.matmul(left, right))

    def divide(self, value: Array, count: Array) -> Array:
        inverse = {n: pow(int(n), -1, self.prime) for n in np.unique(count)}
        return self.multiply(value, np.vectorize(inverse.__getitem__, otypes=[np.float64])(count))

    def total(self, value: Array, axis: int) -> Array:
        return self._reduce(value.sum(axis))

    def unary(self, name: str, value: Array) -> Array:
        first, second, third, constant = self.POLYNOMIALS.get(name) or _polynomial(name)
        inner = self._reduce(value * third + second)
        inner = self._reduce(inner * value + first)
        return self._reduce(inner * value + constant)

    def maximum(self, value: Array, present: Array, axis: int) -> Array:
        return self.unary("max", self.total(self.unary("max", value) * present, axis))


@functools.cache
def _polynomial(name: str) -> tuple[int, int, int, int]:
    """Coefficients for a function that is not in the table: other names, other polynomials."""
    digest = hashlib.sha256(name.encode()).digest()
    first, second, constant = (2 + int.from_bytes(digest[4 * n : 4 * n + 4], "big") % 1_000_000 for n in range(3))
    return first, second, 1, constant
