"""Editing a network: what each edit does, and that a refused one says got/expected/do and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from deep500.errors import NetworkError
from deep500.networks import Emitter, Network, Node
from deep500.networks.node import RANDOM
from deep500.tensors import TensorDescriptor


def perceptron() -> Network:
    """``y = Relu(x @ w + b)``, and a node ``spare`` that is unread."""
    net = Network("perceptron")
    net.add_input("x", ("N", 3))
    net.add_parameter("w", np.arange(6, dtype="float32").reshape(3, 2))
    net.add_parameter("b", np.ones(2, "float32"))
    net.add_parameter("steps", np.array([2]), trainable=False)
    net.add_node("MatMul", ["x", "w"], ["xw"], name="product")
    net.add_node("Add", ["xw", "b"], ["sum"], name="bias")
    net.add_node("Relu", ["sum"], ["y"], name="relu")
    net.add_node("Concat", ["xw", "sum", "y"], ["joined"], name="join", axis=1)
    net.add_node("Exp", ["joined"], ["z"], name="spare")
    net.add_output("y")
    return net


def branch(captured: str = "xw", inner: str = "inside", op_type: str = "Relu") -> onnx.GraphProto:
    node = helper.make_node(op_type, [captured], [inner])
    return helper.make_graph([node], "branch", [], [helper.make_tensor_value_info(inner, TensorProto.FLOAT, None)])


def add_if(net: Network, then: onnx.GraphProto) -> None:
    net.add_node("If", "steps", "o", then_branch=then, else_branch=branch(inner="other"))


def with_if() -> Network:
    net = perceptron()
    net.add_input("yes", (), "bool")
    net.add_node("If", "yes", "chosen", name="if", then_branch=branch("xw", "a"), else_branch=branch("sum", "b2"))
    return net


def run(net: Network, x: np.ndarray) -> list[np.ndarray]:
    return ReferenceEvaluator(net.to_onnx()).run(None, {"x": x})


X = np.array([[1, -2, 3]], "float32")

# fmt: off
REFUSED: list[tuple[str, Callable[[Network], object], str]] = [
    ("unknown operator", lambda n: n.add_node("Rellu", "x", "o"), "did you mean 'Relu'"),
    ("removed operator", lambda n: n.add_node("Upsample", ["x", "b"], "o"), "removed"),
    ("unknown operator of a known domain", lambda n: n.add_node("Foo", "x", "o", domain="ai.onnx.ml"), "'Foo'"),
    ("unknown value", lambda n: n.add_node("Relu", "sun", "o"), "did you mean 'sum'"),
    ("duplicate value", lambda n: n.add_node("Relu", "x", "y"), "'y' twice"),
    ("duplicate node", lambda n: n.add_node("Relu", "x", "o", name="relu"), "taken"),
    ("empty node name", lambda n: n.add_node("Relu", "x", "o", name=""), "non-empty"),
    ("same output twice", lambda n: n.add_node("Split", "x", ["o", "o"], num_outputs=2), "different names"),
    ("no output", lambda n: n.add_node("Foo", "x", [], domain="mine"), "at least one"),
    ("no output name", lambda n: n.add_node("Relu", "x", [""]), "got no output"),
    ("optional first output", lambda n: n.add_node("MaxPool", "x", ["", "i"], kernel_shape=[1]), "not optional"),
    ("too many inputs", lambda n: n.add_node("Relu", ["x", "w"], "o"), "got 2 inputs"),
    ("too few inputs", lambda n: n.add_node("MatMul", ["x"], "o"), "got 1 inputs"),
    ("blank required input", lambda n: n.add_node("MatMul", ["", "w"], "o"), "not optional"),
    ("unknown attribute", lambda n: n.add_node("Elu", "x", "o", alfa=1.0), "did you mean 'alpha'"),
    ("attribute of another kind", lambda n: n.add_node("Elu", "x", "o", alpha="big"), "kind float"),
    ("attribute missing", lambda n: n.add_node("Concat", ["x"], "o"), "'axis'"),
    ("attribute that ONNX lacks", lambda n: n.add_node("Foo", "x", "o", domain="mine", a=object()), "convert it"),
    ("attribute beyond 64 bits", lambda n: n.add_node("Concat", ["x"], "o", axis=2**70), "expected numbers from"),
    ("name that UTF-8 lacks", lambda n: n.add_input("\ud800", (1,)), "UTF-8"),
    ("name that is a number", lambda n: n.add_parameter(3, np.ones(1)), "non-empty string"),
    ("input twice", lambda n: n.add_input("x", (1,)), "'x' twice"),
    ("negative size", lambda n: n.add_input("i", (-1,)), "sizes >= 0"),
    ("fractional size", lambda n: n.add_input("i", (1.5,)), "sizes >= 0"),
    ("shape that is a number", lambda n: n.add_input("i", 3), "list of sizes"),
    ("unknown dtype", lambda n: n.add_input("i", (1,), "flaot32"), "did you mean 'float32'"),
    ("unknown dtype later", lambda n: n.set_input("x", (1,), "flaot32"), "did you mean 'float32'"),
    ("no dtype", lambda n: n.add_input("i", (1,), object()), "input 'i'"),
    ("dtype that ONNX lacks", lambda n: n.add_input("i", (1,), np.longdouble), "input 'i'"),
    ("trainable integers", lambda n: n.add_parameter("p", np.ones(2, int)), "trainable=False"),
    ("objects", lambda n: n.add_parameter("p", np.array([object()]), trainable=False), "numbers or strings"),
    ("ragged rows", lambda n: n.add_parameter("p", [[1.0], [1.0, 2.0]]), "equally long"),
    ("parameter of another dtype", lambda n: n.set_parameter("b", np.ones(2)), "expected float32"),
    ("unknown parameter", lambda n: n.set_parameter("bb", np.ones(2)), "did you mean 'b'"),
    ("make integers trainable", lambda n: n.set_parameter("steps", np.array([1]), trainable=True), "to train"),
    ("unknown node", lambda n: n.remove_node("rleu"), "did you mean 'relu'"),
    ("removal of a read node", lambda n: n.remove_node("bias"), "relu"),
    ("removal of an output's node", lambda n: n.remove_node("spare"), "the network's outputs"),
    ("removal of a read parameter", lambda n: n.remove_parameter("w"), "product"),
    ("removal of a read input", lambda n: n.remove_input("x"), "product"),
    ("unknown input", lambda n: n.remove_input("xx"), "'xx'"),
    ("unknown output", lambda n: n.add_output("yy"), "Add its producer"),
    ("output twice", lambda n: n.add_output("y"), "second time"),
    ("no such output", lambda n: n.remove_output("sum"), "known: 'y', 'z'"),
    ("cycle", lambda n: n.add_edge("join", "product", 0), "cycle"),
    ("cycle through a replacement", lambda n: n.replace("product", "Add", ["x", "z"]), "cycle"),
    ("self-loop", lambda n: n.add_edge("relu", "relu", 0), "cycle"),
    ("cycle by redirection", lambda n: n.replace_value("xw", "y"), "cycle"),
    ("edge to nowhere", lambda n: n.add_edge("x", "nowhere"), "'nowhere'"),
    ("edge from nowhere", lambda n: n.add_edge("nowhere", "relu"), "a value or a node"),
    ("edge beyond the inputs", lambda n: n.add_edge("x", "bias", 5), "expected 0 to 2"),
    ("edge too many", lambda n: n.add_edge("x", "relu"), "got 2 inputs"),
    ("absent edge", lambda n: n.remove_edge("w", "relu"), "no input 'w'"),
    ("edge that is needed", lambda n: n.remove_edge("w", "product"), "inputs"),
    ("replacement with fewer inputs", lambda n: n.replace("relu", "Add"), "got 1 inputs"),
    ("replacement of what is read", lambda n: n.replace("nothing", "Relu"), "'nothing'"),
    ("capture of an unknown value", lambda n: add_if(n, branch("q")), "'q'"),
    ("hiding a value", lambda n: add_if(n, branch(inner="y")), "defines 'y'"),
    ("nodes of one name", lambda n: n.set_nodes([*n.nodes, n.node("relu")]), "two nodes of one name"),
    ("nodes with one output", lambda n: n.set_nodes([*n.nodes, Node("Exp", ("x",), ("y",), "e")]), "with one output"),
    ("nodes without what is read", lambda n: n.set_nodes(n.nodes[1:]), "node 'bias': got a removal of ['xw']"),
    ("nodes without an output", lambda n: n.set_nodes(n.nodes[:-1]), "outputs: got a removal of ['z']"),
    ("nodes in a circle", lambda n: n.set_nodes([replace(n.nodes[0], inputs=("y", "w")), *n.nodes[1:]]), "cycle"),
    ("inserted node of a taken name", lambda n: n.insert(n.node("relu")), "taken"),
    ("put parameter of a taken name", lambda n: n.put_parameters({"x": n.parameter("w")}), "'x' twice"),
    ("unknown input's shape", lambda n: n.set_input("xx", (1,)), "'xx'"),
    ("bad shape of an input", lambda n: n.set_input("x", (-1,)), "sizes >= 0"),
    ("unknown parameter as input", lambda n: n.parameter_to_input("bb"), "did you mean 'b'"),
    ("bad node in a sub-graph", lambda n: add_if(n, branch(op_type="Foo")), "'Foo'"),
]
# fmt: on


@pytest.mark.parametrize(("edit", "message"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_refused_edits_explain_and_change_nothing(edit: Callable[[Network], object], message: str) -> None:
    net = perceptron()
    net.add_output("z")
    before, version = net.content_hash(), net.version
    with pytest.raises(NetworkError) as raised:
        edit(net)
    text = str(raised.value)
    assert message in text
    assert "expected" in text or "add its producer" in text, text
    assert net.content_hash() == before
    assert net.version == version
    onnx.checker.check_model(net.to_onnx(), full_check=True)


def test_nodes_are_set_in_any_order_and_declarations_follow() -> None:
    net = perceptron()
    net.declare({"sum": TensorDescriptor("float32", ("N", 2)), "x": TensorDescriptor("int64", ())})
    assert list(net.declared) == ["sum"], "an input says itself what it is"
    net.set_nodes(node for node in reversed(net.nodes) if node.name != "spare")
    assert [node.name for node in net.nodes] == ["product", "bias", "relu", "join"] and not net.has_value("z")
    assert net.producer("sum").name == "bias" and list(net.declared) == ["sum"]
    bias, value = net.parameter("b"), net.parameter_to_input("w")
    assert net.inputs["w"] == TensorDescriptor("float32", (3, 2)) and not net.has_parameter("w")
    net.put_parameters({"b": bias, "c": bias})
    assert net.parameter("c") is net.parameter("b") is bias
    net.set_input("x", (1, 3))
    assert net.descriptors()["y"].shape == (1, 2)
    got = ReferenceEvaluator(net.to_onnx()).run(None, {"x": X, "w": value})
    np.testing.assert_array_equal(got[0], run(perceptron(), X)[0])


def test_built_network_computes_and_describes_itself() -> None:
    net = perceptron()
    np.testing.assert_array_equal(run(net, X)[0], np.maximum(X @ np.arange(6).reshape(3, 2) + 1, 0))
    assert net.descriptors()["joined"] == TensorDescriptor("float32", ("N", 6))
    assert net.trainable() == ["w", "b"]
    assert net.producer("sum").name == "bias" and net.producer("x") is None
    assert [n.name for n in net.consumers("xw")] == ["bias", "join"]
    assert net.values() == ["x", "w", "b", "steps", "xw", "sum", "y", "joined", "z"]
    assert "9 nodes" not in repr(net) and "5 nodes" in repr(net)


def test_edges() -> None:
    net = perceptron()
    net.add_edge("x", "join")  # a value, appended
    assert net.node("join").inputs == ("xw", "sum", "y", "x")
    net.add_edge("product", "relu", 0)  # a node stands for its first output
    assert net.node("relu").inputs == ("xw",)
    net.remove_edge("sum", "join")
    assert net.node("join").inputs == ("xw", "y", "x")
    net.add_node("Clip", ["x", "", ""], "clipped", name="clip")
    net.add_parameter("top", np.float32(1), trainable=False)
    net.add_edge("top", "clip", 2)
    net.remove_edge("top", "clip")  # an optional input becomes blank, trailing blanks go
    assert net.node("clip").inputs == ("x",)


def test_order_follows_new_edges() -> None:
    net = perceptron()
    net.add_node("Neg", "x", "minus", name="late")
    net.add_edge("late", "relu", 0)
    names = [node.name for node in net.nodes]
    assert names.index("late") < names.index("relu")
    onnx.checker.check_model(net.to_onnx(), full_check=True)


def test_remove_node_reconnects_its_readers() -> None:
    net = perceptron()
    net.remove_node("bias", reconnect=True)
    assert net.node("relu").inputs == ("xw",) and not net.has_value("sum")
    net.remove_node("relu", reconnect=True)
    assert net.outputs == ["xw"]
    net.remove_node("product", reconnect=True)
    assert net.outputs == ["x"], "an input may be an output"
    np.testing.assert_array_equal(run(net, X)[0], X)


def test_reconnecting_keeps_further_outputs_that_are_read() -> None:
    net = perceptron()
    net.add_input("image", (1, 1, 4, 4))
    net.add_node("MaxPool", "image", ["pooled", "where"], name="pool", kernel_shape=[2, 2])
    net.add_node("Cast", "where", "index", to=TensorProto.FLOAT)
    before = net.content_hash()
    with pytest.raises(NetworkError, match="'where' is read"):
        net.remove_node("pool", reconnect=True)
    assert net.content_hash() == before


def test_reconnecting_needs_something_to_connect() -> None:
    net = perceptron()
    net.add_node("RandomNormal", [], "noise", name="noise", shape=[2])
    net.add_output("noise")
    with pytest.raises(NetworkError, match="first input"):
        net.remove_node("noise", reconnect=True)


def test_reconnecting_to_an_output_keeps_it_once() -> None:
    net = perceptron()
    net.add_output("sum")
    net.remove_node("relu", reconnect=True)
    assert net.outputs == ["sum"]


def test_replace_keeps_name_outputs_and_place() -> None:
    net = perceptron()
    net.replace("relu", "Elu", alpha=0.5)
    node = net.node("relu")
    assert (node.op_type, node.inputs, node.outputs, dict(node.attributes)) == ("Elu", ("sum",), ("y",), {"alpha": 0.5})
    net.replace("bias", "Sub", ["b", "xw"])
    np.testing.assert_allclose(run(net, X)[0], 0.5 * np.expm1(1 - X @ np.arange(6).reshape(3, 2)), rtol=1e-6)


def test_replace_drops_unread_outputs() -> None:
    net = perceptron()
    net.add_input("image", (1, 1, 4, 4))
    net.add_node("MaxPool", "image", ["pooled", "where"], name="pool", kernel_shape=[2, 2])
    copy = net.copy()
    net.replace("pool", "Relu")
    assert net.node("pool").outputs == ("pooled",) and not net.has_value("where")
    copy.add_output("where")
    with pytest.raises(NetworkError, match="got 2 outputs"):
        copy.replace("pool", "Relu")
    assert copy.has_value("where")


def test_replace_value_redirects_readers_and_outputs() -> None:
    net = perceptron()
    net.replace_value("sum", "xw")
    assert net.node("relu").inputs == ("xw",) and net.node("join").inputs == ("xw", "xw", "y")
    net.replace_value("y", "xw")
    assert net.outputs == ["xw"]


def test_subgraphs_protect_what_they_capture() -> None:
    net = with_if()
    assert net.node("if").reads == ("yes", "sum", "xw")
    before = net.content_hash()
    for edit in (
        lambda: net.replace_value("xw", "sum"),
        lambda: net.remove_node("product", reconnect=True),
        lambda: net.remove_node("bias", reconnect=True),
        lambda: net.add_parameter("a", np.ones(1)),
        lambda: net.add_input("b2", (1,)),
    ):
        with pytest.raises(NetworkError):
            edit()
    assert net.content_hash() == before
    assert net.fresh_name("a") == "a_1"
    net.replace_value("y", "xw")  # not captured: goes through
    onnx.checker.check_model(net.to_onnx())


def test_inputs_parameters_and_outputs_can_go() -> None:
    net = perceptron()
    net.add_input("unused", None)
    net.remove_input("unused")
    net.remove_parameter("steps")
    net.remove_output("y")
    net.remove_node("spare")
    assert list(net.inputs) == ["x"] and list(net.parameters) == ["w", "b"] and net.outputs == []
    net.set_parameter("b", np.zeros(1, "float32"), trainable=False)
    assert net.trainable() == ["w"] and net.parameters["b"].value.shape == (1,)


def test_copies_share_nothing_that_changes() -> None:
    net = with_if()
    table = np.ones(2, "float32")
    net.add_node("Foo", "x", "foo", domain="mine", table=table, sizes=[1, 2])
    before, copy = net.content_hash(), net.copy()
    assert copy == net
    table[0] = 5
    copy.parameters["w"].value[0] = 9
    copy.add_output("sum")
    copy.remove_node("if")
    copy.add_input("more", (1,))
    assert net.content_hash() == before and copy != net
    with pytest.raises(ValueError, match="read-only"):
        net.producer("foo").attributes["table"][0] = 1
    assert net.producer("foo").attributes["sizes"] == (1, 2)


def test_adding_copies_the_callers_arrays() -> None:
    value = np.ones(3, "float32")
    net = Network()
    net.add_parameter("p", value)
    value[:] = 7
    np.testing.assert_array_equal(net.parameters["p"].value, np.ones(3))


def test_equality_is_by_content() -> None:
    first, second = perceptron(), perceptron()
    second.name = "another name"
    assert first == second and first.content_hash() == second.content_hash()
    assert first != "network"
    changes: list[Callable[[Network], object]] = [
        lambda n: n.set_parameter("w", np.zeros((3, 2), "float32")),
        lambda n: n.set_parameter("w", n.parameters["w"].value, trainable=False),
        lambda n: n.replace("relu", "Elu"),
        lambda n: n.replace("spare", "Elu", alpha=2.0),
        lambda n: n.add_output("z"),
        lambda n: n.add_input("more", (1,)),
        lambda n: n.add_edge("x", "join"),
    ]
    hashes = set()
    for change in changes:
        changed = perceptron()
        change(changed)
        hashes.add(changed.content_hash())
    assert len(hashes) == len(changes) and first.content_hash() not in hashes


def test_content_hash_ignores_the_order_of_definition() -> None:
    nets = []
    for names in (("a", "b"), ("b", "a")):
        net = Network()
        net.add_input("x", (2,))
        for name in names:
            net.add_parameter(f"{name}.w", np.ones(2, "float32"))
            net.add_node("Add", ["x", f"{name}.w"], name, name=name)
        nets.append(net)
    assert nets[0] == nets[1]


def test_versions_grow_with_edits_only() -> None:
    net = perceptron()
    version = net.version
    net.descriptors(), net.copy(), net.content_hash(), net.to_onnx(), str(net), net.nodes
    assert net.version == version
    net.add_output("z")
    assert net.version > version


def test_fresh_names_are_free() -> None:
    net = perceptron()
    assert net.fresh_name("new") == "new"
    assert net.fresh_name("relu") == "relu_1"
    for _ in range(5):
        net.add_node("Relu", "x", net.fresh_name("y"))
    assert [n for n in net.values() if n.startswith("y_")] == [f"y_{i}" for i in range(1, 6)]


def test_what_draws_is_what_onnx_calls_non_deterministic() -> None:
    """But for control flow, whose bodies are looked at themselves, and AffineGrid, which draws nothing."""
    listed = {s.name for s in onnx.defs.get_all_schemas() if "NonDeterministic" in str(s.node_determinism)}
    assert {"AffineGrid", "If", "Loop", "Scan", "SequenceMap"} | RANDOM == listed
    assert Node("Dropout", ("x",), ("y",), "drop").is_random
    assert not Node("Dropout", ("x",), ("y",), "drop", "deep500").is_random
    assert not Node("Relu", ("x",), ("y",), "relu").is_random


def test_nodes_know_their_attributes() -> None:
    net = perceptron()
    net.add_node("Gemm", ["x", "w"], "g", name="gemm", transB=0, alpha=None)
    node = net.node("gemm")
    assert node.attribute("alpha") == 1.0 and node.attribute("transB") == 0 and node.attribute("none", 3) == 3
    assert node.all_attributes() == {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    assert str(node) == "g = Gemm(x, w)  # gemm"
    assert Node("Foo", ("a",), ("b",), "n", "ai.onnx").domain == ""


def test_nodes_are_equal_by_content() -> None:
    def holding(value: object) -> Node:
        return Node("Foo", ("a",), ("b",), "n", "mine", {"value": value})

    values = [
        np.ones(2),
        np.ones(2, "float32"),
        np.zeros(2),
        np.ones(3),
        [1, 2],
        (1, 3),
        1,
        1.0,
        "1",
        branch(),
        branch("h"),
    ]
    for i, a in enumerate(values):
        assert [holding(a) == holding(b) for b in values] == [i == j for j in range(len(values))]
    assert holding(np.ones(2)) == holding(np.ones(2)) and len({holding(np.ones(2)), holding(np.ones(2))}) == 1
    assert holding(1) != Node("Foo", ("a",), ("b",), "n", "mine") and holding(1) != "n"


def test_emitter_shares_equal_constants() -> None:
    net = perceptron()
    op = Emitter(net, "p/")
    axis = op.ints(1)
    assert op.ints(1) == axis and op.ints(2) != axis and op.constant(np.float32(1)) != axis
    parts = op.many("Split", "x", op.ints(1, 2), outputs=2, axis=1)
    assert op("Neg", parts[0], output="out") == "out" and parts == ["p/Split:0", "p/Split:1"]
    assert not net.parameters[axis].trainable


@pytest.mark.parametrize("dtype", [np.float64, np.dtype("float64"), float, "float64"])
def test_an_input_takes_numpys_dtypes(dtype):
    net = Network()
    net.add_input("x", ("N",), dtype)
    net.add_input("y", ("N",))
    net.set_input("y", ("N",), dtype)
    assert net.inputs["x"].dtype == net.inputs["y"].dtype == "float64"
