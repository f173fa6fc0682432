"""Central differences, the answer that knows no rule of differentiation, for gradients that tests look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[[np.ndarray], Any]
"""From an array to one number."""


def slope(function: Function, x: np.ndarray, direction: np.ndarray, step: float = 1e-5) -> float:
    """Change of a function along a direction."""
    high, low = (float(function(np.asarray(x + sign * step * direction))) for sign in (1, -1))
    return (high - low) / (2 * step)


def slopes(function: Function, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Change of a function with each element."""
    units = np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    return np.array([slope(function, x, unit, step) for unit in units]).reshape(x.shape)
