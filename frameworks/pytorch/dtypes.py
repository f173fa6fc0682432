"""Arrays to tensors and back, and the names of dtypes. What torch lacks (strings, 4-bit kinds) is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from deep500.networks.execution.dtypes import COMMON, find_dtype
from deep500.tensors import dtype_from_onnx, numpy_dtype

_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in (*COMMON, *_FLOAT8) if hasattr(torch, name)}
"""torch's dtype for each of NumPy's names that it has."""

NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
_BIT_TWINS = {1: (np.uint8, torch.uint8), 2: (np.int16, torch.int16)}  # carry the bits of what NumPy lacks


def torch_dtype(name: str | None) -> torch.dtype:
    """torch's dtype of NumPy's name; InputError for one that torch lacks."""
    return find_dtype(name, DTYPES, "torch")


def onnx_dtype(number: int) -> torch.dtype:
    """torch's dtype for ONNX's number."""
    return torch_dtype(dtype_from_onnx(number))


def from_array(value: Any) -> torch.Tensor:
    """A tensor of the array's dtype, sharing its memory where that is possible (writable, no negative strides)."""
    array = np.asarray(value)
    if array.dtype.type.__module__ != "numpy":  # `isbuiltin` says no to dtypes that were copied, as by pickle
        dtype = torch_dtype(array.dtype.name)
        bits, twin = _BIT_TWINS[array.dtype.itemsize]
        return torch.from_numpy(np.array(array, order="C").view(bits)).view(twin).view(dtype)
    if not (array.flags.writeable and array.dtype.isnative) or any(stride < 0 for stride in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array)


def to_array(tensor: Any) -> np.ndarray:
    """A tensor as an array of the same dtype, sharing memory where that is possible; waits for the device."""
    if not isinstance(tensor, torch.Tensor):
        return np.asarray(tensor)
    tensor = tensor.detach().cpu()
    name = NAMES[tensor.dtype]
    if numpy_dtype(name).isbuiltin == 1:
        return tensor.numpy()
    return tensor.contiguous().view(_BIT_TWINS[tensor.element_size()][1]).numpy().view(numpy_dtype(name))
