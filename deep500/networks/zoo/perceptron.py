"""`mlp`: fully connected layers with ReLU between them."""

from __future__ import annotations

from collections.abc import Sequence

from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder


def mlp(build: Builder, classes: int, *, hidden: Sequence[int] = (128, 64)) -> Network:
    """Flatten, then ``fc1``, ``fc2``, ...: one layer per entry of ``hidden`` and one for the classes.

    Args:
        hidden: widths of the hidden layers; empty for multinomial logistic regression.

    Initialisation: PyTorch's default of ``nn.Linear``.
    """
    x = build.flatten("input")
    for number, width in enumerate(hidden, 1):
        x = build.relu(build.linear(x, f"fc{number}", width), f"relu{number}")
    return build.classify(x, f"fc{len(hidden) + 1}", classes)
