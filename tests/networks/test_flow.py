"""StopGradient and CustomGradient: gradients chosen by hand, in every backend and behind every transformation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import deep500 as d5
from deep500.errors import InputError, NetworkError
from deep500.networks import to_dtype
from deep500.networks.network import Network
from tests.tolerances import assert_close

X = np.random.default_rng(1).standard_normal((4, 3))


def surrogate(name: str = "surrogate", sign: str = "Neg") -> onnx.GraphProto:
    """dx = -dy * r."""
    values = [helper.make_tensor_value_info(v, TensorProto.DOUBLE, None) for v in ("dy", "r", "dx")]
    nodes = [helper.make_node("Mul", ["dy", "r"], ["t"]), helper.make_node(sign, ["t"], ["dx"])]
    return helper.make_graph(nodes, name, values[:2], values[2:])


def network() -> Network:
    """c = a * stopped(a) of a = x w; y = sign(c v), with the gradient -c; loss = sum(y^2 + y)."""
    net = Network("flow")
    net.add_input("x", ("N", 3), "float64")
    net.add_parameter("w", np.arange(9.0).reshape(3, 3) / 9 - 0.4)
    net.add_parameter("v", np.ones((3, 3)))
    net.add_node("MatMul", ["x", "w"], ["a"])
    net.add_node("StopGradient", ["a"], ["b"], domain="deep500")
    net.add_node("Mul", ["a", "b"], ["c"])
    net.add_node("MatMul", ["c", "v"], ["d"])
    net.add_node("Sign", ["d"], ["q"])
    net.add_node(
        "CustomGradient", ["q", "d", "c"], ["y"], domain="deep500", values=1, arguments=1, backward=surrogate()
    )
    net.add_node("Mul", ["y", "y"], ["square"])
    net.add_node("Add", ["square", "y"], ["both"])
    net.add_node("ReduceSum", ["both"], ["loss"], keepdims=0)
    net.add_output("loss")
    net.add_output("y")
    return net


def by_hand(net: Network, x: np.ndarray) -> dict[str, np.ndarray]:
    """The gradients, written out."""
    w, v = (np.asarray(net.parameters[name].value) for name in ("w", "v"))
    a = x @ w
    c = a * a
    d = c @ v
    of_d = -(2 * np.sign(d) + 1) * c
    return {"w": x.T @ ((of_d @ v.T) * a), "v": c.T @ of_d}


def gradients(
    backend: ModuleType, net: Network, x: np.ndarray, loss: str = "loss", plan: Any = None
) -> dict[str, np.ndarray]:
    """Those of an executor, by the parameters' names."""
    executor = backend.from_model(net)
    if plan is not None:
        executor.set_checkpointing(plan)
    executor.inference_and_backprop({"x": x}, loss)
    pairs = executor.network.gradient(loss)
    tensors = executor.network.fetch_tensors([gradient for _, gradient in pairs])
    return {name: np.asarray(tensor) for (name, _), tensor in zip(pairs, tensors, strict=True)}


def _through_file(net: Network, folder: Path) -> Network:
    net.to_onnx(folder / "flow.onnx")
    return Network.from_onnx(folder / "flow.onnx")


CHANGES: dict[str, Callable[[Network, Path], Network]] = {
    "as it is": lambda net, folder: net,
    "through a file": _through_file,
    "cast there and back": lambda net, folder: to_dtype(to_dtype(net, "float32", "float64"), "float64", "float32"),
    "optimized for training": lambda net, folder: d5.optimize_network(net, training=True, measure=False).network,
}


@pytest.mark.parametrize("change", CHANGES)
def test_gradients_flow_as_the_nodes_say(backend: ModuleType, change: str, tmp_path: Path) -> None:
    net = CHANGES[change](network(), tmp_path)
    assert {"StopGradient", "CustomGradient"} <= {node.op_type for node in net.nodes}
    got = gradients(backend, net, X)
    for name, want in by_hand(network(), X).items():
        assert_close(got[name], want, "gradient", dtype="float32" if change.startswith("cast") else None)


def test_regions_that_run_again_keep_them(backend: ModuleType) -> None:
    """A chain of the same, since what has one layer has nothing to compute again."""
    net = network()
    for layer in range(6):
        net.add_node("Tanh", ["y" if layer == 0 else f"t{layer}"], [f"s{layer}"])
        net.add_node("StopGradient", [f"s{layer}"], [f"u{layer}"], domain="deep500")
        net.add_node("Mul", [f"s{layer}", f"u{layer}"], [f"t{layer + 1}"])
    net.add_node("ReduceSum", ["t6"], ["far"], keepdims=0)
    net.add_output("far")
    plan = d5.plan_checkpointing(net, 0.8, batch=4, loss="far")
    want = gradients(backend, net.copy(), X, "far")
    again = gradients(backend, net.copy(), X, "far", plan)
    for name, gradient in want.items():
        assert np.abs(gradient).max() > 0
        assert_close(again[name], gradient, "gradient")


def test_second_derivatives_follow_the_surrogate() -> None:
    net = network().with_gradient("loss", ["d"])
    net.add_node("ReduceSum", ["d.grad"], ["total"], keepdims=0)
    got = d5.load_backend("reference").from_model(net.with_gradient("total", ["c"])).inference({"x": X})["c.grad"]
    c = (X @ network().parameters["w"].value) ** 2
    y = np.sign(c @ np.ones((3, 3)))  # d.grad = -(2 y + 1) c, and y hands on minus c times what it is given
    assert_close(np.asarray(got), -(2 * y + 1) + 2 * (c * c) @ np.ones((3, 3)), "gradient")


def test_other_runtimes_read_identities(tmp_path: Path) -> None:
    net = network()
    net.add_node("Identity", ["x"], ["copy"])
    net.to_onnx(tmp_path / "flow.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "flow.onnx", providers=["CPUExecutionProvider"])
    a = X @ net.parameters["w"].value
    assert_close(session.run(["y"], {"x": X})[0], np.sign((a * a) @ np.ones((3, 3))), "forward")


WRONG = {
    "too few inputs": (["q"], {"values": 1, "arguments": 1}, "1 inputs"),
    "a graph of other residuals": (["q", "d"], {"values": 1, "arguments": 1}, "0 residuals"),
    "no argument": (["q", "d"], {"values": 2, "arguments": 0}, "0 arguments"),
}


@pytest.mark.parametrize("case", WRONG)
def test_numbers_that_do_not_fit_are_refused(case: str) -> None:
    inputs, attributes, words = WRONG[case]
    net = network()
    with pytest.raises(NetworkError, match=words):
        net.add_node("CustomGradient", inputs, ["z"], domain="deep500", backward=surrogate(), **attributes)


def test_a_graph_captures_nothing() -> None:
    net, graph = network(), surrogate()
    graph.node[0].input[1] = "a"
    with pytest.raises(NetworkError, match="captures 'a'"):
        net.add_node("CustomGradient", ["q", "d", "c"], ["z"], domain="deep500", values=1, arguments=1, backward=graph)


def test_no_plugin_takes_their_names() -> None:
    with pytest.raises(InputError, match="decides where gradients flow"):

        @d5.register_op("StopGradient")
        class Taken(d5.CustomPythonOp):
            def forward(self, inputs):  # type: ignore[no-untyped-def]
                return inputs[0]
