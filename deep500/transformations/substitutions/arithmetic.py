"""The number systems in which an operator specification is evaluated.

One evaluator per operator is written against `Arithmetic`; handing it `Real` gives the float64 evaluator, `Prime` the
integer one. All arrays have one leading batch axis, so that many expressions are evaluated in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
PRIMES = (1048573, 1048571)  # the two largest below 2**20: a product of residues is below 2**40, exact in float64


class Arithmetic(Protocol):
    """What an operator's evaluator may do with numbers."""

    def constant(self, values: Array) -> Array:
        """Bring rational constants (float64, the nearest to a fraction with a small denominator) into this system."""
        ...

    def add(self, left: Array, right: Array) -> Array:
        """Elementwise sum."""
        ...

    def multiply(self, left: Array, right: Array) -> Array:
        """Elementwise product."""
        ...

    def matmul(self, left: Array, right: Array) -> Array:
        """Matrix product over the last two axes."""
        ...

    def divide(self, value: Array, count: Array) -> Array:
        """Quotient by positive integers."""
        ...

    def total(self, value: Array, axis: int) -> Array:
        """Sum over one axis."""
        ...

    def unary(self, name: str, value: Array) -> Array:
        """A nonlinear function, by name."""
        ...

    def maximum(self, value: Array, present: Array, axis: int) -> Array:
        """Greatest of the elements that are ``present`` (a mask, broadcast) along one axis."""
        ...


def _erf(value: Array) -> Array:
    from scipy.special import erf  # here, because it takes longer to load than all of Deep500

    return np.asarray(erf(value))


class Real:
    """Float64: what the operators mean."""

    FUNCTIONS: ClassVar[dict[str, Callable[[Array], Array]]] = {
        "relu": lambda x: np.maximum(x, 0.0),
        "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
        "tanh": np.tanh,
        "gelu": lambda x: 0.5 * x * (1.0 + _erf(x / np.sqrt(2.0))),
        "rsqrt": lambda x: 1.0 / np.sqrt(x),
    }

    def constant(self, values: Array) -> Array:
        return np.asarray(values, np.float64)

    def add(self, left: Array, right: Array) -> Array:
        return left + right

    def multiply(self, left: Array, right: Array) -> Array:
        return left * right

    def matmul(self, left: Array, right: Array) -> Array:
        return np.matmul(left, right)

    def divide(self, value: Array, count: Array) -> Array:
        return value / count

    def total(self, value: Array, axis: int) -> Array:
        return value.sum(axis)

    def unary(self, name: str, value: Array) -> Array:
        return np.asarray(self.FUNCTIONS[name](value))

    def maximum(self, value: Array, present: Array, axis: int) -> Array:
        return np.where(present, value, -np.inf).max(axis)


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
        found = np.empty_like(values)
        for number in np.unique(values):
            meant = Fraction(float(number)).limit_denominator(1_000_000)  # below both primes, so it has an inverse
            found[values == number] = meant.numerator * pow(meant.denominator, -1, self.prime) % self.prime
        return found

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
        first, second, third, constant = self.POLYNOMIALS[name]
        inner = self._reduce(value * third + second)
        inner = self._reduce(inner * value + first)
        return self._reduce(inner * value + constant)

    def maximum(self, value: Array, present: Array, axis: int) -> Array:
        return self.unary("max", self.total(self.unary("max", value) * present, axis))
