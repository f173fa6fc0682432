"""Descriptors of tensors before they exist: dtype and shape, and ONNX's names for the dtypes.

A dimension is an int, a string (a symbolic size such as ``"N"``) or None (unknown); a shape is a tuple of them, or
None when not even the rank is known. Dtypes are written as NumPy writes them: ``"float32"``, ``"int64"``,
``"bfloat16"``. Inputs that are no tensors nest them: ``"sequence(float32)"``, ``"optional(int64)"``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, singledispatch
from typing import Any, TypeAlias

import numpy as np
import onnx

from deep500.errors import InputError, nearest

Dim: TypeAlias = int | str | None
Shape: TypeAlias = tuple[Dim, ...]

_ONNX_TO_NAME = {
    number: "string" if name == "STRING" else str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)))
    for name, number in onnx.TensorProto.DataType.items()
    if name != "UNDEFINED"
}
_NAME_TO_ONNX = {name: number for number, name in reversed(_ONNX_TO_NAME.items())}


@cache
def dtype_name(dtype: np.dtype) -> str:
    """A dtype's name as descriptors have it; NumPy works it out anew each time that it is asked.

    Example:
        >>> dtype_name(np.dtype(np.float32)), dtype_name(np.dtype(object))
        ('float32', 'string')
    """
    return "string" if dtype.kind == "O" else str(dtype)


def dtype_to_onnx(dtype: Any) -> int:
    """ONNX's number of a dtype given as a name, NumPy dtype or type; raises InputError for one ONNX lacks."""
    try:
        name = dtype if isinstance(dtype, str) else dtype_name(np.dtype(dtype))
    except TypeError as error:
        raise InputError(f"got {dtype!r} as dtype; expected a name or NumPy dtype, for instance 'float32'") from error
    if name in ("object", "str") or name.startswith("<U"):
        name = "string"
    if name not in _NAME_TO_ONNX:
        raise InputError(f"got dtype {name!r}; expected one that ONNX has ({nearest(name, _NAME_TO_ONNX)})")
    return _NAME_TO_ONNX[name]


def dtype_from_onnx(number: int) -> str | None:
    """Name of the dtype with this ONNX number, None for UNDEFINED."""
    return _ONNX_TO_NAME.get(number)


def numpy_dtype(name: str) -> np.dtype:
    """NumPy's dtype of that name; ml_dtypes' for bfloat16 and the float8 kinds, object for strings."""
    return np.dtype(object) if name == "string" else np.dtype(onnx.helper.tensor_dtype_to_np_dtype(dtype_to_onnx(name)))


@dataclass(frozen=True)
class TensorDescriptor:
    """Dtype and shape of a tensor.

    Args:
        dtype: NumPy's name of the element type, or None while unknown.
        shape: tuple of int, str (symbolic) or None (unknown) sizes; None while even the rank is unknown.

    Example:
        >>> TensorDescriptor("float32", ("N", 3)).accepts((8, 3))
        True
    """

    dtype: str | None = "float32"
    shape: Shape | None = None

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape fits, symbolic and unknown sizes fitting anything."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            got == want for got, want in zip(shape, self.shape, strict=True) if isinstance(want, int)
        )

    @property
    def is_static(self) -> bool:
        """Whether every size is a known number."""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)

    @property
    def size(self) -> int | None:
        """Number of elements, None unless every size is known."""
        if self.shape is None:
            return None
        total = 1
        for dim in self.shape:
            if not isinstance(dim, int):
                return None
            total *= dim
        return total

    def __str__(self) -> str:
        shape = "?" if self.shape is None else "x".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.dtype or '?'}[{shape}]"


def tensordesc(shape: Sequence[Dim], dtype: str = "float32") -> TensorDescriptor:
    """Shorthand: ``tensordesc((8, 3))`` is ``TensorDescriptor("float32", (8, 3))``."""
    return TensorDescriptor(dtype, tuple(shape))


@singledispatch
def total(tensor: Any, axis: int | None = None) -> Any:
    """Sum of all elements as a scalar, or along an axis, which stays with size 1; a tensor of the same framework.

    A backend whose tensors have no method ``sum`` registers its function: ``total.register(Tensor, reduce_sum)``.

    Example:
        >>> int(total(np.arange(4))), total(np.arange(4).reshape(2, 2), -1).tolist()
        (6, [[1], [5]])
    """
    return tensor.sum() if axis is None else tensor.sum(axis=axis, keepdims=True)


def digest(arrays: Mapping[str, Any]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, in the order of the names.

    Example:
        >>> digest({"a": np.zeros(2), "b": np.ones(1)}) == digest({"b": np.ones(1), "a": np.zeros(2)})
        True
    """
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


class LaterArray:
    """An array that is made when it is read, each time anew: from a file, or by all ranks together.

    Args:
        shape, dtype: of the array.
        read: makes it.

    Example:
        >>> later = LaterArray((2, 3), np.dtype("float32"), lambda: np.ones((2, 3), "float32"))
        >>> later.shape, later.nbytes, float(np.asarray(later).sum())
        ((2, 3), 24, 6.0)
    """

    def __init__(self, shape: Sequence[int], dtype: np.dtype, read: Callable[[], np.ndarray]) -> None:
        self.shape, self.dtype, self._read = tuple(shape), dtype, read

    @property
    def nbytes(self) -> int:
        """Bytes that it will have."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._read(), dtype)
