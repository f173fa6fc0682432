"""The short way to a compiled operator: tensors in, tensors out, in one call of C.

PyTorch's own ways cost too much for small tensors. Measured with 16 elements, on one machine: ``torch.library`` with a
kernel in Python 9 microseconds, ``TORCH_LIBRARY`` in C++ (with its gradient registered) 4.8, a function bound by
pybind11 0.64, and the last two need PyTorch's headers, half a minute of a particular compiler. ``shortcut.cpp`` is
compiled once, in a second, by whatever compiler there is, and serves every operator: a builtin function that reads
tensors through DLPack's exchange table, makes results through PyTorch's stable C interface and calls the operator's
library, in 0.62. The gradient is a ``torch.autograd.Function`` in Python, as with pybind11. The figures are those of
``tests/benchmarks/operator_overhead``.

It takes what it has seen before: the same shapes, plain tensors on the processor, no dispatch mode, no transformation
of ``torch.func``. All else goes through ``torch.library``, whose kernel checks the call and enters new shapes here.
Where PyTorch lacks one of the pieces there is no shortcut, and everything goes that way.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from deep500.operators.bridge import build_bridge

SOURCE = Path(__file__).with_name("shortcut.cpp")
MOST = 16  # arguments or results, as in shortcut.cpp
CAPACITY = 256  # combinations of shapes that are remembered; then it begins anew

_PYTHON = (
    "PyLong_AsVoidPtr",
    "PyObject_Type",
    "Py_DecRef",
    "Py_IncRef",
    "PyObject_GetAttr",
    "PyObject_Vectorcall",
    "PyObject_VectorcallMethod",
    "PyObject_IsTrue",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyTuple_GetItem",
    "PyErr_Clear",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)
_TORCH = (
    "aoti_torch_grad_mode_is_enabled",
    "aoti_torch_empty_strided",
    "aoti_torch_get_data_ptr",
    "aoti_torch_delete_tensor_object",
)
_WRAP = "_Z16THPVariable_WrapRKN2at10TensorBaseE"  # PyObject *THPVariable_Wrap(const at::TensorBase &)
_VIEW = 5  # place of dltensor_from_py_object_no_sync in DLPack's table, counted in pointers
_CODES = {"float": 2, "int": 0, "uint": 1, "bfloat": 4, "bool": 6}  # DLPack's


class _Seen(ctypes.Structure):
    _fields_ = [("arguments", ctypes.c_void_p), ("results", ctypes.c_void_p), ("instance", ctypes.c_void_p)]


class _Method(ctypes.Structure):
    # fmt: off
    _fields_ = [("function", ctypes.c_void_p),
                ("arguments", ctypes.c_int64), ("results", ctypes.c_int64), ("outputs", ctypes.c_int64),
                ("kinds", ctypes.c_void_p), ("dtypes", ctypes.c_void_p), ("active", ctypes.c_void_p),
                ("seen", ctypes.c_void_p), ("count", ctypes.c_int64), ("last", ctypes.c_int64)]
    # fmt: on


class _Shortcut(ctypes.Structure):
    _fields_ = [("method", ctypes.c_void_p), ("otherwise", ctypes.py_object), ("autograd", ctypes.c_void_p)]


class _Definition(ctypes.Structure):  # PyMethodDef
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


METH_FASTCALL = 0x80


class Missing(Exception):
    """PyTorch lacks a piece that the shortcut needs."""


@lru_cache(maxsize=1)
def _library() -> tuple[int, Any]:
    """Address of ``d500_shortcut``, the library set up; and PyTorch's for the processor."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise Missing("Python's lock, which keeps the table of shapes whole")
    folder = Path(torch.__file__).parent / "lib"
    try:
        core = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
        bindings = ctypes.PyDLL(str(folder / "libtorch_python.so"))
        values = [_address(ctypes.pythonapi, name) for name in _PYTHON]
        values += [_view(), *(_address(core, name) for name in _TORCH), _address(bindings, _WRAP)]
        modes, transforms = torch._C._len_torch_dispatch_stack, torch._C._are_functorch_transforms_active
    except (OSError, AttributeError) as error:
        raise Missing(str(error)) from error
    objects = (torch.Tensor, torch.nn.Parameter, "requires_grad", "contiguous", "is_neg", None, modes, transforms)
    _kept.append(objects)
    ours = ctypes.PyDLL(str(build_bridge(SOURCE, [], [], "any")))
    ours.d500_interface((ctypes.c_void_p * (len(values) + len(objects)))(*values, *map(id, objects)))
    return _address(ours, "d500_shortcut"), core


