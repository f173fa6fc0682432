"""The reference backend: NumPy. It needs nothing but the core's dependencies, and it is the definition of right."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

import onnx

from deep500.devices import Device
from deep500.errors import UnsupportedOperator
from deep500.faces import load_when_used
from deep500.frameworks.reference.executor import Executor as Executor
from deep500.frameworks.reference.executor import ReferenceOptions
from deep500.keywords import hands_on
from deep500.networks.network import Choice, Network

if TYPE_CHECKING:
    from deep500.frameworks.reference.custom import custom_op as custom_op
    from deep500.training.optimizers import AcceleGradOptimizer as AcceleGradOptimizer
    from deep500.training.optimizers import AdaGradOptimizer as AdaGradOptimizer
    from deep500.training.optimizers import AdamOptimizer as AdamOptimizer
    from deep500.training.optimizers import AdamWOptimizer as AdamWOptimizer
    from deep500.training.optimizers import GradientDescent as GradientDescent
    from deep500.training.optimizers import MomentumOptimizer as MomentumOptimizer
    from deep500.training.optimizers import RMSPropOptimizer as RMSPropOptimizer


@hands_on(ReferenceOptions)
def from_model(network: Network, device: Device | str | None = None, **options: Any) -> Executor:
    """An executor for a network; ``options`` are those of :class:`ReferenceOptions`."""
    return Executor(network, device, **options)


@hands_on(ReferenceOptions)
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


load_when_used(__name__)
