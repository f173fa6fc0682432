"""Products of stacked matrices without a bias are written without reshapes around them."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.networks import Network
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.stacked import unstacked
from deep500.transformations.substitutions.graph.writing import export_network
from deep500.transformations.substitutions.optimize import optimize_network
from tests.transformations.substitutions.samples import assert_same


def chain(bias: bool = False, shape: tuple[int | str, ...] = (2, 3, 4)) -> Network:
    """x W1 (+ b), relu, W2, softmax."""
    generator, network = np.random.default_rng(0), Network("stacked")
    network.add_input("x", shape)
    for name, size in (("w1", (4, 6)), ("w2", (6, 5)), ("b", (6,))):
        network.add_parameter(name, generator.normal(size=size).astype("float32"))
    network.add_node("MatMul", ["x", "w1"], ["y"])
    if bias:
        network.add_node("Add", ["y", "b"], ["c"])
    network.add_node("Relu", ["c" if bias else "y"], ["z"])
    network.add_node("MatMul", ["z", "w2"], ["a"])
    network.add_node("Softmax", ["a"], ["p"])
    network.add_output("p")
    return network


def written(network: Network) -> Network:
    imported = import_network(network)
    return export_network(imported, imported.graph)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 2, 4), ("N", 3, 4)])
def test_products_without_biases_keep_their_axes(shape: tuple[int | str, ...]) -> None:
    network = chain(shape=shape)
    made = written(network)
    assert [node.op_type for node in made.nodes] == ["MatMul", "Relu", "MatMul", "Softmax"]
    assert made.parameters.keys() == {"w1", "w2"}, "no targets of reshapes"
    assert made.nodes[2].outputs == ("a",), "names of tensors stay"
    if not any(isinstance(size, str) for size in shape):
        assert_same(network, made, 1e-6)


def test_products_with_biases_stay_matrices() -> None:
    made = written(chain(bias=True))
    assert [node.op_type for node in made.nodes] == ["Reshape", "Gemm", "Relu", "MatMul", "Reshape", "Softmax"]
    assert_same(chain(bias=True), made, 1e-6)


def test_an_output_that_is_a_matrix_stays_one() -> None:
    network = chain()
    network.add_node("Flatten", ["z"], ["flat"], axis=2)
    network.add_output("flat")
    made = written(network)
    assert made.descriptors()["flat"].shape == (6, 6)
    assert_same(network, made, 1e-6)


def heads(ends: tuple[tuple[int, ...], ...]) -> Network:
    """A tensor of other axes becomes a matrix; its product becomes tensors."""
    network = Network("heads")
    network.add_input("x", (2, 3, 2, 4))
    network.add_parameter("w", np.random.default_rng(0).normal(size=(8, 8)).astype("float32"))
    network.add_parameter("matrix", np.array([6, 8]), trainable=False)
    network.add_node("Reshape", ["x", "matrix"], ["y"])
    network.add_node("MatMul", ["y", "w"], ["z"])
    for number, shape in enumerate(ends):
        network.add_parameter(f"end{number}", np.array(shape), trainable=False)
        network.add_node("Reshape", ["z", f"end{number}"], [f"a{number}"])
        network.add_node("Softmax", [f"a{number}"], [f"p{number}"])
        network.add_output(f"p{number}")
    return network


def test_a_matrix_is_given_the_axes_of_what_is_made_of_it() -> None:
    network = heads(((2, 3, 8),))
    made = unstacked(network)
    assert [node.op_type for node in made.nodes] == ["Reshape", "MatMul", "Softmax"]
    assert made.nodes[0].outputs == ("y",) and made.descriptors()["y"].shape == (2, 3, 8)
    assert_same(network, made, 1e-6)


@pytest.mark.parametrize("ends", [((2, 3, 8), (3, 2, 8)), ((2, 3, 2, 4),), ((0, 2, 4),)])
def test_what_differs_stays(ends: tuple[tuple[int, ...], ...]) -> None:
    network = heads(ends)
    made = unstacked(network)
    assert [node.op_type for node in made.nodes].count("Reshape") == 1 + len(ends)
    assert_same(network, made, 1e-6)


def test_a_search_writes_merged_products_with_their_axes() -> None:
    network, generator = Network("q, k"), np.random.default_rng(0)
    network.add_input("x", (2, 3, 4))
    for name in "qk":
        network.add_parameter(f"w{name}", generator.normal(size=(4, 4)).astype("float32"))
        network.add_node("MatMul", ["x", f"w{name}"], [name])
        network.add_node("Softmax", [name], [f"{name}s"])
        network.add_output(f"{name}s")
    found = optimize_network(network, "pytorch", measure=False)
    assert found.equivalence is not None and found.equivalence.outputs is not None and found.equivalence.outputs < 1e-14
    assert_same(network, found.network, 1e-6)


def test_gelu_in_pieces_stays_on_one_side_of_reshapes() -> None:
    """No rule knows Erf or Pow, but that they change elements one by one is enough."""
    network, generator = Network("gelu"), np.random.default_rng(0)
    network.add_input("x", (2, 3, 4))
    for name, value in (("root", 1.4), ("one", 1.0), ("half", 0.5), ("three", 3.0)):
        network.add_parameter(name, np.float32(value), trainable=False)
    for name, size in (("w1", (4, 6)), ("b1", (6,)), ("w2", (6, 5)), ("b2", (5,))):
        network.add_parameter(name, generator.normal(size=size).astype("float32"))
    for op_type, inputs, output in (
        ("MatMul", ["x", "w1"], "y"),
        ("Add", ["b1", "y"], "z"),
        ("Div", ["z", "root"], "inner"),
        ("Erf", ["inner"], "erf"),
        ("Pow", ["z", "three"], "cube"),
        ("Add", ["erf", "one"], "plus"),
        ("Mul", ["z", "plus"], "mul"),
        ("Mul", ["mul", "half"], "gelu"),
        ("Add", ["gelu", "cube"], "sum"),
        ("MatMul", ["sum", "w2"], "product"),
        ("Add", ["b2", "product"], "biased"),
        ("Softmax", ["biased"], "p"),
    ):
        network.add_node(op_type, inputs, [output])
    network.add_output("p")
    made = written(network)
    kinds = [node.op_type for node in made.nodes]
    assert kinds.count("Reshape") == kinds.count("Gemm") == 2
    assert all(np.size(p.value) > 1 for p in made.parameters.values() if p.trainable), "1 / 1.4 is no weight"
    assert_same(network, made, 1e-5)


def test_a_bias_that_is_read_beside_a_sum_stays_before_it() -> None:
    """x + f(x): behind the sum the bias of x would be added twice, and the convolution before would have none."""
    network, generator = Network("residual"), np.random.default_rng(0)
    network.add_input("i", (1, 2, 4, 4))
    for name, size in (("w1", (3, 2, 1, 1)), ("w2", (3, 3, 1, 1)), ("b1", (3,))):
        network.add_parameter(name, generator.normal(size=size).astype("float32"))
    network.add_node("Conv", ["i", "w1", "b1"], ["x"])
    network.add_node("Conv", ["x", "w2"], ["f"])
    network.add_node("Add", ["x", "f"], ["sum"])
    network.add_output("sum")
    made = written(network)
    assert [(node.op_type, len(node.inputs)) for node in made.nodes] == [("Conv", 3), ("Conv", 2), ("Add", 2)]
    assert_same(network, made, 1e-6)
