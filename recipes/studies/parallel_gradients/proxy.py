"""The common part of both proxies: arrays in, arrays out, and one call each for result, gradient and tangent."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

Arrays = list[np.ndarray]


class ProblemPart:
    """One rank's part of a problem. Subclasses set the attributes.

    Attributes:
        name: of the proxy: its exports are called ``<name>_primal``, ``<name>_gradient``, ``<name>_tangent``.
        start: the inputs whose derivatives are asked for.
        sizes, at: how many numbers each input has in the whole problem, and where those here are among them.
        result_sizes, result_at: the same for results.
        result_owned: 1 for results that no lower rank has, else 0.
        in_place: whether results are written over inputs.
        constants, constant_shadows: structures of what has no derivative, and work space for shadows of some.
    """

    name: str
    start: Arrays
    sizes: list[int]
    at: Arrays
    result_sizes: list[int]
    result_at: Arrays
    result_owned: Arrays
    in_place: bool
    constants: list[ctypes.Structure]
    constant_shadows: list[ctypes.Structure]

    def values(self, inputs: Sequence[np.ndarray]) -> Arrays:
        """Copies of inputs, and room for results."""
        return [a.copy() for a in inputs] + ([] if self.in_place else [np.zeros_like(a) for a in self.result_owned])

    def results(self, values: Arrays) -> Arrays:
        """Those of ``values`` (or of shadows) that hold results."""
        return values if self.in_place else values[len(self.start) :]

    def primal(self, library: ctypes.CDLL, values: Arrays) -> None:
        """Compute the results."""
        arguments = (*map(address, values), *map(ctypes.byref, self.constants))
        getattr(library, f"{self.name}_primal")(*arguments)

    def gradient(self, library: ctypes.CDLL, values: Arrays, shadows: Arrays) -> None:
        """Derivatives by results, in ``shadows``, become derivatives by inputs; both are overwritten."""
        pairs = [address(a) for pair in zip(values, shadows, strict=True) for a in pair]
        first, *others = map(ctypes.byref, self.constants)
        shadow = ctypes.byref(self.constant_shadows[0])
        getattr(library, f"{self.name}_gradient")(*pairs, first, shadow, *others)

    def tangent(self, library: ctypes.CDLL, values: Arrays, shadows: Arrays) -> None:
        """A direction of inputs, in ``shadows``, becomes that of results."""
        pairs = [address(a) for pair in zip(values, shadows, strict=True) for a in pair]
        getattr(library, f"{self.name}_tangent")(*pairs, *map(ctypes.byref, self.constants))

    def reverse_shadows(self, weights: Sequence[np.ndarray]) -> Arrays:
        """Return what ``gradient`` takes for derivatives by results."""
        return ([] if self.in_place else [np.zeros_like(a) for a in self.start]) + [w.copy() for w in weights]

    def forward_shadows(self, direction: Sequence[np.ndarray]) -> Arrays:
        """Return what ``tangent`` takes for a direction of inputs."""
        return self.values(direction)

    def bytes_of_constants(self) -> bytes:
        """Everything that may not change."""
        return b"".join(a.tobytes() for a in self.unchanged())

    def unchanged(self) -> Arrays:
        """The arrays behind ``constants``."""
        raise NotImplementedError


def address(array: np.ndarray) -> ctypes.c_void_p:
    """Return where an array's numbers are."""
    return ctypes.c_void_p(array.ctypes.data)
