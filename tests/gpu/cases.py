"""What runs on the stand-in for a card (:mod:`tests.gpu.standin`), each against the processor's own run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from deep500.frameworks import pytorch
from deep500.networks import Network
from tests.gpu.standin import Card, CardTensor, a_card
from tests.tolerances import assert_close

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def on_card(value: Any) -> bool:
    """Whether a value is on the card, and so is all that it consists of."""
    return all(map(on_card, value)) if isinstance(value, (list, tuple)) else isinstance(value, CardTensor)


def host(value: Any) -> np.ndarray:
    """Its values as an array."""
    return (value.on_host if isinstance(value, CardTensor) else value).detach().numpy()


def check_training(network: Network, feeds: Mapping[str, Any], loss: str = "loss") -> int:
    """Inference and a training step on the card: all is there, and is what the processor computes.

    Returns:
        how often the processor waited for the card in a step.
    """
    plain = pytorch.from_model(network)
    with a_card():
        executor = pytorch.from_model(network, "gpu", strict=True)
        assert all(on_card(tensor) for tensor in executor.tensors.values())
        said = executor.inference(feeds)
        assert on_card(list(said.values())), {name: type(value) for name, value in said.items()}
        for name, want in plain.inference(feeds).items():
            assert_close(host(said[name]), want, "forward", name)
        Card.waits = 0
        learned = executor.inference_and_backprop(feeds, loss)
        waits = Card.waits
        names = list(executor.gradients)
        gradients = executor.network.fetch_tensors(names)
        assert on_card(list(learned.values())) and on_card(gradients)
        plain.inference_and_backprop(feeds, loss)
        for name, got, want in zip(names, gradients, plain.network.fetch_tensors(names), strict=True):
            assert_close(host(got), want, "gradient", name)
    return waits


def check_inference(model: onnx.ModelProto | Network, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Inference on the card: all outputs are there, and are what the processor computes; returns them."""
    make: Any = pytorch.from_model if isinstance(model, Network) else pytorch.from_onnx
    want = make(model).inference(feeds)
    with a_card():
        got = make(model, device="gpu", strict=True).inference(feeds)
        assert on_card(list(got.values())), {name: type(value) for name, value in got.items()}
        for name, value in got.items():
            assert_close(host(value), want[name], "forward", name)
    return got


def _model(nodes: list[onnx.NodeProto], inputs: Any, outputs: Any, constants: Any = ()) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [helper.make_tensor(*value) for value in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def loop_that_counts() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A Loop whose body joins the counter to its state, and scans nothing if it does not run."""
    body = helper.make_graph(
        [
            helper.make_node("Unsqueeze", ["i", "zero"], ["one"]),
            helper.make_node("Concat", ["state", "one"], ["longer"], axis=0),
            helper.make_node("Cast", ["one"], ["row"], to=FLOAT),
            helper.make_node("Identity", ["going"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT, []),
            helper.make_tensor_value_info("going", BOOL, []),
            helper.make_tensor_value_info("state", INT, ["n"]),
        ],
        [
            helper.make_tensor_value_info("goes_on", BOOL, []),
            helper.make_tensor_value_info("longer", INT, ["m"]),
            helper.make_tensor_value_info("row", FLOAT, [1]),
        ],
        [helper.make_tensor("zero", INT, [1], [0])],
    )
    nodes = [helper.make_node("Loop", ["count", "", "start"], ["end", "rows"], body=body)]
    model = _model(nodes, [("count", INT, []), ("start", INT, [1])], [("end", INT, None), ("rows", FLOAT, None)])
    return model, {"count": np.array(3), "start": np.array([7])}


def if_of_a_size() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """An If whose condition and whose captured value are computed from a shape, where the branch is on the card."""

    def branch(name: str, operator: str) -> onnx.GraphProto:
        node, result = (
            helper.make_node(operator, ["x", "size"], [name]),
            helper.make_tensor_value_info(name, INT, ["n"]),
        )
        return helper.make_graph([node], name, [], [result])

    nodes = [
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("ReduceProd", ["size"], ["elements"], keepdims=0),
        helper.make_node("Greater", ["elements", "limit"], ["large"]),
        helper.make_node("If", ["large"], ["y"], then_branch=branch("a", "Add"), else_branch=branch("b", "Mul")),
        helper.make_node("Add", ["y", "x"], ["z"]),
    ]
    model = _model(nodes, [("x", INT, ["n"])], [("y", INT, None), ("z", INT, None)], [("limit", INT, [], [2])])
    return model, {"x": np.array([1, 2, 3])}


def loop_over_sizes() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A Loop all of whose inputs are computed from shapes; its state meets a tensor of the card afterwards."""
    body = helper.make_graph(
        [
            helper.make_node("Concat", ["state", "x"], ["longer"], axis=0),
            helper.make_node("ReduceSum", ["longer"], ["sum"], keepdims=1),
            helper.make_node("Identity", ["going"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT, []),
            helper.make_tensor_value_info("going", BOOL, []),
            helper.make_tensor_value_info("state", INT, [1]),
        ],
        [helper.make_tensor_value_info("goes_on", BOOL, []), helper.make_tensor_value_info("sum", INT, [1])],
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["size"]),
        helper.make_node("Squeeze", ["size"], ["count"]),
        helper.make_node("Loop", ["count", "", "size"], ["end"], body=body),
        helper.make_node("Concat", ["end", "x"], ["y"], axis=0),
    ]
    return _model(nodes, [("x", INT, ["n"])], [("y", INT, None)]), {"x": np.array([1, 2, 3])}


CONTROL = {"loop_that_counts": loop_that_counts, "if_of_a_size": if_of_a_size, "loop_over_sizes": loop_over_sizes}
