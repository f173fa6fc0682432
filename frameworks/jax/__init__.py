"""JAX backend: networks become pure functions under ``jax.jit``; needs ``jax`` and ``optax``.

Importing it sets ``jax_enable_x64``; :mod:`deep500.frameworks.jax.dtypes` says why. On a GPU it takes memory as it
needs it, unless ``XLA_PYTHON_CLIENT_PREALLOCATE`` says otherwise: JAX's usual three quarters of the card would leave
nothing for other ranks and other frameworks, and would be the peak of every measurement.
"""

import os

from deep500.registry import require

require("jax")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # read when JAX first looks for a GPU

from deep500.frameworks.jax.custom import custom_op, custom_op_from_native, desc_from_tensor
from deep500.frameworks.jax.executor import Executor, from_model, from_onnx
from deep500.frameworks.jax.native import NativeExecutor, from_native
from deep500.frameworks.jax.optimizers import (
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
]
