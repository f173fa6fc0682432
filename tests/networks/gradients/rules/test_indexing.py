"""Scatters with ties and zeros, where the gradient is a choice: PyTorch's ``scatter_reduce`` in float64 decides it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.networks import Network
from tests.conftest import load_backend

DATA = np.array([[1.0, 3.0, 0.0], [2.0, 0.0, 5.0], [4.0, 4.0, 4.0]])
INDEX = np.array([[0, 0, 1], [0, 1, 1], [2, 1, 1], [2, 0, 0]])
UPDATES = np.array([[3.0, 3.0, 0.0], [3.0, 0.0, 5.0], [1.0, 0.0, 5.0], [4.0, 7.0, -1.0]])
"""Ties among updates, of data with updates, of all three; zeros alone and in twos."""
NAMES = {"max": "amax", "min": "amin", "mul": "prod"}


def scattered(op_type: str, reduction: str) -> Network:
    net = Network("scattered")
    net.add_parameter("x", DATA)
    net.add_parameter("u", UPDATES if op_type == "ScatterElements" else UPDATES.reshape(-1))
    places = np.stack([INDEX, np.broadcast_to(np.arange(3), INDEX.shape)], -1).reshape(-1, 2)
    net.add_parameter("i", INDEX if op_type == "ScatterElements" else places, trainable=False)
    net.add_parameter("weights", np.arange(1.0, 10.0).reshape(3, 3), trainable=False)
    net.add_node(op_type, ["x", "i", "u"], ["y"], reduction=reduction)
    net.add_node("Mul", ["y", "weights"], ["weighted"])
    net.add_node("ReduceSum", ["weighted"], ["loss"], keepdims=0)
    net.add_output("loss")
    return net


@pytest.mark.parametrize("op_type", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", NAMES)
@pytest.mark.parametrize("name", ["reference", "onnxruntime", "jax"])
def test_ties_and_zeros_are_pytorchs(name: str, reduction: str, op_type: str) -> None:
    torch = pytest.importorskip("torch")
    x, u = (torch.tensor(v, requires_grad=True) for v in (DATA, UPDATES))
    y = x.scatter_reduce(0, torch.tensor(INDEX), u, NAMES[reduction])
    (y * torch.arange(1.0, 10.0, dtype=torch.float64).reshape(3, 3)).sum().backward()
    executor: Any = load_backend(name).Executor(scattered(op_type, reduction))
    executor.inference_and_backprop({})
    for value, leaf in (("x", x), ("u", u)):
        got = np.asarray(executor.network.fetch_tensors([f"{value}.grad"])[0]).reshape(leaf.shape)
        np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-9, atol=1e-9, err_msg=value)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_both_values_of_a_one_hot_have_gradients(axis: int, backend_name: str) -> None:
    """Each is that of all places where it stands; a class that does not exist stands nowhere."""
    net, indices = Network("hot"), np.array([[0, 2, 9], [1, 1, -1]])
    net.add_parameter("values", np.array([-0.5, 2.0]))
    for name, value in (("i", indices), ("depth", np.array(3))):
        net.add_parameter(name, value, trainable=False)
    net.add_node("OneHot", ["i", "depth", "values"], ["y"], axis=axis)
    net.add_node("Mul", ["y", "y"], ["squares"])
    net.add_node("ReduceSum", ["squares"], ["loss"], keepdims=0)
    net.add_output("loss")
    executor: Any = load_backend(backend_name).Executor(net)
    executor.inference_and_backprop({})
    got = executor.network.to_numpy(executor.network.fetch_tensors(["values.grad"])[0])
    np.testing.assert_allclose(got, [2 * -0.5 * (18 - 5), 2 * 2.0 * 5])
