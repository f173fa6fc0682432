"""Scan of opset 8, which has a batch axis, against a loop over its samples."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import deep500.frameworks.reference as d5fw
from deep500.errors import NetworkError
from deep500.networks import Network
from tests.tolerances import assert_close


def _running_sums(first: str = "", **attributes: object) -> onnx.ModelProto:
    def value(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    adding = [helper.make_node("Add", ["old", "x"], ["new"]), helper.make_node("Identity", ["new"], ["copy"])]
    body = helper.make_graph(adding, "body", [value("old", 2), value("x", 2)], [value("new", 2), value("copy", 2)])
    scan = helper.make_node(
        "Scan", [first, "start", "xs"], ["last", "sums"], body=body, num_scan_inputs=1, **attributes
    )
    inputs = [value("start", 3, 2), value("xs", 3, 4, 2)]
    if first:
        inputs.append(helper.make_tensor_value_info(first, onnx.TensorProto.INT64, (3,)))
    graph = helper.make_graph([scan], "sums", inputs, [value("last", 3, 2), value("sums", 3, 4, 2)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)])


@pytest.mark.parametrize("reverse", [False, True])
def test_every_sample_of_the_batch_is_scanned(reverse: bool) -> None:
    executor = d5fw.from_onnx(_running_sums(**({"directions": [1]} if reverse else {})))
    rng = np.random.default_rng(0)
    start, xs = rng.standard_normal((3, 2)).astype("float32"), rng.standard_normal((3, 4, 2)).astype("float32")
    sums = start[:, None] + np.cumsum(xs[:, ::-1] if reverse else xs, axis=1)
    got = executor.inference({"start": start, "xs": xs})
    assert_close(got["sums"], sums)
    assert_close(got["last"], sums[:, -1])
    assert executor.network.inputs["xs"].shape == (3, 4, 2)


def test_sequences_of_different_lengths_are_refused() -> None:
    with pytest.raises(NetworkError, match=r"model: got .*expected operators that ONNX can convert"):
        Network.from_onnx(_running_sums("lengths"))
