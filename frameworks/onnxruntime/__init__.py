"""ONNX Runtime backend: networks become ``InferenceSession`` objects, and train by their emitted gradient."""

from deep500.registry import require

require("onnxruntime")

from deep500.frameworks.onnxruntime.custom import custom_op
from deep500.frameworks.onnxruntime.executor import Executor, from_model, from_onnx
from deep500.frameworks.onnxruntime.files import to_model
from deep500.frameworks.onnxruntime.native import NativeExecutor, from_file, from_native
from deep500.training.optimizers import (
    AcceleGradOptimizer,
    AdaGradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    GradientDescent,
    MomentumOptimizer,
    RMSPropOptimizer,
)

# fmt: off
__all__ = [
    "AcceleGradOptimizer", "AdaGradOptimizer", "AdamOptimizer", "AdamWOptimizer", "Executor", "GradientDescent",
    "MomentumOptimizer", "NativeExecutor", "RMSPropOptimizer", "custom_op", "from_file", "from_model", "from_native",
    "from_onnx", "to_model",
]
# fmt: on
