"""Optimizers under the names that every backend exports: NumPy uses the ones written once for all."""

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
