"""Dropout drops, anew in every step, wherever it stands: gradient or none, a mode of its own or the executor's."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from onnx import TensorProto, helper

from deep500.networks import Network, gradient_name
from tests.tolerances import as_numpy

PLACES = ("input", "computed from a shape", "fixed", "trained", "hidden", "with its mask")


def network(place: str, always: bool = False) -> Network:
    """``y = x * w * Dropout(what stands in that place)`` of ones, so that y shows what is dropped; loss is its sum."""
    net = Network("dropout")
    net.add_input("x", (40, 3))
    net.add_parameter("w", np.ones(3, "float32"))
    net.add_parameter("rate", np.array(0.25, "float32"), trainable=False)
    source = "x"
    if place == "computed from a shape":
        net.add_node("Shape", "x", "shape")
        net.add_node("ConstantOfShape", "shape", "ones", value=np.array([1], "float32"))
        source = "ones"
    elif place in ("fixed", "trained"):
        net.add_parameter("table", np.ones((40, 3), "float32"), trainable=place == "trained")
        source = "table"
    elif place == "hidden":
        net.add_node("Mul", ["x", "w"], "hidden")
        source = "hidden"
    inputs = [source, "rate"]
    if always:
        net.add_parameter("mode", np.array(True), trainable=False)
        inputs.append("mode")
    net.add_node("Dropout", inputs, ["dropped", "mask"] if place == "with its mask" else ["dropped"])
    net.add_node("Mul", ["x", "w"], "weighted")
    net.add_node("Mul", ["weighted", "dropped"], "y")
    net.add_node("ReduceSum", "y", "loss", keepdims=0)
    for name in ("y", "loss", *(["mask"] if place == "with its mask" else [])):
        net.add_output(name)
    return net


FEEDS = {"x": np.ones((40, 3), "float32")}


def is_dropped(values: np.ndarray) -> bool:
    """Whether ones were dropped by a quarter; that all of 120 stay, or more than half go, is less likely than 1e-9."""
    assert np.allclose(values[values != 0], 4 / 3, 1e-5) or (values == 1).all()
    return bool(0 < (values == 0).sum() < 60)


@pytest.mark.parametrize("place", PLACES)
def test_training_drops_and_inference_does_not(backend: ModuleType, place: str) -> None:
    executor = backend.from_model(network(place), "cpu")
    assert (as_numpy(executor.inference(FEEDS)["y"]) == 1).all()
    steps = [executor.inference_and_backprop(FEEDS, "loss") for _ in range(2)]
    first, second = (as_numpy(step["y"]) for step in steps)
    assert is_dropped(first) and is_dropped(second) and (first != second).any()
    if place == "with its mask":
        assert (as_numpy(steps[1]["mask"]) == (second != 0)).all()
    if place != "hidden":  # there w has two ways to the loss
        (gradient,) = executor.network.fetch_tensors([gradient_name("w")])
        np.testing.assert_allclose(as_numpy(gradient), second.sum(0), 1e-5)
    assert (as_numpy(executor.inference(FEEDS)["y"]) == 1).all()


@pytest.mark.parametrize("place", PLACES)
def test_a_mode_of_its_own_holds_in_inference_too(backend: ModuleType, place: str) -> None:
    executor = backend.from_model(network(place, always=True), "cpu")
    first, second = (as_numpy(executor.inference(FEEDS)["y"]) for _ in range(2))
    assert is_dropped(first) and is_dropped(second) and (first != second).any()
    assert is_dropped(as_numpy(executor.inference_and_backprop(FEEDS, "loss")["y"]))


def test_a_dropout_inside_a_branch_drops(backend: ModuleType) -> None:
    net = Network("branch")
    net.add_input("x", (40, 3))
    net.add_parameter("rate", np.array(0.25, "float32"), trainable=False)
    net.add_parameter("mode", np.array(True), trainable=False)
    net.add_parameter("condition", np.array(True), trainable=False)
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, read, ["inner"])],
            name,
            [],
            [helper.make_tensor_value_info("inner", TensorProto.FLOAT, [40, 3])],
        )
        for name, op, read in (("then", "Dropout", ["x", "rate", "mode"]), ("else", "Identity", ["x"]))
    }
    net.add_node("If", "condition", "y", then_branch=branches["then"], else_branch=branches["else"])
    net.add_output("y")
    assert is_dropped(as_numpy(backend.from_model(net, "cpu").inference(FEEDS)["y"]))
