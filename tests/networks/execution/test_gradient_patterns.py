"""Gradients that rules wrote as nodes are found again, give the same in float64, and only where nobody else reads the
parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from deep500.networks import Network
from deep500.networks.losses import gradient_name
from deep500.registry import load_backend

pytestmark = pytest.mark.backend("pytorch")
SHAPE = (2, 3, 4)
OPERATORS = {
    "Gelu": ({}, "GeluGradient"),
    "Softmax": ({"axis": 1}, "SoftmaxGradient"),
    "LayerNormalization": ({"axis": -2, "epsilon": 0.01}, "LayerNormalizationGradient"),
}


def step(operator: str, dtype: str = "float64") -> Network:
    """A weighted sum of an operator's result, and its gradients, as one network."""
    rng, attributes = np.random.default_rng(0), OPERATORS[operator][0]
    network, inputs = Network("step"), ["scaled"]
    network.add_input("x", SHAPE, dtype)
    shapes = {"w": SHAPE, "weights": SHAPE}
    if operator == "LayerNormalization":
        shapes |= {"scale": SHAPE[1:], "bias": SHAPE[1:]}
        inputs += ["scale", "bias"]
    for name, shape in shapes.items():
        network.add_parameter(name, rng.normal(size=shape).astype(dtype))
    network.add_node("Mul", ["x", "w"], ["scaled"])
    network.add_node(operator, inputs, ["y"], **attributes)
    network.add_node("Mul", ["y", "weights"], ["weighted"])
    network.add_node("ReduceSum", ["weighted"], ["loss"], keepdims=0)
    network.add_output("loss")
    return network.with_gradient("loss")


def kinds(network: Network) -> Counter[str]:
    """The operators that PyTorch recognises."""
    executor = load_backend("pytorch").from_model(network)
    return Counter(executor.module.recognised.values())


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_are_found_and_are_the_same(operator: str) -> None:
    network, feeds = step(operator), {"x": np.random.default_rng(1).normal(size=SHAPE)}
    assert kinds(network) == {OPERATORS[operator][1]: 1}
    results = [
        load_backend("pytorch").from_model(network, recognise=recognise).inference(feeds) for recognise in (True, False)
    ]
    for name, value in results[0].items():
        assert value.shape == results[1][name].shape
        np.testing.assert_allclose(value.numpy(), results[1][name].numpy(), rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("operator", OPERATORS)
def test_parts_that_others_read_stay(operator: str) -> None:
    last = {"Gelu": "Erf", "Softmax": "ReduceSum", "LayerNormalization": "Reciprocal"}[operator]
    network = step(operator)
    part = next(node for node in network.nodes if node.op_type == last and node.name.startswith(f"{last}_grad"))
    network.add_output(part.outputs[0])
    assert not kinds(network)


def test_without_the_gradient_of_the_scale() -> None:
    network = step("LayerNormalization")
    network.remove_output(gradient_name("scale"))
    assert kinds(network) == {"LayerNormalizationGradient": 1}


@pytest.mark.parametrize(("operator", "dtype"), [("Gelu", "float16"), ("LayerNormalization", "float16")])
def test_narrow_floats_stay_as_they_are(operator: str, dtype: str) -> None:
    assert not kinds(step(operator, dtype))


def mutants(network: Network) -> Iterator[Network]:
    """The network with another operator in place of each node of a gradient, or another operand of its size."""
    swaps = {"Sub": "Add", "Add": "Sub", "Mul": "Max", "ReduceMean": "ReduceMax", "Exp": "Tanh", "Reciprocal": "Neg"}
    for place, node in enumerate(network.nodes):
        if not node.name.startswith(f"{node.op_type}_grad"):
            continue
        shapes = [network.descriptors()[name].shape for name in node.inputs]
        others = [replace(node, op_type=swaps[node.op_type])] if node.op_type in swaps else []
        for index in (index for index, shape in enumerate(shapes) if shape == SHAPE):
            names = tuple("w" if i == index else name for i, name in enumerate(node.inputs))
            others.append(replace(node, inputs=names))
        for other in others:
            mutant = network.copy()
            nodes = list(mutant.nodes)
            nodes[place] = other
            mutant.set_nodes(nodes)
            yield mutant


@pytest.mark.parametrize("operator", OPERATORS)
def test_other_formulas_are_not_taken_for_gradients(operator: str) -> None:
    """Where a node computes something else, the results are still those of the nodes."""
    feeds = {"x": np.random.default_rng(1).normal(size=SHAPE)}
    for mutant in mutants(step(operator)):
        results = [
            load_backend("pytorch").from_model(mutant, recognise=recognise).inference(feeds)
            for recognise in (True, False)
        ]
        for name, value in results[0].items():
            np.testing.assert_allclose(value.numpy(), results[1][name].numpy(), rtol=1e-10, atol=1e-12, err_msg=name)
