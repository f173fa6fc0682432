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


def saved(folder: Path) -> Path:
    """Two products, whose weights lie in one file; the second is read through an Identity, too."""
    described = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["N", s]) for n, s in (("x", 40), ("y", 40))]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Identity", ["v"], ["twin"]),
        helper.make_node("MatMul", ["h", "v"], ["g"]),
        helper.make_node("MatMul", ["h", "twin"], ["k"]),
        helper.make_node("Add", ["g", "k"], ["y"]),
    ]
    weights = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.ascontiguousarray(W.T), "v")]
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
    assert_close(reference.from_model(network).inference({"x": x})["y"], 2 * (x @ W @ W.T))
    values["v"][:] = 0  # what trains in place changes neither the file nor the other
    assert (tmp_path / "weights.bin").read_bytes() == before
    np.testing.assert_array_equal(values["twin"], W.T)
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
