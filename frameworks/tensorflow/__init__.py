"""TensorFlow backend: networks become functions over variables; needs ``tensorflow``."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used
from deep500.registry import require

require("tensorflow")

from deep500.frameworks.tensorflow.executor import Executor as Executor
from deep500.frameworks.tensorflow.executor import from_model as from_model
from deep500.frameworks.tensorflow.executor import from_onnx as from_onnx

if TYPE_CHECKING:
    from deep500.frameworks.tensorflow.callbacks import keras_callback as keras_callback
    from deep500.frameworks.tensorflow.custom import custom_op as custom_op
    from deep500.frameworks.tensorflow.custom import custom_op_from_native as custom_op_from_native
    from deep500.frameworks.tensorflow.custom import desc_from_tensor as desc_from_tensor
    from deep500.frameworks.tensorflow.native import NativeExecutor as NativeExecutor
    from deep500.frameworks.tensorflow.native import from_native as from_native
    from deep500.frameworks.tensorflow.optimizers import AdaGradOptimizer as AdaGradOptimizer
    from deep500.frameworks.tensorflow.optimizers import AdamOptimizer as AdamOptimizer
    from deep500.frameworks.tensorflow.optimizers import AdamWOptimizer as AdamWOptimizer
    from deep500.frameworks.tensorflow.optimizers import GradientDescent as GradientDescent
    from deep500.frameworks.tensorflow.optimizers import MomentumOptimizer as MomentumOptimizer
    from deep500.frameworks.tensorflow.optimizers import NativeOptimizer as NativeOptimizer
    from deep500.frameworks.tensorflow.optimizers import RMSPropOptimizer as RMSPropOptimizer

load_when_used(__name__)
