"""Are the gradients right: against each other, against closed forms, and against finite differences of the primal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recipes.studies.enzyme_microbenchmarks.problems import Problem

AGREE = 1e-9
"""Largest difference of two gradients' elements, relative to the largest element."""

DIFFERENCES = 1e-7
"""Largest error of finite differences along a random direction; what noise leaves is far below."""

SERIES = {"euler": (1.0, 1.0), "rk4": (1.0, 1.0, 1 / 2, 1 / 6, 1 / 24)}


def relative(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference relative to b's largest element; infinite if a holds what is not a number."""
    difference = float(np.abs(a - b).max() / np.abs(b).max())
    return difference if np.isfinite(difference) else float("inf")


def closed_form(problem: Problem) -> np.ndarray | None:
    """The gradient where it is known, else None.

    A step of Euler or RK4 multiplies y by a polynomial of z = -rate h. Fourier's transform forward and back is the
    identity.
    """
    if problem.name == "fft":
        return 2 * np.repeat(problem.c, 2) * problem.x
    if problem.name not in SERIES:
        return None
    (start, rate, end), steps = problem.x, int(problem.n[0])
    step = np.polynomial.Polynomial(SERIES[problem.name])
    z = -rate * end / steps
    factor, slope = step(z), step.deriv()(z)
    by_z = start * steps * factor ** (steps - 1) * slope
    return np.array([factor**steps, -by_z * end / steps, -by_z * rate / steps])


def difference_error(problem: Problem, gradient: np.ndarray, primal: Callable[[np.ndarray], float]) -> float:
    """Error of the gradient's product with a random direction, relative to the size that products of random sign have.

    The direction is scaled like x, so that small elements count beside large ones; the differences are central and of
    fourth order, and of several steps the best counts (a large one is inexact, a small one drowns in rounding).
    """
    direction = np.random.default_rng(6).standard_normal(problem.x.size) * np.maximum(np.abs(problem.x), 0.1)
    expected, size = gradient @ direction, np.linalg.norm(gradient * direction)

    def slope(h: float) -> float:
        near, far = (primal(problem.x + k * h * direction) - primal(problem.x - k * h * direction) for k in (1, 2))
        return (8 * near - far) / (12 * h)

    error = min(abs(slope(h) - expected) for h in (1e-2, 1e-3, 1e-4, 1e-5)) / size
    return float(error) if np.isfinite(error) else float("inf")
