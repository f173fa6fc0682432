"""Open sizes: polynomials that are right for every number, and rewrites that are."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from deep500 import optimize_network
from deep500.networks import Network
from deep500.registry import load_backend
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.sizes import Size, is_open, quotient, symbol, unknown
from deep500.transformations.substitutions.graph.writing import export_network
from tests.transformations.substitutions.open_sizes import differences


def at(size: int, numbers: dict[str, int]) -> int:
    """What a size is for other numbers, by its terms alone."""
    if not isinstance(size, Size):
        return size

    def factor(word: Any) -> int:
        if isinstance(word, str):
            return numbers[word]
        sign, inner, divisor = word
        assert sign == "//"
        divisor = value(dict(divisor)) if isinstance(divisor, tuple) else divisor
        return value(dict(inner)) // divisor

    def value(terms: Any) -> int:
        return sum(count * int(np.prod([factor(word) for word in words], dtype=int)) for words, count in terms.items())

    return value(size.terms)


def drawn(draw: random.Random, sizes: dict[str, int], depth: int) -> int:
    """Numbers, or sizes, by operations that shapes compute with."""
    if depth == 0:
        return sizes[draw.choice("NHW")] if draw.random() < 0.7 else draw.randint(-3, 5)
    left, right = (drawn(draw, sizes, draw.randint(0, depth - 1)) for _ in range(2))
    kind = draw.choice("+-*/%")
    if kind in "/%":
        right = sizes[draw.choice("NHW")] if draw.random() < 0.2 else draw.randint(1, 4)
        return left // right if kind == "/" else left % right
    return left + right if kind == "+" else left - right if kind == "-" else left * right


@pytest.mark.parametrize("seed", range(20))
def test_sizes_are_what_numbers_would_be(seed: int) -> None:
    """The same expression of other numbers has the value that the terms say; equal terms are equal at all numbers."""
    for number in range(60):
        sizes = {name: symbol(name, value) for name, value in zip("NHW", (5, 7, 11), strict=True)}
        made = drawn(random.Random(f"{seed} {number}"), sizes, 4)
        for numbers in ({"N": 1, "H": 2, "W": 3}, {"N": 9, "H": 4, "W": 16}, {"N": 5, "H": 7, "W": 11}):
            try:
                plain = drawn(random.Random(f"{seed} {number}"), numbers, 4)
            except ZeroDivisionError:
                continue
            assert at(made, numbers) == plain, made
        again = drawn(random.Random(f"{seed} {number}"), sizes, 4)
        assert made == again and hash(made) == hash(again) and is_open(made) == isinstance(made, Size)


def test_what_only_happens_to_be_the_same_is_not() -> None:
    n, cut = symbol("N", 8), unknown(8, "cut", 0)
    assert n not in (8, cut) and cut != unknown(8, "cut", 1) and cut == unknown(8, "cut", 0)
    assert n // 8 != 1 and (n + 1) - n == 1 and quotient(8, n) is None and quotient(n, 0) is None
    assert n.symbol == "N" and (2 * n).symbol is None and cut.symbol is None


def test_what_onnx_knows_of_an_opaque_node_is_known() -> None:
    """HardSwish has no specification, and keeps the sizes that a window with strides computed."""
    network = Network("windows")
    network.add_input("x", ("N", 3, "H", "W"))
    network.add_parameter("w", np.ones((4, 3, 3, 3), "float32"))
    network.add_node("Conv", ["x", "w"], ["y"], strides=(2, 2), pads=(1, 1, 1, 1))
    network.add_node("HardSwish", ["y"], ["z"])
    network.add_output("z")
    imported = import_network(network)
    y, z = (imported.store.shape(imported.values[name]) for name in "yz")
    assert y == z and y != tuple(map(int, y)) and z[2] == (imported.store.shape(imported.values["x"])[2] - 1) // 2 + 1


@pytest.mark.parametrize("batch", [2, "N"])
def test_what_a_computed_target_asks_for_is_a_reshape(batch: int | str) -> None:
    """As timm's LeViT normalizes tokens: flattened, and brought back by the shape that was asked of the product."""
    rng, network = np.random.default_rng(0), Network("tokens")
    network.add_input("x", (batch, 6, 8))
    for name, shape in (("w", (8, 4)), ("scale", 4), ("bias", 4), ("mean", 4), ("variance", 4)):
        network.add_parameter(name, rng.uniform(0.5, 1, shape).astype("float32"))
    network.add_node("MatMul", ["x", "w"], ["product"])
    network.add_parameter("flat", np.array([-1, 4]), trainable=False)
    network.add_node("Reshape", ["product", "flat"], ["rows"])
    network.add_node("BatchNormalization", ["rows", "scale", "bias", "mean", "variance"], ["normal"])
    network.add_node("Shape", ["product"], ["sizes"])
    network.add_node("Reshape", ["normal", "sizes"], ["y"])
    network.add_output("y")
    result = optimize_network(network, "onnxruntime", measure=False, budget=5.0).network
    assert "BatchNormalization" not in {node.op_type for node in result.nodes}
    for size in (1, 5) if batch == "N" else (2,):
        x = rng.normal(size=(size, 6, 8)).astype("float32")
        want, got = (load_backend("reference").from_model(one).inference({"x": x})["y"] for one in (network, result))
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_two_sizes_that_are_products_are_written() -> None:
    """Scores of every token against all tokens of all samples: both sides of the matrix are N times S."""
    network = Network("scores")
    network.add_input("x", ("S", "N", 6))
    network.add_parameter("target", np.array([-1, 6]), trainable=False)
    network.add_node("Reshape", ["x", "target"], ["rows"])
    network.add_node("Transpose", ["rows"], ["columns"], perm=[1, 0])
    network.add_node("MatMul", ["x", "columns"], ["scores"])
    network.add_node("Softmax", ["scores"], ["weights"], axis=-1)
    network.add_node("MatMul", ["weights", "rows"], ["y"])
    network.add_output("y")
    imported = import_network(network)
    written = export_network(imported, imported.graph, wide=False)
    for sizes in ((2, 3), (1, 5)):
        x = np.random.default_rng(0).normal(size=(*sizes, 6)).astype("float32")
        want, got = (load_backend("reference").from_model(one).inference({"x": x})["y"] for one in (network, written))
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_axes_of_one_element_come_and_go_around_nothing() -> None:
    """Half of one row has none: a reshape could not tell what follows from nothing."""
    network = Network("halves")
    network.add_input("x", ("N", 4, "H", "W"))
    for name, axis in (("axis", 3), ("end", -1)):
        network.add_parameter(name, np.array([axis]), trainable=False)
    network.add_node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2)
    network.add_node("Unsqueeze", ["b", "axis"], ["y"])
    network.add_node("ReduceMean", ["b", "end"], ["mean"], keepdims=1)
    network.add_node("Squeeze", ["mean", "end"], ["z"])
    for name in "ayz":
        network.add_output(name)
    imported = import_network(network)
    written = export_network(imported, imported.graph, wide=False)
    for sizes in ((1, 4, 3, 12), (4, 4, 1, 1)):
        x = np.random.default_rng(0).normal(size=sizes).astype("float32")
        want, got = (load_backend("reference").from_model(one).inference({"x": x}) for one in (network, written))
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value)


def test_rewrites_hold_at_every_size() -> None:
    """Any rules, whatever they cost; sizes are drawn with every rest of strides, one, primes, above all constants."""
    wrong, taken, ran = list[str](), 0, 0
    for seed in range(40):
        more, steps, sizes = differences(seed)
        wrong, taken, ran = [*wrong, *more], taken + steps, ran + sizes
    assert not wrong and taken > 100 and ran > 150, (taken, ran, wrong[:3])


@pytest.mark.long
def test_rewrites_hold_at_every_size_of_many() -> None:
    wrong = [text for seed in range(1000, 4000) for text in differences(seed, 10)[0]]
    assert not wrong, wrong[:5]
