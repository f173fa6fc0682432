"""A small network in which every fault that the mutants plant would matter, and batches for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.compare.subject import Candidate
from deep500.networks import add_loss
from deep500.networks.network import Network
from deep500.registry import load_backend

RATE = 0.3


def probe(dropout: bool = False) -> Network:
    """Convolution (padded on one side), batch normalisation, ReLU, average pooling, Softmax, two dense layers."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(0, 0.5, shape).astype(np.float32)

    net = Network("probe")
    net.add_input("input", ("N", 2, 6, 6))
    for name, shape in {
        "conv.weight": (3, 2, 3, 3),
        "conv.bias": (3,),
        "fc1.weight": (8, 27),
        "fc1.bias": (8,),
        "fc2.weight": (4, 8),
        "fc2.bias": (4,),
        "bn.scale": (3,),
        "bn.bias": (3,),
    }.items():
        net.add_parameter(name, normal(*shape))
    net.add_parameter("bn.mean", normal(3), trainable=False)
    net.add_parameter("bn.var", 0.01 + normal(3) ** 2, trainable=False)
    net.add_node(
        "Conv",
        ["input", "conv.weight", "conv.bias"],
        ["conv"],
        name="conv",
        kernel_shape=[3, 3],
        strides=[1, 1],
        pads=[0, 0, 1, 1],
    )
    net.add_node("BatchNormalization", ["conv", "bn.scale", "bn.bias", "bn.mean", "bn.var"], ["bn"], name="bn")
    net.add_node("Relu", ["bn"], ["relu"], name="relu")
    net.add_node("AveragePool", ["relu"], ["pool"], name="pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    net.add_node("Flatten", ["pool"], ["flat"], name="flat")
    net.add_node("Gemm", ["flat", "fc1.weight", "fc1.bias"], ["fc1"], name="fc1", transB=1)
    net.add_node("Softmax", ["fc1"], ["attention"], name="attention", axis=1)
    net.add_node("Mul", ["fc1", "attention"], ["gated"], name="gated")
    hidden = "gated"
    if dropout:
        net.add_parameter("ratio", np.array(RATE, np.float32), trainable=False)
        net.add_node("Dropout", ["gated", "ratio"], ["dropped"], name="dropout")
        hidden = "dropped"
    net.add_node("Gemm", [hidden, "fc2.weight", "fc2.bias"], ["output"], name="fc2", transB=1)
    net.add_output("output")
    return add_loss(net)


def batches(count: int = 3) -> list[dict[str, np.ndarray]]:
    """Batches of 8 samples."""
    rng = np.random.default_rng(1)
    return [
        {"input": rng.normal(0.3, 1, (8, 2, 6, 6)).astype(np.float32), "label": rng.integers(0, 4, 8)}
        for _ in range(count)
    ]


def candidate(name: str, optimizer: str = "MomentumOptimizer", **options: Any) -> Candidate:
    """A backend with one of its optimizers."""
    backend = load_backend(name)
    kwargs = options or {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    return Candidate(name, backend.from_model, lambda executor: getattr(backend, optimizer)(executor, **kwargs))
