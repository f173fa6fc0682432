"""`TensorFlowNetwork`: a network whose parameters are the variables of an executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.frameworks.tensorflow.dtypes import from_array, to_array
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.executor import BoundNetwork
from deep500.networks.execution.refusals import unfit_parameter
from deep500.networks.network import Network
from deep500.tensors import TensorDescriptor

if TYPE_CHECKING:
    from deep500.frameworks.tensorflow.executor import Executor


class TensorFlowNetwork(BoundNetwork):
    """The network of an executor; its parameters are ``executor.variables``, kernels of convolutions turned round."""

    def __init__(self, network: Network, executor: Executor) -> None:
        super().__init__(network)
        self._executor = executor

    def fetch_tensors(self, names: Sequence[str]) -> list[Any]:
        """Tensors as they are now: parameters, gradients and outputs of the last run (see the base class)."""
        executor = self._executor
        executor.refresh()
        return [executor.parameter(n) if n in executor.variables else executor.result(n) for n in names]

    def feed_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter (see the base class)."""
        executor = self._executor
        variable = executor.variable(name)
        dtype = value.dtype.name if hasattr(value, "dtype") else np.asarray(value).dtype.name
        new, old = TensorDescriptor(dtype, np.shape(value)), TensorDescriptor(_name(variable), executor.shape(name))
        if new != old:
            raise unfit_parameter(name, new, old)
        variable.assign(executor.held(name, value if isinstance(value, tf.Tensor) else from_array(value)))
        executor.forget_constant(name)

    def to_tensor(self, array: np.ndarray) -> Any:
        """An array as a tensor of its own on the device."""
        with tf.device(self._executor.tf_device):
            return from_array(np.array(array))

    @staticmethod
    def to_numpy(tensor: Any) -> np.ndarray:
        """A tensor as an array; waits for the device."""
        return to_array(tensor)


def _name(variable: Any) -> str:
    return variable.dtype.name if isinstance(variable, tf.Variable) else str(variable.dtype)
