"""Mixed precision against PyTorch's autocast, and what the table does to graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.networks import add_loss, create
from deep500.networks.network import Network
from deep500.networks.node import find_schema
from deep500.tensors import numpy_dtype
from deep500.training.loss_scaling import SCALE, SCALED
from deep500.transformations.mixed_precision import FLOAT32, LOW, PRECISIONS, mixed_precision
from tests.conftest import load_backend
from tests.tolerances import as_numpy

torch = pytest.importorskip("torch")

SCALE_BY = 128.0


def convolutional() -> Network:
    """Convolution, Relu, pooling, LayerNormalization, two products, Gelu and a loss."""
    rng = np.random.default_rng(0)
    net = Network("small")
    net.add_input("x", ("N", 3, 8, 8))
    net.add_input("label", ("N",), "int64")
    shapes = {"k": (4, 3, 3, 3), "kb": (4,), "scale": (64,), "shift": (64,), "w1": (16, 64), "b1": (16,), "w2": (5, 16)}
    for name, shape in shapes.items():
        net.add_parameter(name, (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]) + 1)).astype("float32"))
    net.add_node("Conv", ["x", "k", "kb"], ["c"], pads=[1, 1, 1, 1])
    net.add_node("Relu", ["c"], ["r"])
    net.add_node("AveragePool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2])
    net.add_node("Flatten", ["p"], ["f"])
    net.add_node("LayerNormalization", ["f", "scale", "shift"], ["n"])
    net.add_node("Gemm", ["n", "w1", "b1"], ["h"], transB=1)
    net.add_node("Gelu", ["h"], ["g"])
    net.add_node("Gemm", ["g", "w2"], ["y"], transB=1)
    net.add_node("SoftmaxCrossEntropyLoss", ["y", "label"], ["loss"], reduction="mean")
    for name in ("y", "loss"):
        net.add_output(name)
    return net


def batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {"x": rng.normal(size=(6, 3, 8, 8)).astype("float32"), "label": np.arange(6) % 5}


def autocast(dtype: str | None) -> dict[str, np.ndarray]:
    """The same network by PyTorch alone: loss, scores and gradients; in float32 without a dtype."""
    p = {name: torch.nn.Parameter(torch.tensor(a.value)) for name, a in convolutional().parameters.items()}
    x, label = torch.from_numpy(batch()["x"]), torch.from_numpy(batch()["label"])
    functional = torch.nn.functional
    with torch.autocast("cpu", getattr(torch, dtype or "bfloat16"), enabled=dtype is not None):
        h = functional.avg_pool2d(functional.relu(functional.conv2d(x, p["k"], p["kb"], padding=1)), 2)
        h = functional.layer_norm(h.flatten(1).float(), (64,), p["scale"], p["shift"])
        y = functional.linear(functional.gelu(functional.linear(h, p["w1"], p["b1"])), p["w2"])
        loss = functional.cross_entropy(y.float(), label)
    scale = SCALE_BY if dtype == "float16" else 1.0
    (loss * scale).backward()
    gradients = {name: tensor.grad.numpy() / scale for name, tensor in p.items()}
    return {"loss": loss.detach().numpy(), "y": y.detach().float().numpy(), **gradients}


def ours(backend: str, precision: str) -> dict[str, np.ndarray]:
    executor = load_backend(backend).from_model(mixed_precision(convolutional(), precision), "cpu")
    scaled = precision == "f16"
    more = {SCALE: np.array(SCALE_BY, np.float32)} if scaled else {}
    outputs = executor.inference_and_backprop({**batch(), **more}, SCALED if scaled else "loss")
    pairs = executor.network.gradient("loss")
    tensors = executor.network.fetch_tensors([gradient for _, gradient in pairs])
    to_numpy = executor.network.to_numpy
    got = {name: as_numpy(to_numpy(outputs[name])) for name in ("loss", "y")}
    divide = SCALE_BY if scaled else 1.0
    return {**got, **{n: as_numpy(to_numpy(t)) / divide for (n, _), t in zip(pairs, tensors, strict=True)}}


def distance(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.linalg.norm(left - right) / np.linalg.norm(right))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_is_torchs_autocast(backend_name: str, precision: str) -> None:
    """On PyTorch the same kernels in the same types; elsewhere as near to it as 16 bits allow, and not float32."""
    got, want, exact = ours(backend_name, precision), autocast(PRECISIONS[precision]), autocast(None)
    assert got.keys() == want.keys()
    limit = {"bf16": 4e-2, "f16": 4e-3}[precision]  # JAX sums gradients of biases in bfloat16
    for name, value in want.items():
        assert got[name].dtype == np.float32 and got[name].shape == value.shape
        near = distance(got[name], value)
        assert near < (1e-6 if backend_name == "pytorch" else limit), f"{name}: {near}"
        assert distance(got[name], exact[name]) < 2 * limit
    moved = max(distance(got[name], exact[name]) for name in want)
    if not (backend_name == "onnxruntime" and precision == "f16"):  # which it computes in float32 on processors
        assert moved > limit / 100, "nothing ran in 16 bits"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_inference_is_low_too_and_names_and_types_stay(backend_name: str, precision: str) -> None:
    network = add_loss(create("mlp", shape=(6,), hidden=(5,), classes=3))
    low = mixed_precision(network, precision)
    assert low.outputs == network.outputs and [*low.inputs][:2] == [*network.inputs]
    assert {n: (p.value.dtype, p.trainable) for n, p in network.parameters.items()}.items() <= {
        n: (p.value.dtype, p.trainable) for n, p in low.parameters.items()
    }.items()
    x = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
    module = load_backend(backend_name)
    (output, *_) = network.outputs
    executors = [module.from_model(net, "cpu") for net in (network, low)]
    want, got = (as_numpy(e.network.to_numpy(e.inference({"input": x}, [output])[output])) for e in executors)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=5e-2, atol=2e-2)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_pooling_windows_that_overlap_train(backend_name: str, precision: str) -> None:
    """Their gradient adds up at one place; the largest values are far apart, so that 16 bits choose the same."""
    net = Network()
    net.add_input("x", ("N", 1, 4, 4))
    net.add_parameter("k", np.ones((1, 1, 1, 1), np.float32))
    net.add_node("Conv", ["x", "k"], ["c"])
    net.add_node("MaxPool", ["c"], ["p"], kernel_shape=[3, 3], strides=[1, 1])
    net.add_node("ReduceSum", ["p"], ["loss"], keepdims=0)
    net.add_output("loss")
    executor = load_backend(backend_name).from_model(mixed_precision(net, precision), "cpu")
    x = np.random.default_rng(0).permutation(16).reshape(1, 1, 4, 4).astype("float32")
    more = {SCALE: np.array(1, np.float32)} if precision == "f16" else {}
    executor.inference_and_backprop({"x": x, **more}, SCALED if more else "loss")
    (gradient,) = executor.network.fetch_tensors(["k.grad"])
    want = sum(x[0, 0, i : i + 3, j : j + 3].max() for i in (0, 1) for j in (0, 1))
    assert as_numpy(executor.network.to_numpy(gradient)).item() == want


def test_the_table_holds_operators_that_are() -> None:
    assert not LOW & FLOAT32
    for name in LOW | FLOAT32:
        assert find_schema(name) is not None, name


def test_each_value_is_cast_once_and_the_widest_input_decides() -> None:
    net = Network()
    net.add_input("x", ("N", 4))
    net.add_parameter("w", np.ones((4, 4), np.float32))
    net.add_parameter("huge", np.float32(-3e38), trainable=False)
    net.add_parameter("half", np.float32(0.5), trainable=False)
    net.add_node("MatMul", ["x", "w"], ["a"])
    net.add_node("MatMul", ["x", "w"], ["b"])
    net.add_node("Add", ["a", "b"], ["low"])
    net.add_node("Add", ["a", "x"], ["wide"])
    net.add_node("Mul", ["low", "half"], ["halved"])
    net.add_node("Max", ["low", "huge"], ["masked"])
    net.add_node("Shape", ["low"], ["shape"])
    for name in ("wide", "halved", "masked", "shape"):
        net.add_output(name)
    made = mixed_precision(net, "f16")
    described = made.descriptors()
    casts = [node for node in made.nodes if node.op_type == "Cast"]
    assert len({node.inputs for node in casts}) == len(casts)
    of = {name: made.node(net.producer(name).name) for name in net.outputs}  # type: ignore[union-attr]
    assert described[of["halved"].outputs[0]].dtype == "float16" and of["halved"].inputs[1] == "half.f16"
    assert made.parameters["half.f16"].value.dtype == numpy_dtype("float16")
    for name in ("wide", "masked"):
        assert described[of[name].inputs[0]].dtype == described[of[name].outputs[0]].dtype == "float32"
    assert of["shape"].inputs == ("low.f16",)
    assert all(described[name].dtype == net.descriptors()[name].dtype for name in net.outputs)


def test_sub_graphs_see_float32() -> None:
    """A body captures values by name; they are there in their own type."""
    from onnx import parser

    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 18]> g (float[N,4] x, bool c, float[4,4] w) => (float[N,4] y) {
        a = MatMul(x, w)
        y = If(c) <then_branch = t () => (float[N,4] p) { p = Relu(a) },
                   else_branch = e () => (float[N,4] q) { q = Neg(a) }>
        }"""
    )
    made = mixed_precision(Network.from_onnx(model), "bf16")
    assert made.descriptors()["a"].dtype == "float32" and made.descriptors()["a.bf16"].dtype == "bfloat16"
    executor = load_backend("reference").from_model(made)
    inputs = {"x": np.ones((1, 4), "float32"), "c": np.array(False), "w": np.eye(4, dtype="float32")}
    np.testing.assert_array_equal(executor.inference(inputs)["y"], -np.ones((1, 4), "float32"))


def test_what_cannot_run_low_is_an_error() -> None:
    with pytest.raises(InputError, match="'bf16'"):
        mixed_precision(convolutional(), "bfloat16")
    double: Any = create("mlp", shape=(4,), hidden=(3,), classes=2)
    wide = Network()
    wide.add_input("x", ("N", 2), "float64")
    wide.add_node("Relu", ["x"], ["y"])
    wide.add_output("y")
    assert mixed_precision(double, "bf16").nodes
    with pytest.raises(InputError, match="no operator"):
        mixed_precision(wide, "bf16")
