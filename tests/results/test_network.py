"""The network of a run: what is kept of it, and what the report draws, for the zoo, odd files and a native model."""

from __future__ import annotations

import time

import numpy as np
import pytest

from deep500.errors import ResultsError
from deep500.networks import Network, add_loss, create
from deep500.networks.execution.native import add_native_loss, sketch
from deep500.networks.network import Parameter
from deep500.reading import validate
from deep500.report.network import network_view
from deep500.results.files import read_json
from deep500.results.formats import FILES
from deep500.results.network import MOST_NODES, NETWORK, network_facts, read_network, write_network
from deep500.tensors import TensorDescriptor

ZOO = {"lenet": {}, "mlp": {}, "resnet": {"depth": 8}, "squeezenet": {}, "causal_transformer": {}, "lstm": {}}


def rows_of(view):
    return [(group["times"], row) for group in view["groups"] for row in group["rows"]]


@pytest.mark.parametrize("name", ZOO)
def test_what_is_drawn_adds_up_to_the_networks_parameters(name, tmp_path):
    network = add_loss(create(name, **ZOO[name]))
    write_network(tmp_path, network, 16)
    facts = read_network(tmp_path)
    wanted = sum(network.parameter(parameter).value.size for parameter in network.trainable())
    view = network_view(facts)
    assert facts["parameters"] == wanted > 0
    assert sum(times * row["parameters"] for times, row in rows_of(view)) == wanted
    operators = sum(times * len(row["operators"].split(", ")) for times, row in rows_of(view))
    assert operators == len(network.nodes) == facts["count"] and view["left_out"] == 0
    assert f"{wanted:,} parameters" in view["sentence"] and max(row["share"] for _, row in rows_of(view)) == 100


def test_blocks_of_a_residual_network_are_drawn_once_with_their_skip_connections():
    network = create("resnet", depth=44)
    began = time.process_time()
    facts = network_facts(network, 128)
    view = network_view(facts)
    assert time.process_time() - began < 1  # a few milliseconds where nothing else runs
    assert [group["times"] for group in view["groups"] if group["times"] > 1] == [7, 6, 6]
    assert "661,338 parameters" in view["sentence"] and "input 128 × 3 × 32 × 32" in view["sentence"]
    first, second = view["groups"][1]["rows"]
    assert first["operators"] == "Conv, BatchNormalization, Relu" and first["from"] == ""
    assert second["operators"] == "Conv, BatchNormalization, Add, Relu" and second["from"] == "and from conv1"
    assert first["shape"] == "128 × 16 × 32 × 32" and first["parameters"] == 16 * 16 * 9 + 2 * 16
    assert view["groups"][1]["last"] == "layer1.6.conv2" and view["rows"] <= 20 and view["short"]


def test_blocks_of_a_transformer_are_drawn_once():
    view = network_view(network_facts(add_loss(create("causal_transformer")), 2))
    folds = [group for group in view["groups"] if group["times"] > 1]
    assert [group["times"] for group in folds] == [2] and folds[0]["rows"][0]["name"] == "layers.0.attention.norm"
    assert folds[0]["rows"][-1]["from"] == "and from layers.0.attention.output.matmul"


def chain(sources):
    """Products of one size; each reads the value of that number, 0 is the input."""
    network = Network("chain")
    network.add_input("v0", ("N", 3))
    for number, source in enumerate(sources, 1):
        network.add_parameter(f"w{number}", np.ones((3, 3), "float32"))
        network.add_node("MatMul", [f"v{source}", f"w{number}"], [f"v{number}"], name=f"v{number}")
    return network


@pytest.mark.parametrize(
    ("sources", "times"),
    [
        ((0, 1, 2, 3), [1, 3]),
        ((0, 0, 0, 0), [4]),
        ((0, 1, 1, 2), [1, 2, 1]),
        ((0, 1, 0, 2), [1] * 4),
        ((0, 1, 0, 1), [2]),
    ],
)
def test_only_what_reads_alike_is_folded(sources, times):
    view = network_view(network_facts(chain(sources), 2))
    assert [group["times"] for group in view["groups"]] == times
    assert rows_of(view)[0][1]["from"] == "from v0"


def test_a_value_that_is_read_twice_ends_its_layer():
    network = chain([0])
    network.add_node("Relu", ["v1"], ["r"], name="r")
    network.add_node("Add", ["r", "v1"], ["a"], name="a")
    rows = [row["operators"] for _, row in rows_of(network_view(network_facts(network, 2)))]
    assert rows == ["MatMul", "Relu, Add"]


def test_a_model_that_runs_as_it_is_is_one_node():
    weights = {"w": Parameter(np.ones((3, 5), "float32")), "mean": Parameter(np.ones(3, "float32"), trainable=False)}
    described = {"input": TensorDescriptor("float32", ("N", 3))}
    network = sketch(
        "net", ("Module", "pytorch"), described, weights, {"output": TensorDescriptor("float32", ("N", 5))}
    )
    facts = network_facts(add_native_loss(network, "label", None), 4)
    assert (facts["parameters"], facts["fixed"]) == (15, 3)
    rows = [row for _, row in rows_of(network_view(facts))]
    assert (rows[0]["operators"], rows[0]["shape"]) == ("pytorch.Module", "4 × 5") and len(rows) == 2
    assert "label size not known" in network_view(facts)["sentence"]


def test_a_network_whose_sizes_cannot_be_inferred_and_whose_names_are_odd_is_drawn(tmp_path, monkeypatch):
    network = chain([0] * 2)
    network.name = "a\0b\ud800" + "c" * 300
    monkeypatch.setattr(network, "descriptors", lambda: network.parameter("absent"))  # raises as inference does
    write_network(tmp_path, network, 2)
    facts = read_network(tmp_path)
    assert facts["name"].startswith("a?b?c") and len(facts["name"]) == 200
    assert {row["shape"] for _, row in rows_of(network_view(facts))} == {"size not known"}


def test_of_a_huge_network_the_first_nodes_are_drawn_and_all_counted():
    network = Network("long")
    network.add_input("v0", (2,))
    network.set_nodes([])
    facts = network_facts(network, 2)
    assert network_view(facts)["groups"] == []
    node = {"name": "n", "operator": "Relu", "shape": [2], "reads": ["v0"], "parameters": 0, "fixed": 0}
    view = network_view({**facts, "nodes": [node] * MOST_NODES, "count": MOST_NODES + 7})
    assert view["left_out"] == 7 and view["rows"] == 1 and view["groups"][0]["times"] == MOST_NODES


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["nodes"][1].update(reads=[1]),
        lambda facts: facts["nodes"][0].update(parameters=-1),
        lambda facts: facts["nodes"][0].update(shape="large"),
        lambda facts: facts.update(schema="deep500-network-0"),
    ],
)
def test_what_is_no_network_is_refused(change, tmp_path):
    facts = network_facts(chain((0, 1)), 2)
    validate(facts, FILES[NETWORK], NETWORK)
    change(facts)
    with pytest.raises(ResultsError):
        validate(facts, FILES[NETWORK], NETWORK)
    assert read_network(tmp_path) is None and network_view(None) is None
    (tmp_path / NETWORK).write_text("{}")
    with pytest.raises(ResultsError, match="schema"):
        read_json(tmp_path / NETWORK)
