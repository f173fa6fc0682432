"""Networks with something to rewrite, small enough for a search of a tenth of a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import deep500 as d5
from deep500.networks import Network
from deep500.networks.execution.inputs import make_inputs
from deep500.registry import load_backend
from deep500.transformations.substitutions import Optimized
from deep500.transformations.substitutions.equivalence import relative_error
from deep500.transformations.substitutions.operators import own
from deep500.transformations.substitutions.operators.arithmetic import Real
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import operators


def branches(batch: int | str = 4, count: int = 3, width: int = 16, dtype: str = "float32") -> Network:
    """Matrix products of one input, which fit into one product of a wider matrix; ``y`` is the sum of their ReLUs."""
    network, rng = Network("branches"), np.random.default_rng(0)
    network.add_input("x", (batch, width), dtype)
    for number in range(count):
        network.add_parameter(f"w{number}", rng.normal(size=(width, width)).astype(dtype) / 4)
        network.add_node("MatMul", ["x", f"w{number}"], [f"product{number}"])
        network.add_node("Relu", [f"product{number}"], [f"act{number}"])
    network.add_node("Sum", [f"act{number}" for number in range(count)], ["y"])
    network.add_output("y")
    return network


def images(batch: int | str = 2, channels: int = 4) -> Network:
    """Two convolutions of one image, side by side, with a classifier behind them."""
    network, rng = Network("images"), np.random.default_rng(1)
    network.add_input("input", (batch, channels, 6, 6))
    for number in range(2):
        network.add_parameter(f"w{number}", rng.normal(size=(channels, channels, 3, 3)).astype("float32") / 4)
        network.add_node("Conv", ["input", f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1])
        network.add_node("Relu", [f"c{number}"], [f"r{number}"])
    network.add_node("Add", ["r0", "r1"], ["joined"])
    network.add_node("Flatten", ["joined"], ["flat"])
    network.add_parameter("fc", rng.normal(size=(channels * 36, 5)).astype("float32") / 8)
    network.add_node("MatMul", ["flat", "fc"], ["output"])
    network.add_output("output")
    return network


def optimized(network: Network, **options: Any) -> Optimized:
    """Priced by formula, so that every machine finds the same."""
    return d5.optimize_network(network, **{"measure": False, "budget": 60.0, **options})


def run(network: Network, backend: str = "reference", sizes: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    """Outputs for seeded inputs."""
    result = load_backend(backend).from_model(network)
    return {
        name: result.network.to_numpy(value)
        for name, value in result.inference(make_inputs(network, None, 3, sizes)).items()
    }


def assert_same(network: Network, other: Network, tolerance: float, backend: str = "reference", **sizes: int) -> None:
    """Equal names and values of outputs, by norm."""
    want, got = run(network, "reference", sizes), run(other, backend, sizes)
    assert list(want) == list(got) == network.outputs
    for name, value in want.items():
        assert np.asarray(got[name]).dtype == value.dtype
        assert relative_error(got[name], value) <= tolerance, name


@contextmanager
def own_activations() -> Iterator[None]:
    """What activations add to the process goes at the end."""
    tables: list[dict[str, Any]] = [own.OWN, ACTIVATIONS, Real.FUNCTIONS, operators()]
    known = [dict(table) for table in tables]
    yield
    for table, before in zip(tables, known, strict=True):
        table.clear()
        table.update(before)


def saved(network: Network) -> bytes:
    """The bytes of the network's file."""
    return network.to_onnx().SerializeToString()
