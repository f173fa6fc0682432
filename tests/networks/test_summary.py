"""The printed table and the FLOP counts, against published figures and counts by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.networks import Network, create
from deep500.networks.flops import FORMULAS, count_flops
from deep500.networks.node import find_schema

MULTIPLY_ADDS = [  # (network, arguments, multiply-adds in millions, source)
    ("resnet", {"depth": 20}, 40.8, "He et al. 2016, CIFAR form; 41 M in the usual tables"),
    ("resnet", {"depth": 110}, 253, "255 M in the usual tables"),
    ("resnet50", {"classes": 1000}, 4089, "torchvision: 4.09 G"),
]


@pytest.mark.parametrize(("name", "kwargs", "millions", "source"), MULTIPLY_ADDS)
def test_known_networks(name: str, kwargs: dict[str, Any], millions: float, source: str) -> None:
    network = create(name, **kwargs)
    counts = count_flops(network)
    assert None not in counts.values()
    products = sum(counts[n.name] or 0 for n in network.nodes if n.op_type in ("Conv", "Gemm", "MatMul"))
    assert products / 2e6 == pytest.approx(millions, rel=0.01), source


BY_HAND = [  # (operator, input shapes, attributes, operations)
    ("Conv", [(1, 4, 5, 5), (6, 4, 3, 3)], {}, 6 * 3 * 3 * 2 * 4 * 9),
    ("Conv", [(1, 4, 5, 5), (6, 4, 3, 3), (6,)], {}, 6 * 3 * 3 * (2 * 4 * 9 + 1)),
    ("Conv", [(2, 4, 5, 5), (8, 1, 3, 3)], {"group": 4, "pads": [1, 1, 1, 1]}, 2 * 8 * 25 * 2 * 9),
    ("ConvTranspose", [(1, 4, 3, 3), (4, 6, 2, 2)], {"strides": [2, 2]}, 2 * 4 * 9 * 6 * 4),
    ("Gemm", [(2, 3), (3, 5), (5,)], {}, 2 * 5 * (2 * 3 + 1)),
    ("Gemm", [(3, 2), (5, 3)], {"transA": 1, "transB": 1}, 2 * 5 * 2 * 3),
    ("MatMul", [(7, 2, 3), (3, 5)], {}, 7 * 2 * 5 * 2 * 3),
    ("MaxPool", [(1, 2, 4, 4)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 2 * 4 * 4),
    ("GlobalAveragePool", [(1, 2, 4, 4)], {}, 32),
    ("Add", [(3, 1), (1, 4)], {}, 12),
    ("Sum", [(2, 2), (2, 2), (2, 2)], {}, 8),
    ("Relu", [(3, 4)], {}, 12),
    ("Softmax", [(3, 4)], {}, 60),
    ("Flatten", [(3, 4)], {}, 0),
    ("LSTM", [(5, 2, 3), (1, 16, 3), (1, 16, 4)], {"hidden_size": 4}, 5 * 2 * 2 * 16 * (3 + 4)),
]


@pytest.mark.parametrize(("op_type", "shapes", "attributes", "want"), BY_HAND)
def test_single_operators(op_type: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], want: int) -> None:
    net = Network()
    for i, shape in enumerate(shapes):
        net.add_input(f"i{i}", shape)
    net.add_node(op_type, [f"i{i}" for i in range(len(shapes))], ["y"], name="it", **attributes)
    assert count_flops(net) == {"it": want}


def test_batch_takes_the_place_of_symbols() -> None:
    net = create("mlp")
    single, many = (sum(v or 0 for v in count_flops(net, batch).values()) for batch in (1, 64))
    assert single > 0 and many == 64 * single


def test_every_formula_belongs_to_an_operator() -> None:
    for op_type in FORMULAS:
        assert find_schema(op_type) is not None, op_type


def small() -> Network:
    net = Network("small")
    net.add_input("x", ("N", 3))
    net.add_parameter("w", np.ones((3, 2), "float32"))
    net.add_parameter("frozen", np.ones(2, "float32"), trainable=False)
    net.add_parameter("shape", np.array([-1, 2]), trainable=False)
    net.add_node("Gemm", ["x", "w", "frozen"], "g", name="fc")
    net.add_node("Reshape", ["g", "shape"], "r", name="reshape")
    net.add_node("Gemm", ["x", "w"], "again", name="tied")
    net.add_output("r")
    return net


def test_table_and_totals() -> None:
    lines = str(small()).splitlines()
    assert lines[0] == "network 'small'"
    assert "  input   x: float32[Nx3]" in lines and "  output  r: float32[Nx2]" in lines
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("fc", "reshape", "tied"))}
    assert rows == {
        "fc": ["Gemm", "float32[Nx2]", "8", "14"],
        "reshape": ["Reshape", "float32[Nx2]", "0", "0"],
        "tied": ["Gemm", "float32[Nx2]", "0", "12"],  # its weights are counted at their first reader
    }
    assert lines[-1] == "3 nodes, 6 trainable parameters, 2 others; FLOPs per sample: 26"


def test_unknown_is_a_question_mark_not_zero() -> None:
    net = small()
    net.add_node("Foo", "r", "foo", domain="mine", name="own")
    lines = str(net).splitlines()
    row = next(line for line in lines if line.startswith("own"))
    assert row.split() == ["own", "mine.Foo", "?[?]", "0", "?"]
    assert lines[-1].endswith("FLOPs per sample: >= 26")
    assert count_flops(net)["own"] is None


def test_long_names_are_shortened_and_empty_networks_print() -> None:
    net = small()
    net.add_node("Relu", "r", "y", name="layer/" * 20)
    assert max(map(len, str(net).splitlines())) < 120
    assert "0 nodes, 0 trainable" in str(Network())


def test_parameters_are_those_of_the_literature() -> None:
    assert "272,474 trainable parameters" in str(create("resnet", depth=20))
