"""Results that no memory holds are one error of ours on every backend, no raw one, hang or end of the process."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from deep500.errors import OutOfMemory
from deep500.networks import Network
from deep500.registry import load_backend

BACKENDS = ("reference", "pytorch", "onnxruntime", "tensorflow", "jax")


def network(kind: str) -> Network:
    arrays = {"huge": np.array([2**22, 2**22]), "start": np.array(0), "end": np.array(2**45), "step": np.array(1)}
    inputs = {"ConstantOfShape": ["huge"], "Expand": ["x", "huge"], "Range": ["start", "end", "step"]}[kind]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1])
    y = helper.make_tensor_value_info("y", TensorProto.INT64 if kind == "Range" else TensorProto.FLOAT, None)
    held = [numpy_helper.from_array(arrays[name], name) for name in inputs if name in arrays]
    graph = helper.make_graph([helper.make_node(kind, inputs, ["y"], name="big")], "graph", [x], [y], held)
    return Network.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9))


@pytest.mark.parametrize("kind", ["ConstantOfShape", "Expand", "Range"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_result_of_terabytes_is_refused_with_node_and_bytes(backend: str, kind: str) -> None:
    if backend != "reference":
        pytest.importorskip({"pytorch": "torch"}.get(backend, backend))
    size = 2**48 if kind == "Range" else 2**46
    with pytest.raises(OutOfMemory, match=rf"'big' \({kind}\): got a result 'y' of {size} bytes"):
        load_backend(backend).from_model(network(kind)).inference({"x": np.ones((1, 1), np.float32)})


@pytest.mark.parametrize("backend", ["reference", "pytorch", "onnxruntime"])
def test_a_size_that_is_known_at_run_time_only_is_our_error_too(backend: str) -> None:
    if backend != "reference":
        pytest.importorskip({"pytorch": "torch"}.get(backend, backend))
    built = Network("late")
    built.add_input("shape", [2], "int64")
    built.add_node("ConstantOfShape", ["shape"], ["y"], name="big")
    built.add_output("y")
    with pytest.raises(OutOfMemory, match="memory cannot hold") as raised:
        load_backend(backend).from_model(built).inference({"shape": np.array([2**28, 2**28])})
    assert "big" in str(raised.value)
