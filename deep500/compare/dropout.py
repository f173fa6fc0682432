"""Dropout across frameworks: masks differ, so the share that is kept, its scale and its gradient are compared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deep500.compare.checks import GateCheck
from deep500.compare.subject import Candidate
from deep500.compare.traces import as_arrays, gradients_of
from deep500.networks.gradients.rules.context import known_value
from deep500.networks.network import Network
from deep500.networks.node import Node

SIZE = 20_000
SIGMAS = 5.0
"""How far the share may lie from 1 - ratio, in standard deviations: a false alarm in two million."""
EXACT = 1e-6
_SCALE, _MASK, _IDLE = "scale of the kept values", "mask of the gradient", "values in evaluation mode"


def without_dropout(network: Network) -> Network:
    """A copy in which Dropout passes everything through, so that training is a function of weights and batches."""
    twin = network.copy()
    for node in dropouts(network):
        if len(node.outputs) == 1 or not any(node.outputs[1:]):
            twin.replace(node.name, "Identity", [node.inputs[0]])
    return twin


def dropouts(network: Network) -> list[Node]:
    """The Dropout nodes."""
    return [node for node in network.nodes if node.op_type == "Dropout" and not node.domain]


def ratio_of(network: Network, node: Node) -> float | None:
    """The share that a Dropout drops; None where it is computed."""
    if len(node.inputs) < 2 or not node.inputs[1]:
        return 0.5
    value = known_value(network, node.inputs[1])
    return None if value is None else float(np.asarray(value).reshape(-1)[0])


def check_dropout(candidate: Candidate, network: Network) -> Iterator[GateCheck]:
    """One check per ratio that occurs in the network."""
    ratios = {ratio_of(network, node): node.name for node in dropouts(network)}
    for ratio, name in ratios.items():
        if ratio is not None and 0 < ratio < 1:
            yield _check(candidate, ratio, name)


def _network(ratio: float) -> Network:
    network = Network("dropout")
    network.add_input("factor", (1,))
    network.add_parameter("w", np.random.default_rng(0).uniform(1, 2, SIZE).astype(np.float32))
    network.add_parameter("ratio", np.array(ratio, np.float32), trainable=False)
    network.add_node("Mul", ["w", "factor"], ["x"], name="product")
    network.add_node("Dropout", ["x", "ratio"], ["y"], name="dropout")
    network.add_node("ReduceSum", ["y"], ["loss"], name="loss", keepdims=0)
    network.add_output("y")
    network.add_output("loss")
    return network


def _check(candidate: Candidate, ratio: float, name: str) -> GateCheck:
    network = _network(ratio)
    executor = candidate.build(network)
    executor.reseed(1)
    batch = {"factor": np.ones(1, np.float32)}
    y = as_arrays(executor, executor.inference_and_backprop(batch, "loss"))["y"]
    gradient = gradients_of(executor, "loss")["w"]
    idle = as_arrays(executor, executor.inference(batch, ["y"]))["y"]
    x, mask, scale = network.parameters["w"].value, y != 0, 1 / (1 - ratio)
    share = abs(float(mask.mean()) - (1 - ratio)) / np.sqrt(ratio * (1 - ratio) / SIZE)
    sizes = {
        _SCALE: float(np.abs(y[mask] / x[mask] / scale - 1).max(initial=0.0)),
        _MASK: float(np.abs(gradient / scale - mask).max()),
        _IDLE: float(np.abs(idle - x).max()),
    }
    bad = next((what for what, size in sizes.items() if size > EXACT), "")
    where = f"{bad}: off by {sizes[bad]:.1e}" if bad else ""
    if share > SIGMAS:
        where = f"share of kept values: {mask.mean():.4f}, expected {1 - ratio:.4f}"
    worst = max(sizes.values())
    named = f"{where} (ratio {ratio:g}, node {name!r})" if where else ""
    return GateCheck(candidate.name, "dropout", worst, EXACT, not where, named)
