"""Arrays to ONNX Runtime's values and back, without a copy where NumPy knows the dtype.

bfloat16, float8 and the 2- and 4-bit kinds are ml_dtypes' arrays on our side. ONNX Runtime's Python binding does not know
these, so their bytes go in and out as ONNX stores them (two or four small numbers share a byte).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from deep500.tensors import dtype_to_onnx


def is_plain(dtype: str | None) -> bool:
    """Whether ONNX Runtime takes NumPy arrays of this dtype as they are."""
    return dtype is None or dtype == "string" or np.dtype(_builtin(dtype)).kind in "biufc"


def _builtin(dtype: str) -> Any:
    return dtype if hasattr(np, dtype if dtype != "bool" else "bool_") else object


def to_value(array: np.ndarray) -> ort.OrtValue:
    """An array as a value; it shares the array's memory if the dtype is NumPy's own and the array contiguous."""
    array = np.asarray(array)
    if is_plain(str(array.dtype)):
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
    if is_plain(str(dtype)) or number == onnx.TensorProto.STRING:
        return np.asarray(value.numpy())
    proto = onnx.TensorProto(data_type=number, dims=value.shape())
    bits = numpy_helper.from_array(np.zeros(8, dtype)).raw_data
    size = -(-int(np.prod(value.shape())) * len(bits) // 8)
    proto.raw_data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.asarray(numpy_helper.to_array(proto))
