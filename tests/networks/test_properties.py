"""Random edits: ONNX's checker accepts every result, and a refused edit changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from deep500.errors import NetworkError
from deep500.networks import Network

Draw = Callable[[st.SearchStrategy[Any]], Any]

# fmt: off
OPERATORS: list[tuple[str, int, int, dict[str, Any]]] = [  # operator, inputs, outputs, attributes
    ("Relu", 1, 1, {}), ("Add", 2, 1, {}), ("Concat", 3, 1, {"axis": 0}), ("Sum", 1, 1, {}), ("Clip", 3, 1, {}),
    ("MaxPool", 1, 2, {"kernel_shape": [1]}), ("BatchNormalization", 5, 1, {}), ("Elu", 1, 1, {"alpha": 2}),
    ("Split", 1, 3, {"num_outputs": 3}), ("RandomNormal", 0, 1, {"shape": [2]}), ("Dropout", 1, 2, {}),
    ("Gemm", 3, 1, {"beta": 0.5}), ("Rellu", 1, 1, {}), ("Elu", 1, 1, {"alfa": 1}), ("Concat", 2, 1, {}),
]
# fmt: on
NEW_NAMES = [f"n{i}" for i in range(8)]


def start() -> Network:
    net = Network("start")
    net.add_input("x", ("N", 2))
    net.add_input("yes", (), "bool")
    net.add_parameter("w", np.ones((2, 2), "float32"))
    net.add_node("MatMul", ["x", "w"], "h", name="h")
    net.add_node("Split", "h", ["a", "b"], name="split", num_outputs=2)
    net.add_node("If", "yes", "c", name="if", then_branch=branch("h", "i0"), else_branch=branch("a", "i2"))
    net.add_node("Relu", "a", "y", name="relu")
    net.add_output("y")
    return net


def names(net: Network) -> st.SearchStrategy[str]:
    """Existing values and nodes mostly, sometimes absent or impossible ones."""
    known = [*net.values(), *(n.name for n in net.nodes), *net.values()]
    return st.sampled_from([*known, "", "nowhere", *NEW_NAMES[:2]])


def branch(reads: str, writes: str, op_type: str = "Relu") -> onnx.GraphProto:
    output = helper.make_tensor_value_info(writes, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(op_type, [reads], [writes])], "g", [], [output])


def add_operator(draw: Draw, net: Network) -> None:
    op_type, reads, writes, attributes = draw(st.sampled_from(OPERATORS))
    inputs = [draw(names(net)) for _ in range(draw(st.sampled_from([reads, reads, reads, 1, 4])))]
    outputs = [draw(st.sampled_from([*NEW_NAMES, ""])) for _ in range(draw(st.sampled_from([writes, writes, 1])))]
    domain = draw(st.sampled_from(["", "", "", "ai.onnx", "mine", "ai.onnx.ml"]))
    net.add_node(op_type, inputs, outputs, draw(st.sampled_from([None, None, *NEW_NAMES])), domain, **attributes)


def add_branch(draw: Draw, net: Network) -> None:
    def one() -> onnx.GraphProto:
        writes = draw(st.sampled_from(["i0", "i1", "y", *NEW_NAMES[:2]]))
        return branch(draw(st.sampled_from([*net.values(), "nowhere"])), writes, draw(st.sampled_from(["Relu", "Foo"])))

    net.add_node("If", "yes", draw(st.sampled_from(NEW_NAMES)), then_branch=one(), else_branch=one())


def replace(draw: Draw, net: Network) -> None:
    op_type, reads, _, attributes = draw(st.sampled_from(OPERATORS))
    inputs = draw(st.sampled_from([None, [draw(names(net)) for _ in range(reads)]]))
    net.replace(draw(names(net)), op_type, inputs, **attributes)


# fmt: off
EDITS: list[Callable[[Draw, Network], object]] = [
    add_operator,
    add_operator,
    add_operator,
    add_branch,
    add_branch,
    replace,
    lambda draw, net: net.add_input(draw(st.sampled_from([*NEW_NAMES, "i0"])), draw(st.sampled_from([(1, "M"), None]))),
    lambda draw, net: net.add_parameter(draw(st.sampled_from([*NEW_NAMES, "w", "i1"])), np.ones(2, "float32")),
    lambda draw, net: net.set_parameter(draw(names(net)), np.ones(draw(st.integers(0, 3)), "float32")),
    lambda draw, net: net.add_edge(draw(names(net)), draw(names(net)), draw(st.sampled_from([None, 0, 1, 2, 7]))),
    lambda draw, net: net.remove_edge(draw(names(net)), draw(names(net))),
    lambda draw, net: net.remove_node(draw(names(net)), reconnect=draw(st.booleans())),
    lambda draw, net: net.replace_value(draw(names(net)), draw(names(net))),
    lambda draw, net: net.add_output(draw(names(net))),
    lambda draw, net: net.remove_output(draw(names(net))),
    lambda draw, net: net.remove_parameter(draw(names(net))),
    lambda draw, net: net.remove_input(draw(names(net))),
]
# fmt: on


def consistent(net: Network) -> None:
    """What is kept twice agrees, and every producer comes before its readers."""
    written = {value: node.name for node in net.nodes for value in node.writes}
    assert {v: net.producer(v).name for v in net.values() if net.producer(v)} == written
    seen = {*net.inputs, *net.parameters}
    for node in net.nodes:
        assert seen.issuperset(node.reads), node
        seen.update(node.writes)
    assert seen.issuperset(net.outputs) and len(set(net.outputs)) == len(net.outputs)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_sequence_of_edits_breaks_a_network(data: st.DataObject) -> None:
    net = start()
    for _ in range(data.draw(st.integers(1, 15))):
        edit = data.draw(st.sampled_from(EDITS))
        before, version, copy = net.content_hash(), net.version, net.copy()
        try:
            edit(data.draw, net)
        except NetworkError as error:
            assert (net.content_hash(), net.version) == (before, version), error
            assert "expected" in str(error) or "add its producer" in str(error)
        else:
            assert net.version > version
        assert copy.content_hash() == before, "a copy changes with its original"
        consistent(net)
    proto = net.to_onnx()
    onnx.checker.check_model(proto)
    again = Network.from_onnx(proto)
    assert again == net
    assert again.descriptors().keys() == net.descriptors().keys()


VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.integers(-5, 5)),
    st.lists(st.floats(-5, 5, width=32), min_size=1),
    st.lists(st.text("abc"), min_size=1),
    st.sampled_from([np.ones((2, 0), "float16"), np.array(True), np.array(["a", "é"], object), np.int8(3), True]),
)


@given(st.dictionaries(st.text("abcdefg", min_size=1), VALUES, max_size=4))
def test_attributes_of_custom_operators_survive_files(attributes: dict[str, Any]) -> None:
    net = start()
    net.add_node("Foo", ["x", "", "h"], ["", "foo"], name="foo", domain="mine", **attributes)
    again = Network.from_onnx(net.to_onnx().SerializeToString())
    assert again == net
    assert again.node("foo").attributes.keys() == attributes.keys()


@given(
    st.lists(st.one_of(st.integers(0, 9), st.sampled_from(["N", "M"]), st.none()), max_size=4),
    st.sampled_from(["float32", "int64", "bool", "string", "bfloat16", "sequence(float32)", "map(int64,string)"]),
)
def test_inputs_survive_files(shape: list[int | str | None], dtype: str) -> None:
    net = Network()
    net.add_input("i", shape, dtype)
    again = Network.from_onnx(net.to_onnx())
    assert again.inputs == net.inputs and again.inputs["i"].dtype == dtype
