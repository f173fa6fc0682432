"""Gradients of imported networks, held against those of the framework that they came from, and what the page says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.networks.emit import Emitter
from deep500.networks.network import Network
from deep500.networks.objects import resized, still_network

PAGE = Path(__file__).parents[2] / "docs" / "own_models.md"

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


def network_gradients(
    backend: Any, network: Network, inputs: Mapping[str, Any], cotangents: Sequence[Any]
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


def hold_to(
    network: Network,
    backends: Sequence[Any],
    inputs: Sequence[np.ndarray],
    factors: Sequence[np.ndarray],
    wanted: Mapping[str, Any],
) -> None:
    """Compare every gradient in float64 in every backend; what the original has and the network lacks must be zero.

    Args:
        wanted: gradients by parameter; None where the original has none, and zeros are as good.
    """
    arrays = {name: None if value is None else np.asarray(value) for name, value in wanted.items()}
    largest = max(np.abs(array).max() for array in arrays.values() if array is not None)
    assert largest > 0
    for backend in backends:
        got = network_gradients(backend, network, dict(zip(network.inputs, inputs, strict=True)), factors)
        assert set(got) <= set(arrays)
        for name, array in arrays.items():
            expected = np.zeros(network.parameters[name].value.shape) if array is None else array
            error = np.abs(got.get(name, np.zeros_like(expected)) - expected).max() / largest
            # ONNX holds epsilons in float32
            assert error < 1e-10, f"{backend.__name__} {name}: {error:.1e} of the largest gradient off"


def hold_page(table: Mapping[str, Mapping[str, tuple[Any, ...]]], carried: Sequence[str]) -> None:
    """Ask that the page of users' own models lists every row of a table of probes, with what happens to them.

    Args:
        table: probes by row and name; the last value of each is its error, or one of ``carried``.
        carried: what stands there where gradients are the framework's own.
    """
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    page = {cells[1].strip(): cells[2].strip() for cells in (line.split("|") for line in lines) if len(cells) == 4}
    for row, probes in table.items():
        refused = {values[-1] not in carried for values in probes.values()}
        assert len(refused) == 1 and page.get(row, "").startswith("refused" if refused == {True} else "carried"), row
