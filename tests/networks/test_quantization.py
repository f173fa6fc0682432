"""The straight-through estimator against PyTorch's fake quantisation, in every backend; ONNX quantises float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.networks import Network
from deep500.networks.quantization import straight_through
from tests.conftest import load_backend

RNG = np.random.default_rng(11)
X, W, B = (RNG.normal(size=shape).astype(np.float32) for shape in ((5, 4), (4, 6), 6))
SCALES = RNG.uniform(0.008, 0.02, 6).astype(np.float32)


def quantized() -> Network:
    """tanh of a product of quantised inputs (uint8) and weights (int8, a scale a channel), quantised again."""
    net = Network("quantized")
    net.add_parameter("x", X * 5)
    net.add_parameter("w", W)
    net.add_parameter("b", B)
    fixed = {"sx": 0.05, "sw": SCALES, "sy": 0.1}
    for name, value in fixed.items():
        net.add_parameter(name, np.array(value, np.float32), trainable=False)
    for name, zero in {"zx": np.uint8(100), "zw": np.zeros(6, np.int8), "zy": np.int8(3)}.items():
        net.add_parameter(name, np.array(zero), trainable=False)

    def pair(value: str, scale: str, zero: str, **attributes: Any) -> str:
        net.add_node("QuantizeLinear", [value, scale, zero], [f"{value}.whole"], **attributes)
        net.add_node("DequantizeLinear", [f"{value}.whole", scale, zero], [f"{value}.real"], **attributes)
        return f"{value}.real"

    net.add_node("Gemm", [pair("x", "sx", "zx"), pair("w", "sw", "zw", axis=1), "b"], ["y"])
    net.add_node("Tanh", [pair("y", "sy", "zy")], ["t"])
    net.add_node("ReduceSumSquare", ["t"], ["loss"], keepdims=0)
    net.add_output("loss")
    net.add_output("y.real")
    return net


def torch_gradients(torch: Any) -> dict[str, np.ndarray]:
    x, w, b = (torch.tensor(v, requires_grad=True) for v in (X * 5, W, B))
    fake = torch.fake_quantize_per_tensor_affine
    zeros = torch.zeros(6, dtype=torch.int32)
    wide = torch.fake_quantize_per_channel_affine(w, torch.tensor(SCALES), zeros, 1, -128, 127)
    y = fake(fake(x, 0.05, 100, 0, 255) @ wide + b, 0.1, 3, -128, 127)
    (torch.tanh(y) ** 2).sum().backward()
    return {"x": x.grad.numpy(), "w": w.grad.numpy(), "b": b.grad.numpy()}


def test_training_is_pytorchs_fake_quantisation(backend: Any) -> None:
    torch = pytest.importorskip("torch")
    want = torch_gradients(torch)
    assert np.any(want["x"] == 0) and np.any(want["w"] == 0) and not np.all(want["w"] == 0)
    executor = backend.from_model(quantized(), quantization="straight_through")
    executor.inference_and_backprop({})
    for name, expected in want.items():
        got = np.asarray(executor.network.fetch_tensors([f"{name}.grad"])[0])
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max(), err_msg=name)
        np.testing.assert_array_equal(got == 0, expected == 0, err_msg=name)


def test_values_stay_and_nothing_trains_unless_asked_for(backend: Any) -> None:
    plain = backend.from_model(quantized())
    asked = backend.from_model(quantized(), quantization="straight_through")
    got, want = (np.asarray(executor.inference({})["y.real"]) for executor in (asked, plain))
    np.testing.assert_array_equal(got, want)
    with pytest.raises(NetworkError, match="no trainable parameter influences"):
        plain.inference_and_backprop({})


@pytest.mark.parametrize("name", ["reference", "onnxruntime"])
def test_emitted_gradient(name: str) -> None:
    torch = pytest.importorskip("torch")
    gradient = quantized().with_gradient("loss", quantization="straight_through")
    got = load_backend(name).Executor(gradient).inference({})
    for parameter, expected in torch_gradients(torch).items():
        np.testing.assert_allclose(got[f"{parameter}.grad"], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("op_type", "message"),
    [
        ("MatMulInteger", r"QuantizeLinear in node 'q' \(its values are read by MatMulInteger\).*'reads' \(it"),
        ("DynamicQuantizeLinear", r"DynamicQuantizeLinear in node 'reads' \(it computes with quantised values"),
    ],
)
def test_other_formats_are_refused(op_type: str, message: str) -> None:
    net = Network()
    net.add_parameter("x", X[:4])
    net.add_parameter("s", np.array(0.1, np.float32), trainable=False)
    net.add_node("QuantizeLinear", ["x", "s"], "whole", name="q")
    if op_type == "MatMulInteger":
        net.add_node(op_type, ["whole", "whole"], ["y"], name="reads")
    else:
        net.add_node(op_type, ["x"], ["y", "y.scale", "y.zero"], name="reads")
    with pytest.raises(UnsupportedOperator, match=message):
        straight_through(net)
    with pytest.raises(InputError, match="did you mean 'straight_through'"):
        net.with_gradient("loss", quantization="straightthrough")
