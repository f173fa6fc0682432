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

    Qualities: ``r2`` = 1 - (sum of squared errors) / (sum of squared differences from the labels' mean), over all
    numbers of all batches together, as scikit-learn's ``r2_score`` of flattened arrays, and ``mean_squared_error``.
    Sums of squares are taken around the first label seen by no one, 0: labels whose mean is huge beside their spread
    lose digits there, so standardize them.

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
        """No number seen."""
        return {name: np.zeros(()) for name in ("errors", "labels", "squares", "judged")}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Sums over the numbers of a batch: squared errors, labels, squared labels, and how many."""
        got, expected = (outputs.get(self.output) if self.output else None), batch.get(self.label)
        if got is None or expected is None or got.shape != expected.shape:
            return {}
        expected = expected.astype(np.float64)
        error = got - expected
        return {
            "errors": np.sum(error * error),
            "labels": expected.sum(),
            "squares": np.sum(expected * expected),
            "judged": expected.size,
        }

    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """R^2, None where all labels are equal, and the mean squared error."""
        judged = float(sums["judged"])
        if not judged:
            return {"r2": None, "mean_squared_error": None}
        errors = float(sums["errors"])
        spread = float(sums["squares"]) - float(sums["labels"]) ** 2 / judged
        return {"r2": 1 - errors / spread if spread > 0 else None, "mean_squared_error": errors / judged}
