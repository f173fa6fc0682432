"""JAX backend: networks become pure functions under ``jax.jit``; needs ``jax``.

Importing it sets ``jax_enable_x64``; :mod:`deep500.frameworks.jax.dtypes` says why. On a GPU it takes memory as it
needs it, unless ``XLA_PYTHON_CLIENT_PREALLOCATE`` says otherwise: JAX's usual three quarters of the card would leave
nothing for other ranks and other frameworks, and would be the peak of every measurement.
"""

import os
from typing import TYPE_CHECKING

from deep500.faces import load_when_used
from deep500.registry import require

require("jax")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # read when JAX first looks for a GPU

from deep500.frameworks.jax.executor import Executor as Executor
from deep500.frameworks.jax.executor import from_model as from_model
from deep500.frameworks.jax.executor import from_onnx as from_onnx

if TYPE_CHECKING:
    from deep500.frameworks.jax.adapted_optimizer import optimizer_from_native as optimizer_from_native
    from deep500.frameworks.jax.custom import custom_op as custom_op
    from deep500.frameworks.jax.custom import custom_op_from_native as custom_op_from_native
    from deep500.frameworks.jax.custom import desc_from_tensor as desc_from_tensor
    from deep500.frameworks.jax.meeting import meet as meet
    from deep500.frameworks.jax.native import NativeExecutor as NativeExecutor
    from deep500.frameworks.jax.native import from_native as from_native
    from deep500.frameworks.jax.optimizers import AdaGradOptimizer as AdaGradOptimizer
    from deep500.frameworks.jax.optimizers import AdamOptimizer as AdamOptimizer
    from deep500.frameworks.jax.optimizers import AdamWOptimizer as AdamWOptimizer
    from deep500.frameworks.jax.optimizers import GradientDescent as GradientDescent
    from deep500.frameworks.jax.optimizers import MomentumOptimizer as MomentumOptimizer
    from deep500.frameworks.jax.optimizers import NativeOptimizer as NativeOptimizer
    from deep500.frameworks.jax.optimizers import RMSPropOptimizer as RMSPropOptimizer

load_when_used(__name__)
