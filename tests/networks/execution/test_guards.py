"""Rows that a mask hides altogether: zeros, whose gradient is zero, in every backend."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from deep500.networks import Network, gradient_name
from tests.tolerances import as_numpy


def masked(dtype: str, fill: float, dropped: bool) -> Network:
    """Attention as PyTorch's exporter writes it, of which nothing fuses the parts if ``dropped``."""
    net, rng = Network("masked"), np.random.default_rng(0)
    net.add_parameter("scores", rng.normal(size=(2, 3, 3)).astype(dtype))
    net.add_parameter("values", rng.normal(size=(2, 3, 4)).astype(dtype))
    net.add_input("mask", ("N", 3, 3), dtype)
    net.add_parameter("fill", np.array([fill], dtype), trainable=False)
    net.add_node("Add", ["scores", "mask"], "hidden")
    net.add_node("Softmax", "hidden", "weights", axis=-1)
    net.add_node("IsNaN", "weights", "dead")
    net.add_node("Where", ["dead", "fill", "weights"], "safe")
    net.add_node("Abs" if dropped else "Identity", "safe", "used")
    net.add_node("MatMul", ["used", "values"], "y")
    net.add_node("ReduceSumSquare", "y", "loss", keepdims=0)
    net.add_output("y")
    net.add_output("loss")
    return net


@pytest.mark.parametrize("fill", [0.0, 0.5])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_that_are_hidden_have_the_gradient_of_a_constant(
    dtype: str, dropped: bool, fill: float, backend: ModuleType
) -> None:
    mask = np.triu(np.full((2, 3, 3), -np.inf), 1)
    mask[1, :, 0] = -np.inf  # left padding: nothing to see for the first query
    net = masked(dtype, fill, dropped)
    executor = backend.from_model(net, "cpu")
    y = as_numpy(executor.inference_and_backprop({"mask": mask.astype(dtype)})["y"])
    got = [as_numpy(g) for g in executor.network.fetch_tensors([gradient_name(n) for n in ("scores", "values")])]

    scores, values = (net.parameters[name].value.astype("float64") for name in ("scores", "values"))
    seen = np.exp(scores + mask)
    total = seen.sum(-1, keepdims=True)
    weights = np.where(total > 0, seen / np.where(total > 0, total, 1), fill)
    want = weights @ values
    upstream = 2 * want @ values.swapaxes(1, 2)
    slope = weights * (upstream - (upstream * weights).sum(-1, keepdims=True)) * (total > 0)
    for array, right in ((y, want), (got[0], slope), (got[1], weights.swapaxes(1, 2) @ (2 * want))):
        np.testing.assert_allclose(array, right, atol=1e-5 if dtype == "float32" else 1e-12)
