"""`to_dtype` reaches into sub-graphs: the twin of a network with branches and loops runs in the other precision."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deep500.networks import Network, to_dtype
from tests.conftest import load_backend

FLOAT = TensorProto.FLOAT


def branch(boxes: str) -> onnx.GraphProto:
    """Shifted boxes times a Constant, and how many are left by NonMaxSuppression, which takes float32 only."""
    node = helper.make_node
    scores = numpy_helper.from_array(np.ones((1, 1, 2), np.float32), "scores")
    most, limit = (numpy_helper.from_array(v, n) for v, n in ((np.array([2]), "most"), (np.float32([0.5]), "limit")))
    nodes = [
        node("Constant", [], ["half"], value=numpy_helper.from_array(np.array(0.5, np.float32))),
        node("Mul", [boxes, "half"], ["halved"]),
        node("Cast", ["halved"], ["cast"], to=FLOAT),
        node("NonMaxSuppression", ["cast", "scores", "most", "limit"], ["kept"]),
        node("Cast", ["kept"], ["count"], to=FLOAT),
        node("ReduceSum", ["count"], ["total"], keepdims=0),
        node("Add", ["halved", "total"], ["then"]),
    ]
    out = helper.make_tensor_value_info("then", FLOAT, [1, 2, 4])
    return helper.make_graph(nodes, "then", [], [out], initializer=[scores, most, limit])


@pytest.mark.parametrize("backend", ["reference", "pytorch", "tensorflow", "onnxruntime"])
def test_branches_change_their_precision_too(backend: str) -> None:
    network = Network("branches")
    network.add_input("boxes", (1, 2, 4))
    network.add_parameter("yes", np.array(True), trainable=False)
    other = helper.make_graph(
        [helper.make_node("Identity", ["boxes"], ["else"])],
        "else",
        [],
        [helper.make_tensor_value_info("else", FLOAT, [1, 2, 4])],
    )
    network.add_node("If", ["yes"], ["result"], then_branch=branch("boxes"), else_branch=other)
    network.add_output("result")
    wide, boxes = to_dtype(network, "float64"), np.arange(8.0).reshape(1, 2, 4)
    assert wide.descriptors()["result"].dtype == "float64"
    module = load_backend(backend)
    got = module.from_model(wide).inference({"boxes": boxes})["result"]
    narrow = module.from_model(network).inference({"boxes": boxes.astype(np.float32)})["result"]
    assert np.asarray(got).dtype == np.float64
    np.testing.assert_allclose(np.asarray(narrow), np.asarray(got), rtol=1e-6)
    third = 1 / 3  # a float32 somewhere on the way would round it
    exact = module.from_model(wide).inference({"boxes": boxes + third})["result"]
    np.testing.assert_allclose(np.asarray(exact), np.asarray(got) + third / 2, rtol=1e-15)
