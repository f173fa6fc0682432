"""The number systems in which an operator specification is evaluated.

One evaluator per operator is written against `Arithmetic`; with `Real` it computes in float64. Where rules are made it
computes in other number systems too: modulo primes, and with symbols. All arrays have one leading batch axis, so that
many expressions are evaluated in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


class Arithmetic(Protocol):
    """Arithmetic of numbers that an operator's evaluator may use."""

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
