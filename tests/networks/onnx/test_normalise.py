"""Files of older opsets mean what they meant: what ONNX's converter does not know is held against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import deep500.frameworks.reference as d5fw
from deep500.networks import Network

pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(1, 2, 4, 5)).astype(np.float32)
BOXES = np.array([[0.5, 0.5, 4.0, 3.0], [0, 1, 3, 3]], np.float32)
TWICE = np.array([1, 1, 1.75, 2], np.float32)

CASES: dict[str, tuple[int, str, list[np.ndarray], dict[str, Any]]] = {
    "Upsample-7": (7, "Upsample", [IMAGE], {"scales": TWICE.tolist(), "mode": "linear"}),
    "Upsample-9": (9, "Upsample", [IMAGE, TWICE], {"mode": "linear"}),
    "Resize-10": (10, "Resize", [IMAGE, TWICE], {"mode": "linear"}),
    "Resize-10 nearest": (10, "Resize", [IMAGE, TWICE], {"mode": "nearest"}),
    "RoiAlign-12": (12, "RoiAlign", [IMAGE, BOXES, np.array([0, 0])], {"output_height": 2, "sampling_ratio": 2}),
    "Hardmax-11": (11, "Hardmax", [IMAGE], {"axis": 1}),
    "Hardmax-11 by default": (11, "Hardmax", [IMAGE], {}),
    "Pad-10": (10, "Pad", [IMAGE], {"mode": "reflect", "pads": [0, 0, 1, 2, 0, 0, 0, 1], "value": 3.0}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_old_file_is_what_it_was(name: str) -> None:
    import onnxruntime

    opset, kind, arrays, attributes = CASES[name]
    names = [f"x{number}" for number in range(len(arrays))]
    image = helper.make_tensor_value_info("x0", TensorProto.FLOAT, arrays[0].shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * (4))
    tensors = [numpy_helper.from_array(a, n) for a, n in zip(arrays[1:], names[1:], strict=True)]
    graph = helper.make_graph([helper.make_node(kind, names, ["y"], **attributes)], "old", [image], [result], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": arrays[0]})
    network = Network.from_onnx(model, trainable=())
    got = d5fw.from_model(network).inference({"x0": arrays[0]})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
