"""Weights inside a file are read straight into arrays: the same network as by ONNX's own parser, in any file."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from deep500.errors import NetworkError
from deep500.networks import Network
from deep500.networks.onnx import embedded, load

KINDS = ["float32", "float64", "float16", "int64", "int8", "uint8", "bool", "uint16"]


def model(arrays, **options):
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in arrays]
    outputs = [
        helper.make_tensor_value_info(f"{name}_out", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    held = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "graph", [], outputs, held, **options)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10, producer_name="a test")


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=5),
    kinds=st.lists(st.sampled_from(KINDS), min_size=5, max_size=5),
    least=st.integers(0, 200),
    seed=st.integers(0, 99),
)
def test_message_and_arrays_are_what_onnx_reads(shapes, kinds, least, seed, tmp_path_factory):
    rng = np.random.default_rng(seed)
    arrays = {f"w{i}": rng.integers(0, 2, shape).astype(kinds[i]) for i, shape in enumerate(shapes)}
    path = tmp_path_factory.mktemp("models") / "model.onnx"
    want = model(arrays, doc_string="words")
    onnx.save(want, path)
    content, found = embedded.without_weights(path, 0, least)
    got = onnx.load_model_from_string(content)
    for tensor in got.graph.initializer:
        if tensor.name in found:
            array = found[tensor.name]
            assert array.dtype == arrays[tensor.name].dtype and array.flags.writeable and array.nbytes >= least
            np.testing.assert_array_equal(array, arrays[tensor.name], strict=True)
            tensor.raw_data = array.tobytes()
    assert got == want
    flat = {name for name, array in arrays.items() if array.nbytes >= max(least, 1) and array.dtype.name in FLAT}
    assert flat <= set(found)


FLAT = {"float32", "float64", "float16", "int64", "int8", "uint8"}


def test_a_network_is_the_same_with_and_without_it(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    arrays = {"a": rng.normal(size=(64, 65)).astype("float32"), "b": rng.normal(size=(9000,)), "c": np.ones(3, "int64")}
    path = tmp_path / "model.onnx"
    onnx.save(model(arrays), path)
    monkeypatch.setattr(embedded.without_weights, "__defaults__", (0, embedded.LEAST))
    light = Network.from_onnx(path)
    whole = Network.from_onnx(path.read_bytes())
    assert {n: p.trainable for n, p in light.parameters.items()} == {
        n: p.trainable for n, p in whole.parameters.items()
    }
    for name, parameter in whole.parameters.items():
        np.testing.assert_array_equal(light.parameters[name].value, parameter.value, strict=True)
    light.parameters["a_out"].value[0] = 0  # its own memory, not the file's


def odd(change):
    """A file that no writer makes, and that only ONNX's own parser may judge."""
    proto = model({"w": np.arange(8000, dtype="float32")})
    change(proto)
    return proto.SerializeToString()


def _twice(proto):
    proto.graph.initializer.append(proto.graph.initializer[0])


def _short(proto):
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data[:-4]


def _negative(proto):
    proto.graph.initializer[0].dims[0] = -1


def _as_numbers(proto):
    tensor = proto.graph.initializer[0]
    tensor.float_data.extend([1.0] * 8000)
    tensor.ClearField("raw_data")


def _no_type(proto):
    proto.graph.initializer[0].data_type = 77


ODD = {
    "the same name twice": odd(_twice),
    "too few bytes": odd(_short),
    "a negative size": odd(_negative),
    "numbers one by one": odd(_as_numbers),
    "an unknown type": odd(_no_type),
    "cut off": odd(lambda proto: None)[:-1000],
    "two graphs": odd(lambda proto: None) + odd(lambda proto: None),
    "no message": b"\xff" * 40_000,
}


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_what_is_odd_is_judged_by_onnx(content, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    def answer():
        try:
            return {name: p.value.tolist() for name, p in Network.from_onnx(path).parameters.items()}
        except NetworkError as error:
            return str(error)

    want = answer()  # such a small file is not taken apart
    monkeypatch.setattr(embedded.without_weights, "__defaults__", (0, 1))
    assert answer() == want


def test_reading_holds_weights_once(tmp_path):
    path = tmp_path / "model.onnx"
    size = 2048 * 2048 * 4
    onnx.save(model({"weight": np.ones((2048, 2048), "float32")}), path)
    tracemalloc.start()
    network = Network.from_onnx(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert network.parameters["weight_out"].value.nbytes == size and peak < 1.3 * size
    assert load.without_weights is embedded.without_weights and TensorProto.FLOAT in embedded.FLAT
