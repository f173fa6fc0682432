"""Division of whole numbers: what the processor traps must not end the process, on any backend."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from deep500.errors import Deep500Error

DTYPES = ["int8", "int32", "int64"]


def model(op_type: str, dtype: str, divisor: int | None = None, **attributes: int) -> onnx.ModelProto:
    """``c = op_type(a, b)``; with a divisor, ``b`` is an initializer."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    a, b, c = (helper.make_tensor_value_info(name, kind, [None]) for name in "abc")
    node = helper.make_node(op_type, ["a", "b"], ["c"], **attributes)
    fixed = [] if divisor is None else [helper.make_tensor("b", kind, [1], [divisor])]
    graph = helper.make_graph([node], "division", [a] if fixed else [a, b], [c], fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def in_a_loop(dtype: str) -> onnx.ModelProto:
    """Two rounds of ``a = a / b``, ``b`` from outside the loop."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    a, b, c = (helper.make_tensor_value_info(name, kind, [3]) for name in "abc")
    state, quotient = (helper.make_tensor_value_info(name, kind, [3]) for name in ("state", "quotient"))
    turn = helper.make_tensor_value_info("turn", onnx.TensorProto.INT64, [])
    on, still = (helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, []) for name in ("on", "still"))
    nodes = [helper.make_node("Identity", ["on"], ["still"]), helper.make_node("Div", ["state", "b"], ["quotient"])]
    body = helper.make_graph(nodes, "body", [turn, on, state], [still, quotient])
    rounds = helper.make_tensor("rounds", onnx.TensorProto.INT64, [], [2])
    go = helper.make_tensor("go", onnx.TensorProto.BOOL, [], [True])
    loop = helper.make_node("Loop", ["rounds", "go", "a"], ["c"], body=body)
    graph = helper.make_graph([loop], "loop", [a, b], [c], [rounds, go])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("op_type", "fmod"), [("Div", None), ("Mod", 0), ("Mod", 1)])
def test_the_least_number_by_minus_one_wraps_around(backend, op_type, fmod, dtype):
    least = np.iinfo(dtype).min
    a, b = np.array([least, least, 7, -7], dtype), np.array([-1, 2, -1, 2], dtype)
    built = backend.from_onnx(model(op_type, dtype, **({} if fmod is None else {"fmod": fmod})))
    expected = {("Div", None): [least, least // 2, -7, -3], ("Mod", 0): [0, 0, 0, 1], ("Mod", 1): [0, 0, 0, -1]}[
        op_type, fmod
    ]
    np.testing.assert_array_equal(built.inference({"a": a, "b": b})["c"], np.array(expected, dtype))


@pytest.mark.parametrize("divisor", [-1, 2])
def test_by_a_constant(backend, divisor):
    least = np.iinfo("int64").min
    built = backend.from_onnx(model("Div", "int64", divisor))
    found = built.inference({"a": np.array([least, 6], "int64")})["c"]
    np.testing.assert_array_equal(found, [least if divisor == -1 else least // 2, 6 // divisor])


def test_inside_a_loop(backend):
    least = np.iinfo("int64").min
    built = backend.from_onnx(in_a_loop("int64"))
    found = built.inference({"a": np.array([least, 9, 9], "int64"), "b": np.array([-1, -1, 2], "int64")})["c"]
    np.testing.assert_array_equal(found, [least, 9, 2])


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_by_zero_is_an_error(backend, op_type):
    if backend.__name__.endswith("jax"):
        pytest.skip("XLA gives some number: nothing in a compiled function can raise")
    built = backend.from_onnx(model(op_type, "int64"))
    with pytest.raises(Deep500Error):
        built.inference({"a": np.array([1], "int64"), "b": np.array([0], "int64")})
