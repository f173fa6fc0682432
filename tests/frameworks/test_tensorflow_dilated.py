"""Dilated convolutions of TensorFlow against PyTorch's automatic differentiation, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.networks import Network
from tests.conftest import load_backend
from tests.tolerances import assert_close

pytestmark = pytest.mark.backend("tensorflow")
torch = pytest.importorskip("torch")

# fmt: off
CASES: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("Conv", (2, 3, 7, 6), (4, 3, 3, 2), {"dilations": [2, 3], "pads": [2, 0, 1, 3]}),
    ("Conv", (2, 3, 9, 8), (4, 3, 3, 3), {"dilations": [2, 3], "pads": [5, 6, 5, 7], "strides": [2, 3]}),
    ("Conv", (1, 2, 5, 5), (3, 2, 3, 3), {"dilations": [9, 9], "pads": [9, 9, 9, 9]}),  # outer taps see zeros only
    ("Conv", (1, 2, 5, 5), (3, 2, 3, 1), {"dilations": [1, 4]}),  # nothing between one tap
    ("Conv", (2, 4, 8, 7), (6, 2, 2, 3), {"dilations": [3, 2], "group": 2, "strides": [1, 2]}),
    ("Conv", (2, 4, 8, 7), (8, 1, 3, 3), {"dilations": [2, 2], "group": 4, "pads": [2, 2, 2, 2]}),
    ("Conv", (2, 3, 9), (4, 3, 3), {"dilations": [3], "pads": [3, 3]}),
    ("Conv", (1, 2, 6, 5, 7), (3, 2, 2, 2, 3), {"dilations": [2, 3, 2], "strides": [1, 1, 2], "pads": [1, 0, 2] * 2}),
    ("ConvTranspose", (2, 3, 4, 5), (3, 2, 3, 2), {"dilations": [2, 3], "strides": [3, 2], "pads": [1, 2, 1, 0]}),
    ("ConvTranspose", (2, 4, 5), (4, 2, 3), {"dilations": [2], "strides": [2], "group": 2}),
    ("ConvTranspose", (1, 2, 3, 2, 3), (2, 3, 2, 2, 2), {"dilations": [2, 1, 3], "strides": [2, 2, 1]}),
]
# fmt: on


def network(kind: str, shape: tuple[Any, ...], kernel: tuple[int, ...], options: dict[str, Any]) -> Network:
    """One convolution of parameters, and the sum of its cubes."""
    rng = np.random.default_rng(0)
    net = Network()
    net.add_input("scale", ("N", *(None for _ in shape[1:])), "float64")
    net.add_parameter("x", rng.standard_normal(shape))
    net.add_parameter("w", rng.standard_normal(kernel))
    net.add_node("Mul", ["x", "scale"], "scaled")
    net.add_node(kind, ["scaled", "w"], "y", **options)
    net.add_node("Mul", ["y", "y"], "square")
    net.add_node("Mul", ["square", "y"], "cube")
    net.add_node("ReduceSum", ["cube"], "loss", keepdims=0)
    net.add_output("loss")
    return net


def torch_gradients(kind: str, net: Network, scale: np.ndarray, options: dict[str, Any]) -> list[np.ndarray]:
    """The same by PyTorch: zeros are added, and cut away, outside of its convolution."""
    x, w = (torch.tensor(net.parameters[n].value, requires_grad=True) for n in "xw")
    rank, pads = x.ndim - 2, options.get("pads", [0] * 2 * (x.ndim - 2))
    pairs = [n for axis in reversed(range(rank)) for n in (pads[axis], pads[rank + axis])]
    name, inside = (f"conv{rank}d", pairs) if kind == "Conv" else (f"conv_transpose{rank}d", [0] * 2 * rank)
    scaled = torch.nn.functional.pad(x * torch.tensor(scale), inside)
    kwargs = {"stride": options.get("strides", 1), "dilation": options["dilations"], "groups": options.get("group", 1)}
    y = getattr(torch.nn.functional, name)(scaled, w, **kwargs)
    if kind == "ConvTranspose":
        y = torch.nn.functional.pad(y, [-n for n in pairs])
    return [g.numpy() for g in torch.autograd.grad((y**3).sum(), [x, w])]


@pytest.mark.parametrize("kind, shape, kernel, options", CASES)
def test_gradients_are_those_of_pytorch(
    kind: str, shape: tuple[int, ...], kernel: tuple[int, ...], options: dict[str, Any]
) -> None:
    net = network(kind, shape, kernel, options)
    scale = np.random.default_rng(1).standard_normal(shape)
    executor = load_backend("tensorflow").from_model(net)
    executor.inference_and_backprop({"scale": scale})
    got = [np.asarray(g) for g in executor.network.fetch_tensors(["x.grad", "w.grad"])]
    for gradient, want in zip(got, torch_gradients(kind, net, scale, options), strict=True):
        assert np.abs(want).max() > 1
        assert_close(gradient, want, "gradient")


def test_taps_as_far_apart_as_in_deeplab() -> None:
    """Written out, 3 x 3 taps in distance 36 would be 73 x 73 numbers for each pair of channels: 1.4 GB here."""
    rng = np.random.default_rng(0)
    net = Network()
    net.add_input("x", (1, 256, 14, 14))
    net.add_parameter("w", rng.standard_normal((256, 256, 3, 3)).astype(np.float32))
    net.add_node("Conv", ["x", "w"], "y", dilations=[36, 36], pads=[36, 36, 36, 36])
    net.add_node("ReduceSum", ["y"], "loss", keepdims=0)
    net.add_output("loss")
    executor = load_backend("tensorflow").from_model(net)
    x = rng.standard_normal((1, 256, 14, 14)).astype(np.float32)
    executor.inference_and_backprop({"x": x})
    (gradient,) = (np.asarray(g) for g in executor.network.fetch_tensors(["w.grad"]))
    want = np.zeros_like(gradient)
    want[:, :, 1, 1] = x.sum((0, 2, 3))  # all other taps see zeros only
    assert_close(gradient, want, "gradient")
