"""The reference backend: NumPy. It needs nothing but the core's dependencies, and it is the definition of right."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import onnx

from deep500.devices import Device
from deep500.errors import UnsupportedOperator
from deep500.frameworks.reference.custom import custom_op
from deep500.frameworks.reference.executor import Executor
from deep500.networks.network import Choice, Network
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
    "MomentumOptimizer", "RMSPropOptimizer", "custom_op", "from_model", "from_native", "from_onnx",
]
# fmt: on


def from_model(network: Network, device: Device | str | None = None, **options: Any) -> Executor:
    """An executor for a network; ``options`` are those of :class:`Executor`."""
    return Executor(network, device, **options)


def from_onnx(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    device: Device | str | None = None,
    trainable: Choice | None = None,
    **options: Any,
) -> Executor:
    """An executor for an ONNX model: a path, the bytes of a file or a message; see :meth:`Network.from_onnx`."""
    return Executor(Network.from_onnx(model, trainable), device, **options)


def from_native(module: Any, *example_inputs: Any, **options: Any) -> NoReturn:
    """NumPy has no network objects of its own, so there is nothing to wrap: always an UnsupportedOperator."""
    raise UnsupportedOperator(
        f"got a {type(module).__name__}; expected a backend with native networks, NumPy has none: build a Network and "
        "use from_model, or from_native of the framework that made the object"
    )
