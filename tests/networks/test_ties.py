"""Arrays that an exporter stored once because they were equal: said, parted, and statistics never shared."""

from __future__ import annotations

import warnings
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import parser

from deep500.errors import NetworkError
from deep500.networks import Network, merged_parameters, untie
from deep500.networks.onnx.load import MergedParametersWarning
from tests.tolerances import as_numpy

MERGED = """<ir_version: 10, opset_import: ["": 20]> g (float[N,2,3] x) => (float[N,2,3] y)
<float[2] ones = {1, 1}, float[2] zeros = {0, 0}> {
    [first] a = BatchNormalization (x, ones, zeros, zeros, ones)
    [rise] b = Sin (a)
    [second] y = BatchNormalization (b, ones, zeros, zeros, ones)
}"""
"""Two untrained layers as an exporter that merges equal arrays writes them: four arrays each have become two."""


def loaded() -> Network:
    with pytest.warns(MergedParametersWarning, match=r"'ones' and 1 more.*first, second.*untie"):
        return Network.from_onnx(parser.parse_model(MERGED))


def test_statistics_are_nobody_elses_arrays() -> None:
    net = loaded()
    assert sorted(net.trainable()) == ["ones", "zeros"]
    assert net.node("first").inputs[1:] == ("ones", "zeros", "ones.running_mean", "ones.running_var")


def test_merged_parameters_are_found_and_parted() -> None:
    net = loaded()
    assert merged_parameters(net) == {name: ["first", "second"] for name in ("ones", "zeros")}
    parted = untie(net)
    assert merged_parameters(parted) == {} and len(parted.trainable()) == 4 and len(parted.parameters) == 8
    assert not {*parted.node("first").inputs[1:]} & {*parted.node("second").inputs[1:]}
    assert len(net.parameters) == 4  # stays as it is
    with pytest.raises(NetworkError, match="got 'one' to untie"):
        untie(net, ["one"])


def test_parted_layers_train_each_for_itself(backend: ModuleType) -> None:
    net = untie(loaded())
    net.add_parameter("weights", np.linspace(-1, 2, 24, dtype="float32").reshape(4, 2, 3), trainable=False)
    net.add_node("Mul", ["y", "weights"], "weighted")
    net.add_node("ReduceSum", ["weighted"], "loss", keepdims=0)
    net.add_output("loss")
    executor = backend.from_model(net, "cpu")
    executor.inference_and_backprop({"x": np.random.default_rng(0).normal(size=(4, 2, 3)).astype("float32")})
    state = executor.network.state()
    assert np.array_equal(state["ones"], [1, 1]) and np.array_equal(state["zeros"], [0, 0])
    means = [as_numpy(state[net.node(name).inputs[3]]) for name in ("first", "second")]
    assert means[0].any() and not np.array_equal(*means)


def test_arrays_that_were_trained_and_files_of_ours_give_no_warning(tmp_path) -> None:
    tied = MERGED.replace("ones = {1, 1}", "ones = {1, 2}").replace("zeros = {0, 0}", "zeros = {0, 1}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Network.from_onnx(parser.parse_model(tied))
        Network.from_onnx(parser.parse_model(MERGED), trainable=["ones"])
    path = tmp_path / "ours.onnx"
    onnx.save(loaded().to_onnx(), path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = Network.from_onnx(path)
    assert merged_parameters(again)
