"""Function bodies of ONNX: in the precision of their operands, with operands left out, forward and for gradients."""

from __future__ import annotations

import numpy as np
import pytest

import deep500.frameworks.reference as d5fw
from deep500.networks import Network, gradient_name
from deep500.networks.bodies import expand
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor

RNG = np.random.default_rng(0)
DOUBLE = 11


def network(op_type: str, arrays: dict[str, np.ndarray], names: list[str], **attributes: object) -> Network:
    """One node of parameters, and the sum of what it gives."""
    made = Network("one")
    for name, array in arrays.items():
        made.add_parameter(name, array)
    made.add_node(op_type, names, "y", "node", **attributes)
    made.add_node("ReduceSum", "y", "loss", keepdims=0)
    made.add_output("y")
    made.add_output("loss")
    return made


def test_float64_is_not_stashed_in_float32() -> None:
    x, scale, bias = RNG.normal(size=(2, 4, 3)), RNG.normal(size=4), RNG.normal(size=4)
    arrays = {"x": x, "scale": scale, "bias": bias}
    executor = d5fw.from_model(network("GroupNormalization", arrays, ["x", "scale", "bias"], num_groups=2))
    groups = x.reshape(2, 2, -1)
    centred = groups - groups.mean(-1, keepdims=True)
    normal = centred / np.sqrt(groups.var(-1, keepdims=True) + float(np.float32(1e-5)))
    want = normal.reshape(x.shape) * scale[:, None] + bias[:, None]
    y = executor.inference({})["y"]
    np.testing.assert_allclose(y, want, rtol=1e-12)
    executor.inference_and_backprop({}, "loss")
    (of_scale,) = executor.network.fetch_tensors([gradient_name("scale")])
    np.testing.assert_allclose(of_scale, normal.reshape(x.shape).sum((0, 2)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_a_window_asked_for_in_float64_is_so(kind: str) -> None:
    node = Node(kind, ("size",), ("y",), "node", attributes={"output_datatype": DOUBLE})
    body = expand(node, {"size": TensorDescriptor("int64", ())})
    assert body is not None
    dtypes = {np.asarray(v).dtype.name for n in body if n.op_type == "Constant" for v in n.attributes.values()}
    assert "float32" not in dtypes and DOUBLE in [n.attributes.get("to") for n in body]


def test_operands_in_the_middle_may_be_left_out() -> None:
    arrays = {
        name: RNG.normal(size=(1, 2, length, 2))
        for name, length in (("q", 1), ("k", 2), ("v", 2), ("pk", 2), ("pv", 2))
    }
    made = Network("attention")
    for name, array in arrays.items():
        made.add_parameter(name, array)
    made.add_node("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "k2", "v2"], "node")
    made.add_node("ReduceSum", "y", "loss", keepdims=0)
    made.add_output("loss")
    executor = d5fw.from_model(made)
    executor.inference_and_backprop({}, "loss")
    (of_value,) = executor.network.fetch_tensors([gradient_name("v")])
    keys, query = np.concatenate([arrays["pk"], arrays["k"]], 2), arrays["q"]
    scores = np.exp(query @ keys.swapaxes(-1, -2) / np.sqrt(2))
    weights = scores / scores.sum(-1, keepdims=True)
    np.testing.assert_allclose(of_value, np.repeat(weights[..., 2:].swapaxes(-1, -2), 2, -1), rtol=1e-12)
