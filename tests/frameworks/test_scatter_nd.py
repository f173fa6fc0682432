"""ScatterND whose indices are one tuple, as gradients of single looked-up rows write them, in every backend."""

from __future__ import annotations

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import Network
from tests.conftest import load_backend


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in d5.registry.BACKENDS])
@pytest.mark.parametrize("reduction", ["none", "add"])
def test_one_tuple_of_indices_writes_one_slice(backend: str, reduction: str) -> None:
    rng = np.random.default_rng(0)
    data, update = rng.normal(size=(3, 4, 2)), rng.normal(size=(4, 2))
    network = Network("scatter")
    network.add_input("data", data.shape, "float64")
    network.add_input("update", update.shape, "float64")
    network.add_parameter("at", np.array([-2], np.int64), trainable=False)
    network.add_node("ScatterND", ["data", "at", "update"], ["y"], reduction=reduction)
    network.add_output("y")
    executor = load_backend(backend).from_model(network)
    expected = data.copy()
    expected[1] = update if reduction == "none" else data[1] + update
    got = executor.network.to_numpy(executor.inference({"data": data, "update": update})["y"])
    np.testing.assert_array_equal(got, expected)