_kept: list[Any] = []  # what C code holds addresses of


def _address(library: Any, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


def _view() -> int:
    """Address of PyTorch's function that fills a DLTensor."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule: Any = torch.Tensor.__dlpack_c_exchange_api__
    table = pointer(capsule, b"dlpack_exchange_api")
    if ctypes.cast(table, ctypes.POINTER(ctypes.c_uint32))[0] != 1:
        raise Missing("another major version of DLPack")
    return ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_VIEW] or 0


def _kind(dtype: str) -> int:
    """DLPack's code and bits of a dtype."""
    name = dtype.rstrip("0123456789")
    return _CODES[name] << 8 | int(dtype[len(name) :] or 8)


class Method:
    """Forward or backward of one operator, and the shapes that it has been called with.

    Args:
        function: address of the exported function.
        arguments: dtypes of the tensors that go in.
        results: dtypes of those that come out.
        active: for a backward, which inputs have a gradient; the others' results are None.
        outputs: for a backward, the operator's number of outputs.
    """

    def __init__(
        self,
        function: int,
        arguments: Sequence[str],
        results: Sequence[str],
        active: Sequence[bool] = (),
        outputs: int = 0,
    ) -> None:
        self.start, core = _library()
        self.kinds = (ctypes.c_uint16 * len(arguments))(*map(_kind, arguments))
        numbers = [getattr(core, f"aoti_torch_dtype_{name}")() for name in results]
        self.dtypes = (ctypes.c_int32 * len(results))(*numbers)
        self.active = (ctypes.c_uint8 * len(active))(*active)
        self.seen = (_Seen * CAPACITY)()
        self.known: dict[tuple[tuple[int, ...], ...], Any] = {}
        self.lock = threading.Lock()
        self.data = _Method(
            function,
            len(arguments),
            len(results),
            outputs,
            ctypes.addressof(self.kinds),
            ctypes.addressof(self.dtypes),
            ctypes.addressof(self.active),
            ctypes.addressof(self.seen),
            0,
            0,
        )

    def learn(self, arguments: Sequence[Sequence[int]], results: Sequence[Sequence[int]], instance: int) -> bool:
        """Remember an instance for its shapes; False if they are known already."""
        key = tuple(map(tuple, arguments))
        with self.lock:
            if key in self.known:
                return False
            if self.data.count == CAPACITY:  # a table that counts nothing is not read
                self.data.count = self.data.last = 0
                self.known = {}
            inward = [n for shape in key for n in (len(shape), *shape)]
            outward = [n for shape in results for n in (len(shape), *shape, *_strides(shape))]
            memory = [(ctypes.c_int64 * len(numbers))(*numbers) for numbers in (inward, outward)]
            entry = self.seen[self.data.count]
            entry.arguments, entry.results = map(ctypes.addressof, memory)
            entry.instance = instance
            self.known[key] = memory
            self.data.count += 1
        return True

    def builtin(self, name: str, otherwise: Callable[..., Any], autograd: Callable[..., Any] | None = None) -> Any:
        """A builtin function of tensors; see shortcut.cpp for the two callables."""
        shortcut = _Shortcut(ctypes.addressof(self.data), otherwise, None if autograd is None else id(autograd))
        definition = _Definition(name.encode(), self.start, METH_FASTCALL, None)
        _kept.append((self, shortcut, definition, autograd))
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
        return make(ctypes.addressof(definition), ctypes.addressof(shortcut), __name__)


def _strides(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]
