"""PyTorch backend: networks become ``torch.fx`` modules; needs ``torch``."""

from deep500.registry import require

require("pytorch")

from deep500.frameworks.pytorch.executor import Executor, from_model, from_onnx
from deep500.frameworks.pytorch.native import NativeExecutor, from_native
from deep500.frameworks.pytorch.optimizers import (
    AdaGradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    GradientDescent,
    MomentumOptimizer,
    NativeOptimizer,
    RMSPropOptimizer,
)

__all__ = [
    "AdaGradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "Executor",
    "GradientDescent",
    "MomentumOptimizer",
    "NativeExecutor",
    "NativeOptimizer",
    "RMSPropOptimizer",
    "from_model",
    "from_native",
    "from_onnx",
]
