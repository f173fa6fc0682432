"""Arrays to ONNX Runtime's values and back, without a copy where NumPy knows the dtype.

bfloat16, float8 and the 2- and 4-bit kinds are ml_dtypes' arrays on our side. ONNX Runtime's Python binding does not
know these, so their bytes go in and out as ONNX stores them (two or four small numbers share a byte).
"""

from __future__ import annotations

import ctypes

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from deep500.tensors import dtype_to_onnx

# fmt: off
_PLAIN = (
    "bool", "string", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float",
    "double",
)
# fmt: on
_TYPES = frozenset(f"tensor({name})" for name in _PLAIN)


def is_plain(session: ort.InferenceSession) -> bool:
    """Whether all of a session's inputs and outputs may be NumPy arrays, or it has sequences, which must be."""
    types = [v.type for v in (*session.get_inputs(), *session.get_outputs())]
    return all(t in _TYPES for t in types) or any(not t.startswith("tensor(") for t in types)


def to_value(array: np.ndarray) -> ort.OrtValue:
    """An array as a value; it shares the array's memory if the dtype is NumPy's own and the array contiguous."""
    array = np.asarray(array)
    if array.dtype.type.__module__ == "numpy":  # `isbuiltin` says no to dtypes that were copied, as by pickle
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    data = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape)).raw_data
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), dtype_to_onnx(array.dtype))
    if data:
        ctypes.memmove(value.data_ptr(), data, len(data))
    return value


def to_array(value: ort.OrtValue) -> np.ndarray:
    """A value as an array that shares its memory if the dtype is NumPy's own."""
    number = value.element_type()
    dtype = onnx.helper.tensor_dtype_to_np_dtype(number)
    if np.dtype(dtype).isbuiltin == 1:
        return np.asarray(value.numpy())
    proto = onnx.TensorProto(data_type=number, dims=value.shape())
    bits = numpy_helper.from_array(np.zeros(8, dtype)).raw_data
    size = -(-int(np.prod(value.shape())) * len(bits) // 8)
    proto.raw_data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.asarray(numpy_helper.to_array(proto))
