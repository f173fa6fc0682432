"""Sizes and gradients of windows that pad by themselves, or by less than nothing: PyTorch's, in every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500 import Network, load_backend
from tests.tolerances import assert_close

torch = pytest.importorskip("torch")

ADDING: dict[str, tuple[dict[str, Any], tuple[int, int], tuple[int, int]]] = {
    "upper": ({"auto_pad": "SAME_UPPER"}, (-1, 0), (0, 1)),
    "lower": ({"auto_pad": "SAME_LOWER"}, (0, 1), (-1, 0)),
    "explicit": ({"pads": [0, 1, -1, -2]}, (0, 1), (-1, -2)),
}
"""Attributes of a kernel of 2 x 4 with stride 3, and what is cut away before both axes and after them."""


def trained(network: Network, backend: str, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    executor = load_backend(backend).from_model(network)
    results = dict(executor.inference_and_backprop(feeds, "loss"))
    names = [name for name, _ in executor.network.gradient("loss")]
    tensors = executor.network.fetch_tensors([f"{name}.grad" for name in names])
    results |= dict(zip(names, tensors, strict=True))
    return {name: np.asarray(executor.network.to_numpy(tensor)) for name, tensor in results.items()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ADDING)
def test_a_transposed_convolution_that_adds_zeros(backend_name: str, kind: str, dtype: str) -> None:
    attributes, begin, end = ADDING[kind]
    rng, network = np.random.default_rng(0), Network()
    shapes = {"scale": (1, 4, 1, 1), "w": (4, 3, 2, 4), "b": (6,)}
    values = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    x = rng.normal(size=(2, 4, 5, 6)).astype(dtype)
    network.add_input("x", ("N", 4, 5, 6), dtype)
    for name, value in values.items():
        network.add_parameter(name, value)
    network.add_node("Mul", ["x", "scale"], "a")
    network.add_node("ConvTranspose", ["a", "w", "b"], "y", strides=[3, 3], group=2, **attributes)
    network.add_node("Mul", ["y", "y"], "z")
    network.add_node("ReduceMean", "z", "loss", keepdims=0)
    network.add_output("y")
    network.add_output("loss")
    theirs = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    y = torch.nn.functional.conv_transpose2d(torch.tensor(x) * theirs["scale"], theirs["w"], stride=3, groups=2)
    y = torch.nn.functional.pad(y, [-begin[1], -end[1], -begin[0], -end[0]]) + theirs["b"][:, None, None]
    (y * y).mean().backward()
    assert network.descriptors()["y"].shape == ("N", *y.shape[1:])
    got = trained(network, backend_name, {"x": x})
    assert_close(got["y"], y.detach().numpy())
    for name, tensor in theirs.items():
        assert_close(got[name], tensor.grad.numpy(), "gradient", err_msg=name)


def test_a_dilated_convolution_pads_by_itself(backend_name: str) -> None:
    rng, network = np.random.default_rng(0), Network()
    x, w = rng.normal(size=(2, 4, 7, 8)).astype("float32"), rng.normal(size=(6, 2, 3, 3)).astype("float32")
    network.add_input("x", ("N", 4, 7, 8))
    network.add_parameter("w", w)
    network.add_node("Conv", ["x", "w"], "y", group=2, dilations=[2, 1], auto_pad="SAME_UPPER")
    network.add_output("y")
    got = load_backend(backend_name).from_model(network).inference({"x": x})["y"]
    want = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), padding=(2, 1), dilation=(2, 1), groups=2)
    assert_close(got, want.numpy())
