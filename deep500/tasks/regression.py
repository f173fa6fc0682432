"""Regression: numbers that are to be near others, judged by the share of their variance that is explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.tasks.task import Quality, Sums, Task

if TYPE_CHECKING:
    from deep500.networks.network import Network


class Regression(Task):
    """Floating-point labels of the output's shape; the loss is the mean squared error.

    Qualities: ``r2`` = 1 - (sum of squared errors) / (sum of squared differences from the labels' mean) over all
    samples, for labels of shape (N, outputs) the mean of that of each output, as scikit-learn's ``r2_score``; labels of
    more axes are numbers of one kind. And ``mean_squared_error``. Sums of squares are taken around 0: labels whose mean
    is huge beside their spread lose digits there, so standardize them.

    Example:
        >>> task = Regression(output="y")
        >>> sums = task.judge({"label": np.array([1.0, 2.0, 3.0])}, {"y": np.array([1.0, 2.0, 4.0])})
        >>> task.measure(sums, None)["r2"]
        0.5
    """

    name = "regression"
    qualities = (Quality("r2"), Quality("mean_squared_error", direction="lower"))

    def add_loss(self, network: Network) -> Network:
        """The network with its loss."""
        from deep500.networks import add_loss

        return add_loss(network, "mean_squared_error", self.output, self.label, self.loss)

    def zero(self) -> dict[str, np.ndarray]:
        """No number seen: rows of an output's place, and what :meth:`judge` adds up."""
        return {"outputs": np.zeros((0, 5))}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Of each output, the sums over a batch: squared errors, labels, squared labels, and how many."""
        got, expected = (outputs.get(self.output) if self.output else None), batch.get(self.label)
        if got is None or expected is None or got.shape != expected.shape:
            return {}
        columns = expected.shape[1] if expected.ndim == 2 else 1
        expected = expected.astype(np.float64).reshape(-1, columns)
        error = got.reshape(-1, columns) - expected
        parts = np.square(error).sum(0), expected.sum(0), np.square(expected).sum(0), np.full(columns, len(expected))
        return {"outputs": np.stack([np.arange(columns), *parts], 1)}

    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """R^2, None where the labels of every output are equal, and the mean squared error.

        An output whose labels alone are equal counts 1 if all are met, else 0.
        """
        rows = sums["outputs"]
        if not rows[:, 4].sum():
            return {"r2": None, "mean_squared_error": None}
        _, place = np.unique(rows[:, 0], return_inverse=True)
        errors, labels, squares, judged = (np.bincount(place, column) for column in rows[:, 1:].T)
        spread = squares - labels**2 / judged
        explained = np.where(spread > 0, 1 - errors / np.where(spread > 0, spread, 1), errors == 0)
        r2 = float(explained.mean()) if (spread > 0).any() else None
        return {"r2": r2, "mean_squared_error": float(errors.sum() / judged.sum())}
