"""Nodes in the place of other nodes: names stay, readers follow, impossible replacements are refused."""

from __future__ import annotations

import pytest

from deep500.errors import NetworkError
from deep500.networks import Network
from deep500.networks.rewrite import extend_outputs, supersede


def pair() -> Network:
    """x -> Relu -> y -> Neg -> z, and a Tanh with a reader of its own that could take Relu's place."""
    net = Network()
    net.add_input("x", (2,))
    net.add_node("Relu", "x", "y", name="old")
    net.add_node("Neg", "y", "z", name="reader")
    net.add_node("Tanh", "x", "new", name="successor")
    net.add_node("Abs", "new", "w", name="reader of the successor")
    net.add_output("z")
    net.add_output("w")
    return net


def test_readers_of_both_names_follow() -> None:
    net = pair()
    before = net.version
    supersede(net, {"old": {"y": "new"}})
    assert sorted(map(str, net.nodes)) == [
        "w = Abs(y)  # reader of the successor",
        "y = Tanh(x)  # successor",
        "z = Neg(y)  # reader",
    ]
    assert [n.name for n in net.nodes].index("successor") == 0
    assert net.producer("y") is net.node("successor")
    assert not net.has_value("new")
    assert net.version > before
    net.to_onnx()


@pytest.mark.parametrize(
    ("replacements", "message"),
    [
        ({"old": {}}, "'reader'"),
        ({"reader": {}}, "outputs"),
        ({"old": {"y": "x"}}, "expected a node's output"),
        ({"successor": {"new": "z"}, "old": {"y": "w"}}, "cycle"),
    ],
    ids=["still read", "an output", "by an input", "cycle"],
)
def test_what_cannot_be_is_refused(replacements: dict[str, dict[str, str]], message: str) -> None:
    net = pair()
    before = net.content_hash()
    with pytest.raises(NetworkError, match=message):
        supersede(net, replacements)
    assert net.content_hash() == before


def test_missing_outputs_get_names() -> None:
    net = Network()
    net.add_input("x", (1, 1, 4, 4))
    net.add_node("MaxPool", "x", "y", name="pool", kernel_shape=[2, 2])
    extend_outputs(net, {"pool": 2})
    first, indices = net.node("pool").outputs
    assert first == "y"
    assert net.producer(indices) is net.node("pool")
    extend_outputs(net, {"pool": 2})
    assert net.node("pool").outputs == (first, indices)
