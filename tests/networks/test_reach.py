"""What a loss reaches: parameters behind rounding, behind decisions, unread; statistics that are operands."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from deep500.errors import NetworkError
from deep500.networks import Network, as_network, gradient_name
from tests.tolerances import as_numpy, assert_close

W = np.array([0.3, -1.7, 2.2], "float32")
REACHED = {"Floor": True, "Ceil": True, "Round": True, "Sign": True, "Hardmax": False, "IsNaN": False}
"""Operators between a parameter and the loss, and whether the loss counts as depending on the parameter."""


def between(op_type: str, alone: bool) -> Network:
    """A loss of ``w`` through an operator, and of another parameter unless it is alone; nobody reads ``idle``."""
    net = Network(op_type)
    for name in ("w", "idle") if alone else ("w", "idle", "other"):
        net.add_parameter(name, W)
    net.add_node(op_type, "w", "rounded")
    net.add_node("Cast", "rounded", "value", to=1)
    net.add_node("Mul", ["value", "value" if alone else "other"], "product")
    net.add_node("ReduceSum", "product", "loss", keepdims=0)
    net.add_output("loss")
    return net


@pytest.mark.parametrize("op_type", REACHED)
def test_parameters_behind_pieces_that_are_constant(op_type: str, backend: ModuleType) -> None:
    net = between(op_type, alone=False)
    assert net.gradient() == [(n, f"{n}.grad") for n in ("w", "other") if REACHED[op_type] or n != "w"]
    executor = backend.from_model(net, "cpu")
    executor.inference_and_backprop({})
    w, idle, other = (as_numpy(t) for t in executor.network.fetch_tensors(["w.grad", "idle.grad", "other.grad"]))
    assert_close(w, np.zeros_like(W), "exact")
    assert_close(idle, np.zeros_like(W), "exact")
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(W)
    rounded = {"Hardmax": torch.tensor([0.0, 0.0, 1.0]), "IsNaN": x.isnan()}
    want = rounded[op_type] if op_type in rounded else getattr(torch, op_type.lower())(x)
    assert_close(other, want.numpy().astype("float32"), "exact")


@pytest.mark.parametrize("op_type", REACHED)
def test_a_loss_behind_rounding_alone(op_type: str, backend: ModuleType) -> None:
    executor = backend.from_model(between(op_type, alone=True), "cpu")
    if not REACHED[op_type]:
        with pytest.raises(NetworkError, match="which no trainable parameter influences"):
            executor.inference_and_backprop({})
        return
    executor.inference_and_backprop({})
    assert_close(as_numpy(executor.network.fetch_tensors([gradient_name("w")])[0]), np.zeros_like(W), "exact")


def test_batch_normalization_of_weights_trains_as_its_module_does(backend: ModuleType) -> None:
    """NFNet's convolution: the statistics are those of the weights, in training and evaluation."""
    torch = pytest.importorskip("torch")

    class ScaledStdConv2d(torch.nn.Conv2d):
        def forward(self, x):
            rows = self.weight.reshape(1, self.out_channels, -1)
            gain = self.bias.exp()
            w = torch.nn.functional.batch_norm(rows, None, None, gain, training=True, momentum=0.0, eps=2**-10)
            return torch.nn.functional.conv2d(x, w.reshape_as(self.weight))

    torch.manual_seed(0)
    module, x = ScaledStdConv2d(3, 4, 3).double(), torch.randn(2, 3, 6, 6, dtype=torch.float64)
    net = as_network(module, x.numpy())
    assert any(node.op_type == "BatchNormalization" for node in net.nodes)
    (given,), (y,) = net.inputs, net.outputs
    net.add_node("ReduceSumSquare", y, "loss", keepdims=0)
    net.add_output("loss")
    executor, want = backend.from_model(net, "cpu"), module(x)
    assert_close(executor.inference({given: x.numpy()})[y], want.detach())
    want.square().sum().backward()
    executor.inference_and_backprop({given: x.numpy()})
    for name, parameter in module.named_parameters():
        (got,) = executor.network.fetch_tensors([gradient_name(name)])
        assert_close(executor.network.to_numpy(got), parameter.grad, "gradient", name)
