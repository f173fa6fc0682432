"""TensorFlow backend: networks become functions over variables; needs ``tensorflow``."""

from deep500.registry import require

require("tensorflow")

from deep500.frameworks.tensorflow.callbacks import keras_callback
from deep500.frameworks.tensorflow.custom import custom_op, custom_op_from_native, desc_from_tensor
from deep500.frameworks.tensorflow.executor import Executor, from_model, from_onnx
from deep500.frameworks.tensorflow.native import NativeExecutor, from_native
from deep500.frameworks.tensorflow.optimizers import (
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
    "custom_op",
    "custom_op_from_native",
    "desc_from_tensor",
    "from_model",
    "from_native",
    "from_onnx",
    "keras_callback",
]
