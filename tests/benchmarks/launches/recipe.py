"""A recipe of seconds, most of whose step are products of matrices, and a step that is slower by a share of itself."""

from __future__ import annotations

from time import thread_time

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


class Slower(Work):
    """The same, and after each update more work: a share of the CPU time that this very step has taken so far."""

    share = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.small, self.rest, self.begin = np.full((8, 8), 0.01), np.empty((8, 8)), 0.0

    def before_batch(self, run: object) -> None:
        """The step begins."""
        self.begin = thread_time()
        super().before_batch(run)

    def after_update(self, source: object) -> None:
        """More work."""
        now = thread_time()
        end = now + self.share * (now - self.begin)
        while thread_time() < end:
            np.matmul(self.small, self.small, out=self.rest)


FIXED = {"model": "mlp", "model_kwargs": {"hidden": (8,)}, "dataset": "digits", "epochs": 16}
MUTABLE = {
    "batch_size": 64,
    "executor": d5fw.from_model,
    "optimizer": d5fw.MomentumOptimizer,
    "optimizer_kwargs": {"lr": 0.1, "momentum": 0.9},
    "events": [Work],
}
METRICS = [(d5.metrics.TestAccuracy(), None)]
