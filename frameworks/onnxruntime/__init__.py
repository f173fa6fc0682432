"""ONNX Runtime backend: networks become ``InferenceSession`` objects, and train by their emitted gradient."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used
from deep500.registry import require

require("onnxruntime")

from deep500.frameworks.onnxruntime.executor import Executor as Executor
from deep500.frameworks.onnxruntime.executor import from_model as from_model
from deep500.frameworks.onnxruntime.executor import from_onnx as from_onnx

if TYPE_CHECKING:
    from deep500.frameworks.onnxruntime.custom import custom_op as custom_op
    from deep500.frameworks.onnxruntime.files import to_model as to_model
    from deep500.frameworks.onnxruntime.native import NativeExecutor as NativeExecutor
    from deep500.frameworks.onnxruntime.native import from_file as from_file
    from deep500.frameworks.onnxruntime.native import from_native as from_native
    from deep500.training.optimizers import AcceleGradOptimizer as AcceleGradOptimizer
    from deep500.training.optimizers import AdaGradOptimizer as AdaGradOptimizer
    from deep500.training.optimizers import AdamOptimizer as AdamOptimizer
    from deep500.training.optimizers import AdamWOptimizer as AdamWOptimizer
    from deep500.training.optimizers import GradientDescent as GradientDescent
    from deep500.training.optimizers import MomentumOptimizer as MomentumOptimizer
    from deep500.training.optimizers import RMSPropOptimizer as RMSPropOptimizer

load_when_used(__name__)
