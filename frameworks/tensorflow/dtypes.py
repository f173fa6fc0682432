"""Arrays to tensors and back, and the names of dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.dtypes import COMMON, find_dtype
from deep500.tensors import dtype_from_onnx, total
from deep500.training.optimizers.arithmetic import reshaped, transposed

_NARROW = ("float8_e4m3fn", "float8_e5m2", "int4", "uint4")  # the others have no kernels
DTYPES: dict[str, Any] = {name: tf.as_dtype(name) for name in (*COMMON, "string")} | {
    name: getattr(tf.dtypes.experimental, name) for name in _NARROW if hasattr(tf.dtypes.experimental, name)
}
"""TensorFlow's dtype for each of NumPy's names that it has."""

# Its tensors have no methods of these names.
total.register(tf.Tensor, lambda tensor, axis=None: tf.reduce_sum(tensor, axis, keepdims=axis is not None))
reshaped.register(tf.Tensor, tf.reshape)
transposed.register(tf.Tensor, tf.transpose)


def tf_dtype(name: str | None) -> Any:
    """TensorFlow's dtype of NumPy's name; InputError for one that it lacks."""
    return find_dtype(name, DTYPES, "TensorFlow")


def onnx_dtype(number: int) -> Any:
    """TensorFlow's dtype for ONNX's number."""
    return tf_dtype(dtype_from_onnx(number))


def from_array(value: Any) -> Any:
    """A tensor of the array's dtype."""
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        return tf.constant(array.astype(object), tf.string)
    name = array.dtype.name
    return tf.constant(array, DTYPES.get(name) or tf_dtype(name))  # the look-up of every input of every step


def to_array(tensor: Any) -> np.ndarray:
    """A tensor as an array of the same dtype (strings as Python's); waits for the device."""
    if not isinstance(tensor, (tf.Tensor, tf.Variable)):
        return np.asarray(tensor)
    array = np.asarray(tensor.numpy())
    if tensor.dtype == tf.string:
        texts = [t.decode("utf-8") if isinstance(t, bytes) else t for t in array.reshape(-1)]
        return np.array(texts, object).reshape(tensor.shape)
    return array


def as_tensor(value: Any) -> Any:
    """An input as a tensor; sequences stay lists, absent optional values None."""
    if value is None or isinstance(value, tf.Tensor):
        return value
    if isinstance(value, (list, tuple)):
        return [as_tensor(item) for item in value]
    return from_array(value)
