"""Findings of `python -m tests.fuzz.networks`, reduced: each in every backend against the reference in float64."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

from deep500.networks import Network, gradient_name
from tests.conftest import load_backend
from tests.tolerances import as_numpy


def n(*shape: int) -> np.ndarray:
    """Normal numbers, the same in every backend."""
    return np.random.default_rng(500).normal(size=shape)


def scaled_product(net: Network) -> None:
    """ONNX Runtime's fused product held the scale in float32: 1e-7 off."""
    net.add_parameter("a", n(3, 2, 2))
    net.add_parameter("b", n(2))
    net.add_parameter("scale", np.array(0.693147), trainable=False)
    net.add_node("Div", ["b", "scale"], ["scaled"])
    net.add_node("MatMul", ["scaled", "a"], ["y"])


def extreme_spread_again(net: Network) -> None:
    """TensorFlow's optimizer left the spreading out: the result had the shape of one number."""
    net.add_parameter("x", n(1, 20))
    net.add_parameter("shape", np.array([1, 20]), trainable=False)
    net.add_node("Sigmoid", ["x"], ["rising"])
    net.add_node("ReduceMax", ["rising"], ["most"], keepdims=0)
    net.add_node("Expand", ["most", "shape"], ["y"])


def extreme_with_its_axis(net: Network) -> None:
    """The same with an axis that comes back."""
    net.add_parameter("x", n(20, 1))
    net.add_parameter("axis", np.array([1]), trainable=False)
    net.add_node("Sigmoid", ["x"], ["rising"])
    net.add_node("ReduceMin", ["rising", "axis"], ["least"], keepdims=0)
    net.add_node("Unsqueeze", ["least", "axis"], ["y"])


def equal_bounds(net: Network) -> None:
    """PyTorch's clamp gave bounds that are equal no gradient: the derivative is the number of elements."""
    net.add_parameter("x", n(4, 5))
    net.add_parameter("bound", np.array(0.25))
    net.add_node("Clip", ["x", "bound", "bound"], ["y"])


def pad_by_a_value(net: Network) -> None:
    """JAX could not go back through a pad of what has no gradient."""
    net.add_parameter("x", n(2, 3))
    net.add_parameter("pads", np.array([0, 1, 1, 0]), trainable=False)
    net.add_node("ReduceMax", ["x"], ["fill"], keepdims=0)
    net.add_node("Pad", ["x", "pads", "fill"], ["y"])


def sum_of_nothing(net: Network) -> None:
    """ONNX Runtime's optimizer left an Expand to a size of 0 out: the gradient had an element too many."""
    net.add_parameter("x", np.zeros((0, 11, 1)))
    net.add_parameter("axes", np.array([0]), trainable=False)
    net.add_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)


FOUND = (scaled_product, extreme_spread_again, extreme_with_its_axis, equal_bounds, pad_by_a_value, sum_of_nothing)


def answers(backend: ModuleType, build: Callable[[Network], None]) -> dict[str, np.ndarray]:
    """The result, and the gradients of its sum."""
    net = Network(build.__name__)
    build(net)
    net.add_node("ReduceSum", ["y"], ["loss"], keepdims=0)
    net.add_output("y")
    net.add_output("loss")
    executor = backend.from_model(net, "cpu")
    result = executor.inference({})["y"]
    executor.inference_and_backprop({})
    names = [gradient_name(name) for name in net.trainable()]
    values = [result, *executor.network.fetch_tensors(names)]
    return {name: as_numpy(executor.network.to_numpy(value)) for name, value in zip(["y", *names], values, strict=True)}


@pytest.mark.parametrize("build", FOUND, ids=lambda build: build.__name__)
def test_reduced_graphs_are_right(build: Callable[[Network], None], backend: ModuleType) -> None:
    want = answers(load_backend("reference"), build)
    for name, value in answers(backend, build).items():
        assert value.shape == want[name].shape, name
        np.testing.assert_allclose(value, want[name], 1e-12, 1e-12, err_msg=name)


