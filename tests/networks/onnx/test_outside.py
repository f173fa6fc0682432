"""Weights in files beside the model: mapped, private to the network, and refused where they do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from deep500.errors import NetworkError
from deep500.frameworks import reference
from deep500.networks import Network
from tests.tolerances import assert_close

W = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
V = np.ones((50, 40), np.float32)


def saved(folder: Path) -> Path:
    """Two products, whose weights lie in one file; the second, of ones, is read through an Identity, too."""
    described = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N", s]) for n, s in (("x", 40), ("y", 40))]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Identity", ["v"], ["twin"]),
        helper.make_node("MatMul", ["h", "v"], ["g"]),
        helper.make_node("MatMul", ["h", "twin"], ["k"]),
        helper.make_node("Add", ["g", "k"], ["y"]),
    ]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(V, "v")]
    model = helper.make_model(helper.make_graph(nodes, "g", described[:1], described[1:], weights))
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def mapping(array: np.ndarray) -> np.ndarray | None:
    """The mapped file behind an array."""
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array


def test_they_are_mapped_and_private(tmp_path: Path) -> None:
    path = saved(tmp_path)
    before = (tmp_path / "weights.bin").read_bytes()
    network = Network.from_onnx(path)
    values = {name: p.value for name, p in network.parameters.items()}
    assert {name: mapping(v) is not None for name, v in values.items()} == {"w": True, "v": True, "twin": False}
    x = np.ones((1, 40), np.float32)
    assert_close(reference.from_model(network).inference({"x": x})["y"], 2 * (x @ W @ V))
    values["v"][:] = 0  # what trains in place changes neither the file nor the other
    assert (tmp_path / "weights.bin").read_bytes() == before
    np.testing.assert_array_equal(values["twin"], V)
    assert Network.from_onnx(path) != network


@pytest.mark.parametrize("damage", ["short", "length", "offset"])
def test_what_does_not_fit_is_refused(tmp_path: Path, damage: str) -> None:
    path = saved(tmp_path)
    if damage == "short":
        data = tmp_path / "weights.bin"
        data.write_bytes(data.read_bytes()[:-4])
    else:
        model = onnx.load(path, load_external_data=False)
        entry = next(e for e in model.graph.initializer[0].external_data if e.key == damage)
        entry.value = {"length": "12", "offset": str(2**40)}[damage]
        onnx.save(model, path)
    with pytest.raises(NetworkError, match="expected complete external data"):
        Network.from_onnx(path)


def changed(path: Path, key: str, value: str, tensor: int = 0) -> None:
    """Overwrite or add one entry of the external data of a tensor."""
    model = onnx.load(path, load_external_data=False)
    external = model.graph.initializer[tensor].external_data
    entry = next((e for e in external if e.key == key), None) or external.add()
    entry.key, entry.value = key, value
    onnx.save(model, path)


@pytest.mark.parametrize("small", [False, True], ids=["mapped", "read"])
@pytest.mark.parametrize("key", ["offset", "length"])
@pytest.mark.parametrize(
    "value", ["-1", str(-(2**63)), "x", "", "1.5", "0x10", " 8", "1_0", "\u0663", "9" * 5000, "1e3"]
)
def test_offsets_and_lengths_are_numbers_of_bytes(tmp_path: Path, key: str, value: str, small: bool) -> None:
    path = saved(tmp_path)
    if small:  # few enough elements to be left to ONNX's own loading
        model = onnx.load(path, load_external_data=False)
        model.graph.initializer[0].dims[:] = [2, 2]
        onnx.save(model, path)
    changed(path, key, value)
    with pytest.raises(NetworkError, match=rf"got {key} '.*' for tensor 'w'; expected complete external data"):
        Network.from_onnx(path)


@pytest.mark.parametrize(("offset", "length"), [(2**40, 8), (0, 2**40), (16000, 1), (2**63 - 1, 2**63 - 1)])
def test_what_lies_beyond_the_file_is_refused_with_its_size(tmp_path: Path, offset: int, length: int) -> None:
    path = saved(tmp_path)
    size = (tmp_path / "weights.bin").stat().st_size
    changed(path, "offset", str(offset))
    changed(path, "length", str(length))
    with pytest.raises(NetworkError, match=f"{length} bytes from {offset} on in a file of {size}"):
        Network.from_onnx(path)


def test_a_constant_whose_data_do_not_fill_it_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    model = onnx.load(path, load_external_data=False)
    tensor = model.graph.initializer[1]  # its file holds more than one number
    constant = helper.make_node("Constant", [], ["c"], value=onnx.TensorProto(name="c", data_type=1, dims=[1]))
    held = constant.attribute[0].t
    held.data_location = onnx.TensorProto.EXTERNAL
    held.external_data.extend(e for e in tensor.external_data if e.key == "location")
    model.graph.node.insert(0, constant)
    onnx.save(model, path)
    with pytest.raises(NetworkError, match="expected sound tensors"):
        Network.from_onnx(path)
