"""`TensorFlowNetwork`: the network of an executor, whose tensors are variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.dtypes import from_array, to_array
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.differentiating import LiveNetwork
from deep500.networks.execution.refusals import unfit_parameter
from deep500.tensors import TensorDescriptor


class TensorFlowNetwork(LiveNetwork):
    """The network of an executor; its parameters are ``executor.variables``, kernels of convolutions transposed."""

    def feed_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter (see the base class)."""
        executor = self._executor
        variable = executor.tensor(name)
        dtype = value.dtype.name if hasattr(value, "dtype") else np.asarray(value).dtype.name
        new, old = TensorDescriptor(dtype, np.shape(value)), TensorDescriptor(_name(variable), executor.shape(name))
        if new != old:
            raise unfit_parameter(name, new, old)
        variable.assign(executor.turned(name, value if isinstance(value, tf.Tensor) else from_array(value)))
        executor.forget_constant(name)

    def leave_gradients(self, gradients: Mapping[str, Any]) -> None:
        """In the executor, in the layout of its variables."""
        executor = self._executor
        executor.gradients.update({name: executor.turned(name, gradient) for name, gradient in gradients.items()})

    def weighted_sum(self, terms: Sequence[Sequence[Any]], weights: Sequence[float]) -> list[Any]:
        """One ``tf.function`` of all tensors."""
        with tf.device(self._executor.tf_device):
            summed: list[Any] = _weighted_sum([list(term) for term in terms], tf.constant(weights, tf.float64))
        return summed

    def concatenate(self, tensors: Sequence[Any]) -> Any:
        """By ``tf.concat``."""
        return tf.concat(list(tensors), 0)

    def to_tensor(self, array: np.ndarray) -> Any:
        """An array as a tensor of its own on the device."""
        with tf.device(self._executor.tf_device):
            return from_array(np.array(array))

    @staticmethod
    def to_numpy(tensor: Any) -> np.ndarray:
        """A tensor as an array; waits for the device."""
        return to_array(tensor)


@tf.function(autograph=False)
def _weighted_sum(terms: list[list[Any]], weights: Any) -> list[Any]:
    return [
        tf.add_n([tf.cast(weights[i], tensor.dtype) * tensor for i, tensor in enumerate(column)])
        for column in zip(*terms, strict=True)
    ]


def _name(variable: Any) -> str:
    return variable.dtype.name if isinstance(variable, tf.Variable) else str(variable.dtype)
