"""PyTorch backend: networks become ``torch.fx`` modules; needs ``torch``."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used
from deep500.registry import require

require("pytorch")

from deep500.frameworks.pytorch.executor import Executor as Executor
from deep500.frameworks.pytorch.executor import from_model as from_model
from deep500.frameworks.pytorch.executor import from_onnx as from_onnx

if TYPE_CHECKING:
    from deep500.frameworks.pytorch.adapted_optimizer import optimizer_from_native as optimizer_from_native
    from deep500.frameworks.pytorch.custom import custom_op as custom_op
    from deep500.frameworks.pytorch.custom import custom_op_from_native as custom_op_from_native
    from deep500.frameworks.pytorch.custom import desc_from_tensor as desc_from_tensor
    from deep500.frameworks.pytorch.distributed import TorchDistributed as TorchDistributed
    from deep500.frameworks.pytorch.native import NativeExecutor as NativeExecutor
    from deep500.frameworks.pytorch.native import from_native as from_native
    from deep500.frameworks.pytorch.optimizers import AdaGradOptimizer as AdaGradOptimizer
    from deep500.frameworks.pytorch.optimizers import AdamOptimizer as AdamOptimizer
    from deep500.frameworks.pytorch.optimizers import AdamWOptimizer as AdamWOptimizer
    from deep500.frameworks.pytorch.optimizers import AMSGradOptimizer as AMSGradOptimizer
    from deep500.frameworks.pytorch.optimizers import GradientDescent as GradientDescent
    from deep500.frameworks.pytorch.optimizers import MomentumOptimizer as MomentumOptimizer
    from deep500.frameworks.pytorch.optimizers import NativeOptimizer as NativeOptimizer
    from deep500.frameworks.pytorch.optimizers import RMSPropOptimizer as RMSPropOptimizer

load_when_used(__name__)
