"""PyTorch backend: networks become ``torch.fx`` modules; needs ``torch``."""

from deep500.registry import require

require("pytorch")

from deep500.frameworks.pytorch.custom import custom_op, custom_op_from_native, desc_from_tensor
from deep500.frameworks.pytorch.distributed import TorchDistributed
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
    "TorchDistributed",
    "custom_op",
    "custom_op_from_native",
    "desc_from_tensor",
    "from_model",
    "from_native",
    "from_onnx",
]
