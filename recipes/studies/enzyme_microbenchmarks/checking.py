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
    """Euler's and RK4's gradient: a step multiplies by a polynomial of h A, so all steps by its power; else None."""
    if problem.name not in SERIES:
        return None
    stiffness, damping, end, *weights = problem.c
    scaled = np.array([[0, 1], [-stiffness, -damping]]) * end / problem.n[0]
    step = sum(a * np.linalg.matrix_power(scaled, power) for power, a in enumerate(SERIES[problem.name]))
    return np.linalg.matrix_power(step, int(problem.n[0])).T @ np.array(weights)


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
