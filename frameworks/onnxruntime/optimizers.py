"""Optimizers under the names that every backend exports: tensors are NumPy arrays, so the ones written once serve."""

from deep500.training.optimizers import (
    AcceleGradOptimizer,
    AdaGradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    GradientDescent,
    MomentumOptimizer,
    RMSPropOptimizer,
)

__all__ = [
    "AcceleGradOptimizer",
    "AdaGradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "GradientDescent",
    "MomentumOptimizer",
    "RMSPropOptimizer",
]
