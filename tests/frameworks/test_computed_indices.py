"""Computed indices that do not exist: an error where the framework can tell, see docs/own_models.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.networks import Network

X = np.arange(1.0, 7.0, dtype=np.float32).reshape(3, 2)
ROWS = np.ones((2, 2), np.float32)
CASES: dict[str, tuple[tuple[int, ...], dict[str, Any], list[float]]] = {
    "Gather": ((2,), {}, [1, 2, np.nan, np.nan]),
    "GatherElements": ((1, 2), {}, [1, np.nan]),
    "GatherND": ((2, 1), {}, [1, 2, np.nan, np.nan]),
    "ScatterElements": ((1, 2), {"reduction": "add"}, [2, 2, 3, 4, 5, 6]),
    "ScatterND": ((2, 1), {"reduction": "add"}, [2, 3, 3, 4, 5, 6]),
}
"""Shape of the indices, attributes, and what JAX gives for an index that does not exist, for it cannot raise."""


def computed(operator: str, wrong: int) -> Network:
    """An operator whose indices are 0 and ``wrong``, once an input of zeros has been added."""
    shape, attributes, _ = CASES[operator]
    net = Network("computed")
    net.add_input("offset", shape, "int64")
    net.add_parameter("x", X)
    net.add_parameter("base", np.array([0, wrong]).reshape(shape), trainable=False)
    net.add_node("Add", ["base", "offset"], ["indices"])
    inputs = ["x", "indices"]
    if operator.startswith("Scatter"):
        net.add_parameter("updates", ROWS[: 1 if operator == "ScatterElements" else 2])
        inputs.append("updates")
    net.add_node(operator, inputs, ["y"], **attributes)
    net.add_output("y")
    return net


@pytest.mark.parametrize("wrong", [7, -9])
@pytest.mark.parametrize("operator", CASES)
def test_an_index_that_does_not_exist(backend: Any, operator: str, wrong: int) -> None:
    shape, _, without_errors = CASES[operator]
    executor = backend.Executor(computed(operator, wrong))
    inputs = {"offset": np.zeros(shape, np.int64)}
    if "jax" in backend.__name__:
        got = np.asarray(executor.inference(inputs)["y"]).reshape(-1)
        np.testing.assert_array_equal(got, np.array(without_errors, np.float32))
        return
    with pytest.raises(InputError, match=r"indices|index|operands that fit"):
        executor.inference(inputs)


def test_one_hot_of_a_class_that_does_not_exist_is_all_off(backend: Any) -> None:
    """ONNX defines it."""
    net = Network("classes")
    net.add_input("classes", (3,), "int64")
    net.add_parameter("depth", np.array(3), trainable=False)
    net.add_parameter("off and on", np.array([0, 1], np.float32), trainable=False)
    net.add_node("OneHot", ["classes", "depth", "off and on"], ["y"])
    net.add_output("y")
    got = backend.Executor(net).inference({"classes": np.array([1, 7, -9])})["y"]
    np.testing.assert_array_equal(np.asarray(got), [[0, 1, 0], [0, 0, 0], [0, 0, 0]])
