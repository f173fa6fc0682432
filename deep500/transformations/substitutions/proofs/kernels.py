"""Both sides of every axiom with the real kernels of a backend, in floating point.

The sides of an axiom compute one polynomial in two orders, so they may differ by rounding only: at most
8 eps sqrt(K) M, where K is the number of products and sums that meet in one element and M their magnitude: the same
expression with absolute values everywhere (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3; the
square root is his rule of thumb for rounding errors that are independent). Each side is also compared with the float64
evaluator of the operators' specifications, so a kernel that is wrong in the same way on both sides is found too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.errors import Deep500Error
from deep500.registry import load_backend
from deep500.transformations.substitutions.operators.arithmetic import Array, Real
from deep500.transformations.substitutions.proofs.lowering import AxiomCase, lower
from deep500.transformations.substitutions.proofs.validation import Sides

FACTOR = 8.0
BATCH = 48  # cases in one network: compilers' time grows faster than networks do


class Magnitude(Real):
    """Bounds instead of values: what rounding errors are proportional to. All inputs are absolute values.

    Attributes:
        terms: number of products and sums that meet in one element, over all operators so far.
    """

    def __init__(self) -> None:
        self.terms = 1

    def constant(self, values: Array) -> Array:
        return np.abs(np.asarray(values, np.float64))

    def add(self, left: Array, right: Array) -> Array:
        self.terms += 1
        return left + right

    def matmul(self, left: Array, right: Array) -> Array:
        self.terms += left.shape[-1]
        return np.matmul(left, right)

    def total(self, value: Array, axis: int) -> Array:
        self.terms += value.shape[axis]
        return value.sum(axis)

    def unary(self, name: str, value: Array) -> Array:
        return 1.0 + 1.2 * value  # no activation is steeper than 1.13 (gelu), nor larger than 1 at 0


@dataclass(frozen=True)
class KernelCheck:
    """Outcome of the axioms on one backend.

    Attributes:
        backend, dtype: what ran.
        cases: axioms, with sizes, that ran.
        worst: greatest difference as a share of its tolerance; below 1 all agree.
        differences: axiom -> how the kernels differ; empty if they agree.
        refused: axiom -> why the backend does not run it in this dtype.
        seconds: elapsed, compilation included.
    """

    backend: str
    dtype: str
    cases: int
    worst: float
    differences: dict[str, str]
    refused: dict[str, str]
    seconds: float


def check_kernels(backend: str, chosen: Sequence[AxiomCase], dtype: str = "float32") -> KernelCheck:
    """Run both sides of every case on a backend and compare them with each other and with the specification.

    Raises:
        MissingBackend: the backend is not installed.

    Example:
        >>> from deep500.transformations.substitutions.proofs.axioms import axioms
        >>> from deep500.transformations.substitutions.proofs.lowering import cases
        >>> check = check_kernels("reference", cases(axioms()[0], 2))
        >>> check.cases, check.worst < 1, check.differences
        (2, True, {})
    """
    start, worst, ran = time.perf_counter(), 0.0, 0
    differences: dict[str, str] = {}
    refused: dict[str, str] = {}
    load_backend(backend)
    pending = [list(chosen[n : n + BATCH]) for n in range(0, len(chosen), BATCH)]
    while pending:
        batch = pending.pop()
        try:
            results = _run(backend, batch, dtype)
        except Deep500Error as problem:
            if len(batch) == 1:
                refused.setdefault(batch[0].axiom.name, str(problem))
            else:  # one case may keep the others from running
                half = len(batch) // 2
                pending += [batch[:half], batch[half:]]
            continue
        for case, sides in zip(batch, results, strict=True):
            share, what = _compare(case, sides, dtype)
            ran, worst = ran + 1, max(worst, share)
            if share > 1:
                differences.setdefault(case.axiom.name, what)
    return KernelCheck(backend, dtype, ran, worst, differences, refused, time.perf_counter() - start)


def _run(backend: str, batch: list[AxiomCase], dtype: str) -> list[tuple[Array, Array]]:
    executor = load_backend(backend).from_model(lower(batch, dtype))
    inputs = {
        f"c{n}_{name}": value.astype(dtype) for n, case in enumerate(batch) for name, value in case.inputs.items()
    }
    outputs = executor.inference(inputs)
    to_numpy = executor.network.to_numpy
    return [(to_numpy(outputs[f"c{n}_left"]), to_numpy(outputs[f"c{n}_right"])) for n in range(len(batch))]


def _compare(case: AxiomCase, sides: tuple[Array, Array], dtype: str) -> tuple[float, str]:
    """Greatest difference as a share of the tolerance, and what differs."""
    rounded = {name: value.astype(dtype).astype(np.float64)[None] for name, value in case.inputs.items()}
    expected = case.evaluate(Sides(rounded, case.parameters, Real()))[0][0]
    magnitude = Magnitude()
    bounds = case.evaluate(
        Sides({variable: abs(value) for variable, value in rounded.items()}, case.parameters, magnitude)
    )
    tolerance = FACTOR * np.finfo(dtype).eps * math.sqrt(magnitude.terms) * np.maximum(bounds[0], bounds[1])[0]
    shapes = {name: value.shape for name, value in case.inputs.items()}
    worst, what = 0.0, ""
    pairs: list[tuple[str, Any, Any]] = [("left and right", *sides), ("left and float64", sides[0], expected)]
    for name, got, right in [*pairs, ("right and float64", sides[1], expected)]:
        if got.shape != right.shape:
            return math.inf, f"{name}: shapes {got.shape} and {right.shape} for {shapes}, {case.parameters}"
        difference = np.abs(got.astype(np.float64) - right)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.nan_to_num(np.where(difference == 0, 0.0, difference / tolerance), nan=np.inf).max(initial=0.0)
        if share > worst:
            worst, what = float(share), f"{name} differ by {difference.max():.3g} for {shapes}, {case.parameters}"
    return worst, what
