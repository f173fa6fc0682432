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


def _normalized(network: Network, rng: np.random.Generator, value: str, name: str, channels: int) -> str:
    for kind, low in (("scale", 0.5), ("shift", -1.0), ("mean", -1.0), ("variance", 0.5)):
        network.add_parameter(f"{name}.{kind}", rng.uniform(low, 1.5, channels).astype("float32"))
    reads = [value, *(f"{name}.{kind}" for kind in ("scale", "shift", "mean", "variance"))]
    network.add_node("BatchNormalization", reads, [name])
    return name


def acnet(
    blocks: int = 3,
    channels: int = 32,
    size: int = 28,
    kernels: tuple[tuple[int, int], ...] = ((3, 3), (1, 3), (3, 1), (1, 1)),
    *,
    batch: int | str = 1,
    norm: bool = True,
    identity: bool = False,
    bias: bool = False,
    smaller: tuple[int, ...] = (),
) -> Network:
    """Blocks of convolutions of one image, each normalized, and their sum; those of ``smaller`` have strides of 2."""
    network, rng, x = Network("acnet"), np.random.default_rng(0), "x"
    network.add_input(x, (batch, channels, size, size))
    for block in range(blocks):
        terms = []
        for n, (high, wide) in enumerate(kernels):
            name, shape = f"b{block}.conv{n}", (channels, channels, high, wide)
            network.add_parameter(f"{name}.weight", rng.normal(size=shape).astype("float32") / (channels * high) ** 0.5)
            reads, pads = [x, f"{name}.weight"], [high // 2, wide // 2]
            if bias:
                network.add_parameter(f"{name}.bias", rng.normal(size=channels).astype("float32"))
                reads.append(f"{name}.bias")
            strides = [2, 2] if block in smaller else [1, 1]
            network.add_node("Conv", reads, [name], pads=pads + pads, strides=strides)
            terms.append(_normalized(network, rng, name, f"b{block}.norm{n}", channels) if norm else name)
        if identity and block not in smaller:
            terms.append(_normalized(network, rng, x, f"b{block}.identity", channels))
        total = terms[0]
        for n, term in enumerate(terms[1:]):
            network.add_node("Add", [total, term], [f"b{block}.sum{n}"])
            total = f"b{block}.sum{n}"
        x = f"b{block}.relu"
        network.add_node("Relu", [total], [x])
    network.add_output(x)
    return network


def mixture(
    experts: int = 8,
    width: int = 64,
    hidden: int = 64,
    rows: int | str = 8,
    *,
    function: str = "Relu",
    layers: int = 1,
    bias: bool = True,
) -> Network:
    """A dense mixture of experts: every expert answers every row, and a softmax weighs them."""
    network, rng, x = Network("mixture"), np.random.default_rng(0), "x"
    network.add_input(x, (rows, width))

    def linear(value: str, name: str, reads: int, gives: int) -> str:
        network.add_parameter(f"{name}.weight", rng.normal(size=(reads, gives)).astype("float32") / reads**0.5)
        network.add_node("MatMul", [value, f"{name}.weight"], [f"{name}.product"])
        if not bias:
            return f"{name}.product"
        network.add_parameter(f"{name}.bias", rng.normal(size=gives).astype("float32"))
        network.add_node("Add", [f"{name}.product", f"{name}.bias"], [name])
        return name

    for layer in range(layers):
        gates = [f"l{layer}.gate{n}" for n in range(experts)]
        network.add_node("Softmax", [linear(x, f"l{layer}.gates", width, experts)], [f"l{layer}.softmax"], axis=-1)
        network.add_node("Split", [f"l{layer}.softmax"], gates, axis=1, num_outputs=experts)
        total = ""
        for n, gate in enumerate(gates):
            expert = f"l{layer}.e{n}"
            network.add_node(function, [linear(x, f"{expert}.up", width, hidden)], [f"{expert}.hidden"])
            network.add_node("Mul", [linear(f"{expert}.hidden", f"{expert}.down", hidden, width), gate], [expert])
            if total:
                network.add_node("Add", [total, expert], [f"{expert}.sum"])
            total = f"{expert}.sum" if total else expert
        x = total
    network.add_output(x)
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
