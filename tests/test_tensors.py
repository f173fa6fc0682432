"""Descriptors of tensors: dtypes as ONNX has them, shapes that fit and that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from deep500.errors import InputError
from deep500.tensors import TensorDescriptor, dtype_from_onnx, dtype_to_onnx, numpy_dtype, tensordesc

DTYPES = [n for n, number in onnx.TensorProto.DataType.items() if number]


@pytest.mark.parametrize("onnx_name", DTYPES)
def test_dtypes_agree_with_onnx(onnx_name: str) -> None:
    number = onnx.TensorProto.DataType.Value(onnx_name)
    name = dtype_from_onnx(number)
    assert name is not None and dtype_to_onnx(name) == number
    if onnx_name == "STRING":
        assert name == "string" and numpy_dtype(name) == np.dtype(object)
    else:
        assert numpy_dtype(name) == onnx.helper.tensor_dtype_to_np_dtype(number)
        assert dtype_to_onnx(numpy_dtype(name)) == number


def test_dtypes_have_pythons_spellings_and_bad_ones_are_errors() -> None:
    assert dtype_to_onnx(np.float32) == dtype_to_onnx(np.dtype("f4")) == onnx.TensorProto.FLOAT
    assert dtype_to_onnx(np.array(["abc"]).dtype) == dtype_to_onnx(object) == onnx.TensorProto.STRING
    assert dtype_from_onnx(0) is None and dtype_from_onnx(999) is None
    with pytest.raises(InputError, match="did you mean 'float32'"):
        dtype_to_onnx("floot32")
    for odd in (3.5, {"a": 1}, "datetime64[s]", np.dtype("datetime64[s]")):
        with pytest.raises(InputError, match="expected"):
            dtype_to_onnx(odd)


@pytest.mark.parametrize(
    ("shape", "fits", "misfits"),
    [
        (("N", 3), [(1, 3), (8, 3)], [(8, 4), (3,), (1, 3, 1)]),
        ((None, None), [(0, 7)], [(7,)]),
        ((), [()], [(1,)]),
        (None, [(), (1, 2, 3)], []),
    ],
)
def test_descriptors_accept_what_fits(shape: Any, fits: list[tuple[int, ...]], misfits: list[tuple[int, ...]]) -> None:
    descriptor = TensorDescriptor("float32", shape)
    assert all(map(descriptor.accepts, fits)) and not any(map(descriptor.accepts, misfits))


def test_descriptors_say_what_they_know() -> None:
    assert tensordesc((2, 3)).size == 6 and tensordesc((2, 3)).is_static and tensordesc(()).size == 1
    assert tensordesc(("N", 3)).size is None and not tensordesc(("N", 3)).is_static
    assert TensorDescriptor(None, None).size is None and not TensorDescriptor().is_static
    printed = [str(d) for d in (tensordesc(("N", None, 3), "int8"), TensorDescriptor(None, None), tensordesc(()))]
    assert printed == ["int8[Nx?x3]", "?[?]", "float32[]"]
    assert tensordesc((1,)) == TensorDescriptor("float32", (1,)) and hash(tensordesc((1,)))
