"""A loaded library: the exported functions through ctypes, which lets other threads run during a call."""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import OperatorError

ARGUMENTS = {"forward": 2, "backward": 4, "jvp": 4, "hvp": 4}
"""Arrays of pointers that each exported computation takes after the instance."""

WRITTEN = {"forward": 1, "backward": 1, "jvp": 2, "hvp": 1}
"""How many of them, the last ones, it writes to."""


class Binding:
    """The functions of an operator's library."""

    isolated = False

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise OperatorError(
                f"C++ operator {name!r}: got a library that cannot be loaded ({error}); expected every symbol in it: "
                "add the missing source or library to other_files"
            ) from error
        self.library.d500_signature.restype = ctypes.c_char_p
        self.signature: dict[str, Any] = json.loads(self.library.d500_signature())
        self._instance = self._function("instance", ctypes.c_void_p, ctypes.c_void_p)
        self._error = self._function("error", ctypes.c_char_p)
        self._report = self._function("report", ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        self._calls: dict[str, Callable[..., int]] = {
            kind: self._function(kind, ctypes.c_int, ctypes.c_void_p, *[ctypes.c_void_p] * count)
            for kind, count in ARGUMENTS.items()
            if self.signature[kind]
        }

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self.library, f"d500_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    def address(self, symbol: str) -> int:
        """Address of an exported function."""
        return int(ctypes.cast(getattr(self.library, symbol), ctypes.c_void_p).value or 0)

    def instance(self, sizes: Any) -> int:
        """Handle of the operator for these sizes (an int64 array); raises OperatorError if it cannot be made."""
        handle = self._instance(sizes.ctypes.data)
        if not handle:
            raise self.failure("create_new_op")
        return int(handle)

    def call(self, kind: str, instance: int, *groups: Sequence[np.ndarray | None]) -> None:
        """Run a computation on groups of arrays, which must fit; raises OperatorError if it fails."""
        if self._calls[kind](instance, *[_pointers(group) for group in groups]):
            raise self.failure(kind)

    def report(self, instance: int, data: int | None) -> int:
        """Return what the operator's ``report`` returns."""
        return int(self._report(instance, data))

    def failure(self, kind: str) -> OperatorError:
        """The error for the last call of this thread."""
        return failure(self.name, kind, (self._error() or b"").decode(errors="replace"))


def failure(name: str, kind: str, reason: str) -> OperatorError:
    """The error for a computation that failed."""
    return OperatorError(
        f"C++ operator {name!r}: got a failure of {kind} ({reason or 'no reason given'}); expected it to succeed: see "
        "its source"
    )


def _pointers(arrays: Sequence[np.ndarray | None]) -> bytes:
    """An array of C pointers."""
    return _PACK[len(arrays)](*[0 if x is None else _address(x) for x in arrays])


class _Packers(dict[int, Any]):
    """For each number of pointers the function that writes them one after another."""

    def __missing__(self, count: int) -> Any:
        self[count] = pack = struct.Struct(f"{count}P").pack
        return pack


_PACK = _Packers()


def _address_by_structure(x: np.ndarray) -> int:
    """Address of an array's elements: the field after the object's head (``PyArrayObject_fields`` of NumPy's C API)."""
    return _read_pointer(id(x) + _HEAD).value or 0


def _address_by_attribute(x: np.ndarray) -> int:
    return x.ctypes.data


_HEAD = object.__basicsize__
_read_pointer = ctypes.c_void_p.from_address
_TRIED = np.zeros(1)
# The attribute takes ten times as long, as long as the whole call of a small operator.
_is_known = sys.implementation.name == "cpython" and _address_by_structure(_TRIED) == _TRIED.ctypes.data
_address = _address_by_structure if _is_known else _address_by_attribute
