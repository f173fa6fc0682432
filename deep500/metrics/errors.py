"""Distances of results from a reference: norms of the difference, absolute and relative, and where it lies.

They compare arrays (outputs of an operator or network, gradients); a run's quality is in
:mod:`deep500.metrics.quality`.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import InputError


class ErrorMetric(abc.ABC):
    """Base of metrics that compare arrays with reference arrays; smaller is better. (They do not judge runs.)

    Example:
        >>> MaxError().compare(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
        0.5
    """

    name: str
    unit = ""
    direction = "lower"
    kind = "quality"

    def compare(self, outputs: Any, reference: Any) -> float:
        """The error of one array, or of a list of arrays taken together.

        Raises:
            InputError: numbers or shapes of arrays differ.
        """
        return self._error(*paired(outputs, reference))

    @abc.abstractmethod
    def _error(self, outputs: np.ndarray, reference: np.ndarray) -> float: ...


class NormDifference(ErrorMetric):
    """The p-norm of the difference, ``(sum |y - r|^p)^(1/p)``; ``relative`` divides it by the norm of the reference.

    Args:
        order: p, at least 1; infinity takes the largest difference.
        relative: over the reference's norm (infinite where that is 0 and the difference is not).

    Example:
        >>> NormDifference(2).compare(np.array([3.0, 4.0]), np.zeros(2))
        5.0
    """

    def __init__(self, order: float = 2, relative: bool = False) -> None:
        if not order >= 1:
            raise InputError(f"got order {order}; expected at least 1, or infinity")
        self.order, self.relative = order, relative
        self.name = f"{'relative_' if relative else ''}l{order:g}_error".replace("linf", "max")

    def _error(self, outputs: np.ndarray, reference: np.ndarray) -> float:
        error = _norm(outputs - reference, self.order)
        if not self.relative:
            return error
        size = _norm(reference, self.order)
        return error / size if size else (0.0 if error == 0 else math.inf)

    def __repr__(self) -> str:
        order = f"{self.order:g}, " if type(self) is NormDifference else ""
        return f"{type(self).__name__}({order}relative={self.relative})"


class L1Error(NormDifference):
    """Sum of absolute differences."""

    def __init__(self, relative: bool = False) -> None:
        super().__init__(1, relative)


class L2Error(NormDifference):
    """Euclidean norm of the difference."""

    def __init__(self, relative: bool = False) -> None:
        super().__init__(2, relative)


class MaxError(NormDifference):
    """Largest absolute difference."""

    def __init__(self, relative: bool = False) -> None:
        super().__init__(math.inf, relative)


class CosineError(ErrorMetric):
    """``1 - cos`` of the angle between result and reference: direction without length, as gradients are judged."""

    name = "cosine_error"

    def _error(self, outputs: np.ndarray, reference: np.ndarray) -> float:
        lengths = float(np.linalg.norm(outputs) * np.linalg.norm(reference))
        if not lengths:
            return 0.0 if not outputs.any() and not reference.any() else 1.0
        return max(0.0, 1.0 - float(outputs @ reference) / lengths)


def paired(outputs: Any, reference: Any) -> tuple[np.ndarray, np.ndarray]:
    """Arrays, or lists of arrays, as two vectors of float64 (integers and booleans too)."""
    first, second = (list(x) if isinstance(x, (list, tuple)) else [x] for x in (outputs, reference))
    first, second = [np.asarray(x) for x in first], [np.asarray(x) for x in second]
    shapes = [x.shape for x in first], [x.shape for x in second]
    if shapes[0] != shapes[1]:
        raise InputError(f"got shapes {shapes[0]} and {shapes[1]}; expected the same: compare what belongs together")
    return _flat(first), _flat(second)


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([x.astype(np.float64).ravel() for x in arrays]) if arrays else np.empty(0)


def _norm(values: np.ndarray, order: float) -> float:
    return float(np.linalg.norm(values, order)) if values.size else 0.0


def variance_between_runs(runs: Sequence[Any]) -> np.ndarray:
    """Unbiased variance of every element over repeated runs (first axis): 0 where results are deterministic.

    Raises:
        InputError: fewer than two runs, or runs of different shapes.

    Example:
        >>> variance_between_runs([np.array([1.0, 2.0]), np.array([1.0, 4.0])]).tolist()
        [0.0, 2.0]
    """
    arrays = [np.asarray(run, np.float64) for run in runs]
    if len(arrays) < 2 or len({a.shape for a in arrays}) != 1:
        raise InputError(
            f"got {len(arrays)} runs of shapes {[a.shape for a in arrays][:4]}; expected two or more of one shape"
        )
    return np.var(np.stack(arrays), axis=0, ddof=1)


def heat_map(values: Any, path: str | Path, title: str = "where results differ") -> Path:
    """Draw an array (a difference, a variance) as a picture, its last axis across, all others down.

    Args:
        values: of any shape; scalars and vectors become one row. What is not finite is drawn in black.
        path: a file whose ending matplotlib knows (``.png``, ``.svg``).
        title: above the picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    array = np.asarray(values, np.float64)
    rows = array.reshape(-1, array.shape[-1] if array.ndim and array.shape[-1] else 1)
    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    picture = axes.imshow(np.ma.masked_invalid(rows), aspect="auto", interpolation="nearest")
    axes.set_facecolor("black")
    axes.set(title=title, xlabel="last axis", ylabel="other axes")
    figure.colorbar(picture)
    figure.savefig(path)
    return Path(path)
