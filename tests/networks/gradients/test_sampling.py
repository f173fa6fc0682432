"""GridSample, whose gradient is that of the gathers it is written as, against PyTorch's grid_sample in float64."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from deep500.networks import Network
from tests.conftest import load_backend

EXACT = 1e-9
NAMES = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}
CASES = [
    (dimensions, mode, padding, align)
    for dimensions, mode, padding, align in product((2, 3), NAMES, ("zeros", "border", "reflection"), (0, 1))
    if (dimensions, mode) != (3, "cubic")  # PyTorch has none
]


def sampled(dimensions: int, mode: str, padding: str, align: int) -> tuple[Network, np.ndarray, np.ndarray]:
    """loss = sum of squares of the samples; image and grid are parameters, many points lie outside the image."""
    rng = np.random.default_rng(dimensions)
    image = rng.normal(size=(2, 3, 4, 5) if dimensions == 2 else (2, 2, 3, 4, 5))
    grid = rng.uniform(-2.2, 2.2, size=(2, 3, 6, 2) if dimensions == 2 else (2, 2, 3, 4, 3))
    net = Network("sampled")
    net.add_parameter("image", image)
    net.add_parameter("grid", grid)
    net.add_node("GridSample", ["image", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=align)
    net.add_node("ReduceSumSquare", ["y"], ["loss"], keepdims=0)
    net.add_output("loss")
    return net, image, grid


def torch_gradients(torch: Any, image: np.ndarray, grid: np.ndarray, mode: str, padding: str, align: int) -> Any:
    x, points = (torch.tensor(v, requires_grad=True) for v in (image, grid))
    y = torch.nn.functional.grid_sample(x, points, NAMES[mode], padding, bool(align))
    (y * y).sum().backward()
    return float((y * y).sum().detach()), x.grad.numpy(), points.grad.numpy()


@pytest.mark.parametrize(("dimensions", "mode", "padding", "align"), CASES)
@pytest.mark.parametrize("name", ["reference", "onnxruntime"])
def test_gradient_is_that_of_pytorch(name: str, dimensions: int, mode: str, padding: str, align: int) -> None:
    torch = pytest.importorskip("torch")
    net, image, grid = sampled(dimensions, mode, padding, align)
    loss, of_image, of_grid = torch_gradients(torch, image, grid, mode, padding, align)
    got = load_backend(name).Executor(net.with_gradient("loss", ["image", "grid"])).inference({})
    for value, want in (("loss", loss), ("image.grad", of_image), ("grid.grad", of_grid)):
        np.testing.assert_allclose(got[value], want, rtol=EXACT, atol=EXACT, err_msg=value)
    assert np.any(of_image) and (mode == "nearest") == (not np.any(of_grid))


@pytest.mark.parametrize("padding", ["zeros", "reflection"])
def test_backends_with_their_own_autograd_agree(backend: Any, padding: str) -> None:
    torch = pytest.importorskip("torch")
    net, image, grid = sampled(2, "linear", padding, 0)
    executor = backend.Executor(net)
    executor.inference_and_backprop({})
    _, *want = torch_gradients(torch, image, grid, "linear", padding, 0)
    for got, expected in zip(executor.network.fetch_tensors(["image.grad", "grid.grad"]), want, strict=True):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=EXACT, atol=EXACT)


def test_sizes_may_be_open() -> None:
    torch = pytest.importorskip("torch")
    net, image, grid = sampled(2, "cubic", "border", 1)
    free = Network("free")
    free.add_input("image", ("N", "C", "H", "W"), "float64")
    free.add_input("grid", ("N", "h", "w", 2), "float64")
    for node in net.nodes:
        free.add_node(node.op_type, node.inputs, node.outputs, **node.attributes)
    got = (
        load_backend("onnxruntime")
        .Executor(free.with_gradient("loss", ["image", "grid"]))
        .inference({"image": image, "grid": grid}, ["image.grad", "grid.grad"])
    )
    _, *want = torch_gradients(torch, image, grid, "cubic", "border", 1)
    for value, expected in zip(got.values(), want, strict=True):
        np.testing.assert_allclose(value, expected, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("sizes", [(3, 4), (2, 2, 3)])
@pytest.mark.parametrize("name", ["reference", "onnxruntime"])
def test_affine_grid_has_pytorchs_gradient(name: str, sizes: tuple[int, ...], align: int) -> None:
    torch = pytest.importorskip("torch")
    dimensions, shape = len(sizes), [2, 3, *sizes]
    theta = np.random.default_rng(9).normal(size=(2, dimensions, dimensions + 1))
    net = Network("transformer")
    net.add_parameter("theta", theta)
    net.add_parameter("size", np.array(shape), trainable=False)
    net.add_node("AffineGrid", ["theta", "size"], ["grid"], align_corners=align)
    net.add_node("Sin", ["grid"], ["y"])
    net.add_node("ReduceSumSquare", ["y"], ["loss"], keepdims=0)
    net.add_output("loss")
    leaf = torch.tensor(theta, requires_grad=True)
    loss = (torch.nn.functional.affine_grid(leaf, shape, bool(align)).sin() ** 2).sum()
    loss.backward()
    got = load_backend(name).Executor(net.with_gradient()).inference({})
    np.testing.assert_allclose(got["loss"], loss.detach().numpy(), rtol=EXACT)
    np.testing.assert_allclose(got["theta.grad"], leaf.grad.numpy(), rtol=EXACT, atol=EXACT)
