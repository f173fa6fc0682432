"""Weights written to a file beside the model: by wish, and where protobuf's 2 GiB are not enough."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500.errors import NetworkError
from deep500.networks import Network, create, protos
from deep500.networks.node import Node, from_proto
from deep500.registry import load_backend
from tests.conftest import HANG


def wide() -> Network:
    return create("mlp", shape=(40,), classes=3, hidden=(50,))


@given(st.floats() | st.lists(st.floats(), min_size=1).map(tuple))
def test_numbers_of_custom_operators_come_back_bit_for_bit(value: float | tuple[float, ...]) -> None:
    """ONNX's attributes have 32 bits, in which .1 is another number and 1e-50 is zero."""
    node = Node("TestScale", ("x",), ("y",), "node", "deep500", {"by": value})
    back = from_proto(protos.node_proto(node)).attributes["by"]
    assert type(back) is type(value) and np.array_equal(back, value, equal_nan=True)
    assert np.array_equal(np.signbit(back), np.signbit(value)) or np.isnan(value).any()
    assert (
        onnx.AttributeProto.TENSOR
        != protos.node_proto(Node("Elu", ("x",), ("y",), "n", "", {"alpha": 0.1})).attribute[0].type
    )


def test_external_data_come_back_as_they_were(tmp_path: Path) -> None:
    network, path = wide(), tmp_path / "m.onnx"
    message = network.to_onnx(path, external=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert not any(t.HasField("raw_data") for t in message.graph.initializer if t.external_data)
    back = Network.from_onnx(path)
    assert back == network and list(back.parameters) == list(network.parameters)
    assert back.trainable() == network.trainable()
    onnx.checker.check_model(path)  # others read it, too
    held = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    np.testing.assert_array_equal(held["fc1.weight"], network.parameters["fc1.weight"].value)


def test_a_network_is_written_over_the_file_that_it_is_mapped_from(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    wide().to_onnx(path, external=True)
    network = Network.from_onnx(path)
    network.set_parameter("fc1.weight", network.parameters["fc1.weight"].value + 1)
    expected = network.content_hash()
    network.to_onnx(path, external=True)
    assert network.content_hash() == expected == Network.from_onnx(path).content_hash()


def test_offsets_are_pages_and_older_opsets_are_written_too(tmp_path: Path) -> None:
    network = create("mlp", shape=(40,), classes=30, hidden=(50, 60))
    for opset in (None, 13):
        message = network.to_onnx(tmp_path / "m.onnx", opset, external=True)
        entries = [{e.key: e.value for e in t.external_data} for t in message.graph.initializer if t.external_data]
        assert len(entries) == 3 and {e["location"] for e in entries} == {"m.onnx.data"}
        assert all(int(e["offset"]) % 4096 == 0 for e in entries)
        assert Network.from_onnx(tmp_path / "m.onnx").trainable() == network.trainable()


@pytest.mark.parametrize("backend", ["reference", "pytorch", "onnxruntime"])
def test_what_one_message_cannot_hold(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if backend != "reference":
        pytest.importorskip({"pytorch": "torch"}.get(backend, backend))
    network, x = wide(), {"input": np.ones((2, 40), np.float32)}
    expected = load_backend("reference").from_model(network).inference(x)["output"]
    monkeypatch.setattr(protos, "MOST_BYTES", 4096)
    with pytest.raises(NetworkError, match="bytes of weights and no path; expected one"):
        network.to_onnx()
    network.to_onnx(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").stat().st_size == 40 * 50 * 4
    executor = load_backend(backend).from_model(Network.from_onnx(tmp_path / "m.onnx"))
    np.testing.assert_allclose(np.asarray(executor.inference(x)["output"]), expected, rtol=1e-5)
    if backend == "onnxruntime":  # what its message could not hold is an input of the session
        assert [v.name for v in executor._inference(("output",))[0].session.get_inputs()] == ["input", "fc1.weight"]
    executor.network.set_parameter("fc1.weight", 0 * network.parameters["fc1.weight"].value)
    assert not np.allclose(np.asarray(executor.inference(x)["output"]), expected)


BEYOND = """
import resource, sys
import numpy as np
from deep500.networks import Network
from deep500.registry import load_backend

backend, folder = sys.argv[1:]
network = Network("large")
network.add_input("x", ("N", 16384))
weight = np.zeros((16384, 16384), np.float32)
np.fill_diagonal(weight, 2)
for i in range(3):
    network.add_parameter(f"w{i}", weight, copy=False)  # 3 GiB in all, held once
    network.add_node("MatMul", ["x" if i == 0 else f"y{i - 1}", f"w{i}"], [f"y{i}"])
network.add_output("y2")
network.to_onnx(f"{folder}/m.onnx")
del network, weight
back = Network.from_onnx(f"{folder}/m.onnx")
assert "large" in str(back)
x = np.ones((1, 16384), np.float32)
y = load_backend(backend).from_model(back).inference({"x": x})["y2"]
np.testing.assert_array_equal(np.asarray(y), 8 * x)
back.to_onnx(f"{folder}/n.onnx")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.long
@pytest.mark.parametrize("backend", ["reference", "pytorch", "onnxruntime"])
def test_three_gibibytes_are_written_read_and_run(backend: str, tmp_path: Path) -> None:
    if backend != "reference":
        pytest.importorskip({"pytorch": "torch"}.get(backend, backend))
    words = [sys.executable, "-c", BEYOND, backend, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_reduction_of_nothing_is_not_written_as_one_of_all() -> None:
    network = Network("reduction")
    network.add_input("x", (2, 3), "float32")
    network.add_node("ReduceMax", "x", "y", "largest", noop_with_empty_axes=1)
    network.add_output("y")
    with pytest.raises(NetworkError, match=r"opset 15 for node 'largest' \(ReduceMax\) with noop_with_empty_axes"):
        network.to_onnx(opset=15)
    assert network.to_onnx(opset=18).opset_import[0].version == 18


def test_values_of_contributed_operators_raise_the_opset_by_no_type_that_came_later() -> None:
    """Their types are not known; what a runtime of today contributes gives none of tomorrow's."""
    network = Network()
    network.add_input("x", ("N", 3))
    network.add_node("Gelu", "x", "a", domain="com.microsoft")
    network.add_parameter("shape", np.array([-1, 3]), trainable=False)
    network.add_node("Reshape", ["a", "shape"], "b")
    network.add_node("Relu", "b", "y")
    network.add_output("y")
    assert network.descriptors()["b"].dtype is None and network.to_onnx().opset_import[0].version == 21


@pytest.mark.parametrize(("opset", "written"), [(None, 21), (17, 17), (16, 16)])
def test_what_only_learned_types_is_written_under_old_labels(opset: int | None, written: int) -> None:
    network = Network("boxes")
    network.add_input("x", (1, 1, 4, 4), "float32")
    network.add_input("rois", (2, 4), "float32")
    network.add_input("places", (2,), "int64")
    network.add_node("RoiAlign", ["x", "rois", "places"], "y", "align")
    network.add_output("y")
    assert network.to_onnx(opset=opset).opset_import[0].version == written


def test_the_dtype_of_a_group_normalization_is_known() -> None:
    network = Network("groups")
    network.add_input("x", (2, 6, 3), "float16")
    for name in ("scale", "bias"):
        network.add_parameter(name, np.ones(6, np.float16))
    network.add_node("GroupNormalization", ["x", "scale", "bias"], "y", num_groups=2)
    network.add_node("Relu", "y", "z")
    network.add_output("z")
    described = network.descriptors()["z"]
    assert (described.dtype, described.shape) == ("float16", (2, 6, 3))
