"""Gradients of an imported network, of the sum of its output times an array, held against those of its original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep500.networks import Network
from deep500.networks.objects import resized
from deep500.registry import load_backend
from tests.tolerances import assert_close

SAMPLES = 5
"""Another batch than networks are traced with."""


def varied(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Inputs of that many samples, of both signs and of several sizes where they are floating."""
    rng = np.random.default_rng(11)
    return [
        (rng.standard_normal((SAMPLES, *a.shape[1:])) * rng.choice([0.3, 1.0, 3.0], (SAMPLES, *a.shape[1:]))).astype(
            a.dtype
        )
        if a.dtype.kind == "f"
        else resized(a, SAMPLES)
        for a in arrays
    ]


def cotangents(outputs: Sequence[Any]) -> list[np.ndarray]:
    """An array for each output."""
    rng = np.random.default_rng(12)
    return [rng.standard_normal(np.shape(value)).astype(np.asarray(value).dtype) for value in outputs]


def gradients(
    network: Network, backend: str, inputs: Sequence[np.ndarray], factors: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """The network's gradients in training mode, by parameter; of parameters without one, zeros."""
    whole, terms = network.copy(), []
    for number, (output, factor) in enumerate(zip(network.outputs, factors, strict=True)):
        whole.add_input(f"factor_{number}", factor.shape, str(factor.dtype))
        whole.add_node("Mul", [output, f"factor_{number}"], [f"product_{number}"])
        whole.add_node("ReduceSum", [f"product_{number}"], [f"term_{number}"], keepdims=0)
        terms.append(f"term_{number}")
    whole.add_node("Sum", terms, ["total"])
    whole.add_output("total")
    executor = load_backend(backend).from_model(whole)
    feeds = dict(zip(network.inputs, inputs, strict=True)) | {f"factor_{n}": f for n, f in enumerate(factors)}
    executor.inference_and_backprop(feeds, "total")
    got = {p: np.asarray(executor.network.fetch_tensors([g])[0]) for p, g in executor.network.gradient("total")}
    return {name: got.get(name, np.zeros_like(network.parameters[name].value)) for name in network.trainable()}


def hold_to(
    network: Network,
    backends: Sequence[str],
    inputs: Sequence[np.ndarray],
    factors: Sequence[np.ndarray],
    wanted: Mapping[str, Any],
) -> None:
    """Compare every gradient in every backend; what the original has and the network lacks must be zero."""
    for backend in backends:
        got = gradients(network, backend, inputs, factors)
        assert set(got) <= set(wanted)
        for name, want in wanted.items():
            array = np.asarray(want)
            assert_close(got.get(name, np.zeros_like(array)), array, "gradient", f"{name} in {backend}")
