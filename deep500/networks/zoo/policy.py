"""`actor_critic` and `q_network`: perceptrons that choose among actions."""

from __future__ import annotations

import math

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder


def _linear(build: Builder, x: str, name: str, features: int, gain: float) -> str:
    """A layer whose weight is orthogonal times a gain, and whose bias is 0 (Saxe et al. 2014)."""
    x = build.linear(x, name, features)
    weight = build.normal((max(features, build.network.parameters[f"{name}.weight"].value.shape[1]),) * 2, 1.0)
    q, r = np.linalg.qr(weight)
    shape = build.network.parameters[f"{name}.weight"].value.shape
    build.network.set_parameter(
        f"{name}.weight", (gain * (q * np.sign(np.diag(r)))[: shape[0], : shape[1]]).astype(np.float32)
    )
    build.network.set_parameter(f"{name}.bias", np.zeros(features, np.float32))
    return x


def _trunk(build: Builder, name: str, hidden: tuple[int, ...], activation: str) -> str:
    x = build.flatten("input", f"{name}.flat")
    for layer, width in enumerate(hidden):
        x = _linear(build, x, f"{name}.{layer}", width, math.sqrt(2))
        x = build.node(activation, [x], f"{name}.{layer}.{activation.lower()}", build.shapes[x])
    return x


def _checked(hidden: tuple[int, ...]) -> tuple[int, ...]:
    if not hidden or min(hidden) < 1:
        raise NetworkError(f"got hidden={hidden}; expected widths of at least 1: give hidden=(64, 64)")
    return tuple(hidden)


def actor_critic(build: Builder, classes: int, *, hidden: tuple[int, ...] = (64, 64)) -> Network:
    """Two perceptrons with tanh: logits of ``classes`` actions, and the value of what is observed.

    The output is (batch, actions + 1), the value last. Weights are orthogonal, times sqrt(2) inside, .01 before the
    logits, 1 before the value; biases 0 (Andrychowicz et al. 2021, arXiv 2006.05990, found the small last layer of the
    policy to matter most).

    Args:
        hidden: widths of the hidden layers, of each of the two.
    """
    hidden = _checked(hidden)
    logits = _linear(build, _trunk(build, "actor", hidden, "Tanh"), "actor.out", classes, 0.01)
    value = _linear(build, _trunk(build, "critic", hidden, "Tanh"), "critic.out", 1, 1.0)
    build.node("Concat", [logits, value], "output", (classes + 1,), axis=1)
    build.network.add_output("output")
    return build.network


def q_network(build: Builder, classes: int, *, hidden: tuple[int, ...] = (64, 64)) -> Network:
    """A perceptron with ReLU: the value of each of ``classes`` actions, (batch, actions).

    Args:
        hidden: widths of the hidden layers.
    """
    x = _trunk(build, "q", _checked(hidden), "Relu")
    return build.classify(x, "q.out", classes)