@pytest.mark.parametrize("group", [1, 2])
def test_convolutions_of_empty_batches_have_their_own_shape(group: int, backend: ModuleType) -> None:
    """TensorFlow's kernels of float32 gave the shape of the input."""
    net = Network("empty")
    net.add_input("x", ("N", 2, 8, 6), "float32")
    net.add_parameter("w", np.ones((4, 2 // group, 3, 3), "float32"))
    net.add_node("Conv", ["x", "w"], ["y"], strides=[2, 1], group=group)
    net.add_node("ReduceSum", ["y"], ["loss"], keepdims=0)
    net.add_output("y")
    net.add_output("loss")
    executor = backend.from_model(net, "cpu")
    for count in (2, 0, 1):
        batch = {"x": np.ones((count, 2, 8, 6), "float32")}
        assert as_numpy(executor.inference(batch)["y"]).shape == (count, 4, 3, 4)
        assert as_numpy(executor.inference_and_backprop(batch)["y"]).shape == (count, 4, 3, 4)
        gradient = as_numpy(executor.network.fetch_tensors([gradient_name("w")])[0])
        assert gradient.shape == (4, 2 // group, 3, 3) and (gradient == count * 12).all()


@pytest.mark.parametrize(
    "shapes",
    [((10, 1, 32, 1), (1, 1)), ((10, 1, 32, 2), (2, 1)), ((10, 1, 4, 3), (1, 1, 3, 2)), ((2, 3), (5, 1, 3, 4))],
    ids=str,
)
def test_products_of_batches_that_are_spread(shapes: tuple[tuple[int, ...], ...], backend: ModuleType) -> None:
    """TensorFlow's kernel wrote beyond its memory: other numbers in every run, or the end of the process."""
    net = Network("spread")
    for name, shape in zip("ab", shapes, strict=True):
        net.add_parameter(name, n(*shape).astype("float32"))
    net.add_node("MatMul", ["a", "b"], ["y"])
    net.add_node("ReduceSumSquare", ["y"], ["loss"], keepdims=0)
    net.add_output("y")
    executor = backend.from_model(net, "cpu")
    y = as_numpy(executor.inference({}, ["y"])["y"])
    a, b = (net.parameters[name].value for name in "ab")
    np.testing.assert_allclose(y, a @ b, 1e-5, 1e-6)
    executor.inference_and_backprop({})
    got = [as_numpy(g) for g in executor.network.fetch_tensors([gradient_name("a"), gradient_name("b")])]
    for value, (x, other, turned) in zip(got, ((a, b, False), (b, a, True)), strict=True):
        whole = np.matmul(np.swapaxes(other, -1, -2), 2 * y) if turned else np.matmul(2 * y, np.swapaxes(other, -1, -2))
        while whole.ndim > x.ndim:
            whole = whole.sum(0)
        axes = tuple(axis for axis, size in enumerate(x.shape) if size == 1 and whole.shape[axis] != 1)
        np.testing.assert_allclose(value, whole.sum(axes, keepdims=True), 1e-4, 1e-5)


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("before", ["Ceil", "Floor", "Round", "Sign", "Relu"])
def test_the_first_of_equal_extremes_is_taken(before: str, kind: str, backend: ModuleType) -> None:
    """TensorFlow's optimizer looked for it in front of the function that makes values equal."""
    net = Network("ties")
    net.add_input("x", ("N", 23), "float32")
    net.add_node(before, ["x"], ["rounded"])
    net.add_node(kind, ["rounded"], ["y"], axis=1, keepdims=0)
    net.add_output("y")
    x = (0.4 * n(48, 23)).astype("float32")
    rounded = {"Ceil": np.ceil, "Floor": np.floor, "Round": np.rint, "Sign": np.sign, "Relu": lambda v: v.clip(0)}
    want = getattr(np, kind.lower())(rounded[before](x), 1)
    assert (as_numpy(backend.from_model(net, "cpu").inference({"x": x})["y"]) == want).all()
