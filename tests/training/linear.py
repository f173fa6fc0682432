"""A linear network, and an executor for it whose gradients are written out by hand: no backend is needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.networks.execution.bound import BoundNetwork
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.losses import gradient_name
from deep500.networks.network import Network

FEATURES, CLASSES, BATCH = 4, 3, 8


def linear_network(loss: str = "mean_squared_error", dtype: str = "float64", seed: int = 0) -> Network:
    """``y = x w + b`` with a loss; inputs ``input`` (N, 4) and ``label``, parameters ``w`` (4, 3) and ``b`` (3,)."""
    rng = np.random.default_rng(seed)
    net = Network("linear")
    net.add_input("input", ("N", FEATURES), dtype)
    net.add_parameter("w", rng.normal(size=(FEATURES, CLASSES)).astype(dtype))
    net.add_parameter("b", rng.normal(size=CLASSES).astype(dtype))
    net.add_node("MatMul", ["input", "w"], ["product"])
    net.add_node("Add", ["product", "b"], ["y"])
    net.add_output("y")
    if loss == "cross_entropy":
        net.add_input("label", ("N",), "int64")
        net.add_node("SoftmaxCrossEntropyLoss", ["y", "label"], ["loss"], reduction="mean")
    else:
        net.add_input("label", ("N", CLASSES), dtype)
        net.add_node("Sub", ["y", "label"], ["difference"])
        net.add_node("Mul", ["difference", "difference"], ["square"])
        net.add_node("ReduceMean", ["square"], ["loss"], keepdims=0)
    net.add_output("loss")
    return net


def regression_batches(count: int, seed: int = 0, dtype: str = "float64") -> list[dict[str, np.ndarray]]:
    """Random problems: a new one for every step."""
    rng = np.random.default_rng([seed, 1])
    return [
        {
            "input": rng.normal(size=(BATCH, FEATURES)).astype(dtype),
            "label": rng.normal(size=(BATCH, CLASSES)).astype(dtype),
        }
        for _ in range(count)
    ]


class FakeNetwork(BoundNetwork):
    """Tensors in a dictionary."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.tensors: dict[str, Any] = {name: p.value.copy() for name, p in network.parameters.items()}

    def fetch_tensors(self, names: Any) -> list[Any]:
        return [self.tensors[name] for name in names]

    def feed_tensor(self, name: str, value: Any) -> None:
        assert value.shape == self.tensors[name].shape and value.dtype == self.tensors[name].dtype
        self.tensors[name] = np.array(value)

    def gradient(self, loss: str = "loss") -> list[tuple[str, str]]:
        return [(name, gradient_name(name)) for name in ("w", "b")]


class FakeExecutor(GraphExecutor):
    """Runs :func:`linear_network` only. In training, ``noise`` times a random number is added to the outputs."""

    backend = "fake"

    def __init__(self, network: Network, device: Any = None, noise: float = 0.0) -> None:
        super().__init__(device)
        self.network: FakeNetwork = FakeNetwork(network)
        self.classes = network.inputs["label"].dtype == "int64"
        self.noise, self.rng, self.runs, self.seeds = noise, np.random.default_rng(0), 0, []

    def inference(self, inputs: Any, outputs: Any = None) -> dict[str, Any]:
        return self._forward(inputs, 0.0)[0]

    def inference_and_backprop(self, inputs: Any, loss: str = "loss") -> dict[str, Any]:
        self.runs += 1
        outputs, delta = self._forward(inputs, self.noise * self.rng.normal() if self.noise else 0.0)
        tensors = self.network.tensors
        tensors["w.grad"], tensors["b.grad"] = inputs["input"].T @ delta, delta.sum(axis=0)
        return outputs

    def _forward(self, inputs: Any, shift: float) -> tuple[dict[str, Any], Any]:
        x, label, (w, b) = inputs["input"], inputs["label"], self.network.fetch_tensors(["w", "b"])
        y = x @ w + b + shift
        if not self.classes:
            return {"y": y, "loss": np.mean((y - label) ** 2)}, 2 * (y - label) / y.size
        exp = np.exp(y - y.max(axis=1, keepdims=True))
        share = exp / exp.sum(axis=1, keepdims=True)
        rows = np.arange(len(label))
        loss = -np.mean(np.log(share[rows, label]))
        return {"y": y, "loss": loss}, (share - np.eye(CLASSES)[label]) / len(label)

    def reseed(self, seed: int) -> None:
        self.seeds.append(seed)
        self.rng = np.random.default_rng(seed)

    def synchronize(self) -> None: ...
