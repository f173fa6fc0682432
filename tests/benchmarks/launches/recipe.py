"""A recipe of seconds, most of whose step are products of matrices: a hundred of them, or with `MoreWork` more."""

from __future__ import annotations

import numpy as np

import deep500 as d5
import deep500.frameworks.reference as d5fw


class Work(d5.Event):
    """A hundred products of matrices within every step, before its forward pass."""

    pieces = 100

    def __init__(self) -> None:
        self.a, self.out = np.full((64, 64), 0.01), np.empty((64, 64))

    def before_batch(self, run: object) -> None:
        """The work."""
        for _ in range(self.pieces):
            np.matmul(self.a, self.a, out=self.out)


class MoreWork(Work):
    """So much more that the step takes 3 % longer."""

    pieces = 104


FIXED = {"model": "mlp", "model_kwargs": {"hidden": (8,)}, "dataset": "digits", "epochs": 16}
MUTABLE = {
    "batch_size": 64,
    "executor": d5fw.from_model,
    "optimizer": d5fw.MomentumOptimizer,
    "optimizer_kwargs": {"lr": 0.1, "momentum": 0.9},
    "events": [Work],
}
METRICS = [(d5.metrics.TestAccuracy(), None)]
