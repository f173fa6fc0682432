"""Gradients of imported networks, to be held against those of the framework that they came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.networks.emit import Emitter
from deep500.networks.network import Network
from deep500.networks.objects import still_network


def network_gradients(
    backend: Any, network: Network, inputs: dict[str, Any], cotangents: list[Any]
) -> dict[str, np.ndarray]:
    """Gradients of the sum of outputs times cotangents, in training mode without dropout."""
    work = still_network(network)
    emit = Emitter(work, "test/")
    terms = [
        emit("ReduceSum", emit("Mul", name, emit.constant(cotangent)), keepdims=0)
        for name, cotangent in zip(network.outputs, cotangents, strict=True)
    ]
    loss = emit("Sum", *terms)
    work.add_output(loss)
    executor = backend.from_model(work)
    executor.inference_and_backprop(inputs, loss)
    names = executor.network.gradient(loss)
    values = executor.network.fetch_tensors([gradient for _, gradient in names])
    return {name: np.asarray(value) for (name, _), value in zip(names, values, strict=True)}
