"""NumPy's names of dtypes, and the look-up of a framework's own dtype by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from deep500.errors import InputError, nearest

# fmt: off
COMMON = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bfloat16", "complex64", "complex128",
)
# fmt: on
"""Names of the dtypes that every framework with automatic differentiation can hold."""

DType = TypeVar("DType")


def find_dtype(name: str | None, dtypes: Mapping[str, DType], framework: str) -> DType:
    """The framework's dtype of NumPy's name; InputError for one that it lacks.

    Example:
        >>> find_dtype("int8", {"int8": 8}, "Toy")
        8
    """
    if name is None or name not in dtypes:
        raise InputError(f"got dtype {name!r}; expected one that {framework} has: {nearest(str(name), dtypes)}")
    return dtypes[name]
