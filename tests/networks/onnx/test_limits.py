"""Files that ask for too much are refused before anything of them is expanded."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from deep500.errors import NetworkError
from deep500.networks import Network
from deep500.registry import load_backend

VECTOR = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]


def model(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto] = []) -> onnx.ModelProto:  # noqa: B006
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "graph", [VECTOR], [result])
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS, ir_version=9)


def doubling(levels: int) -> list[onnx.FunctionProto]:
    """``f0`` is one node; each later function calls the one before it twice."""
    functions = []
    for level in range(levels + 1):
        inner, domain = (f"f{level - 1}", "local") if level else ("Relu", "")
        nodes = [helper.make_node(inner, [a], [b], domain=domain) for a, b in (("a", "m"), ("m", "b"))]
        functions.append(helper.make_function("local", f"f{level}", ["a"], ["b"], nodes, OPSETS))
    return functions


def call(name: str) -> list[onnx.NodeProto]:
    return [helper.make_node(name, ["x"], ["y"], domain="local")]


def test_functions_are_counted_before_they_are_written_out() -> None:
    assert len(Network.from_onnx(model(call("f3"), doubling(3))).nodes) == 16
    with pytest.raises(NetworkError, match=r"33554432 nodes.*expected at most 1048576"):
        Network.from_onnx(model(call("f24"), doubling(24)))
    with pytest.raises(NetworkError, match=r"e.60 nodes when"):
        Network.from_onnx(model(call("f200"), doubling(200)))


def test_a_function_that_calls_itself_is_refused() -> None:
    functions = [helper.make_function("local", "f", ["a"], ["b"], [*call("f")], OPSETS)]
    functions[0].node[0].input[0], functions[0].node[0].output[0] = "a", "b"
    with pytest.raises(NetworkError, match="'f' that calls itself"):
        Network.from_onnx(model(call("f"), functions))


@pytest.mark.parametrize(
    ("values", "message"),
    [({}, "got no value"), ({"value_float": 1.0, "value_int": 1}, "got the values value_float, value_int")],
)
def test_a_constant_has_one_value(values: dict[str, float], message: str) -> None:
    nodes = [helper.make_node("Constant", [], ["c"], **values), helper.make_node("Add", ["x", "c"], ["y"])]
    with pytest.raises(NetworkError, match=message):
        Network.from_onnx(model(nodes))


def test_a_constant_inside_a_branch_is_looked_at_too() -> None:
    branch = helper.make_graph([helper.make_node("Constant", [], ["y"])], "branch", [], [VECTOR])
    condition = numpy_helper.from_array(np.array(True))
    nodes = [
        helper.make_node("Constant", [], ["go"], value=condition),
        helper.make_node("If", ["go"], ["y"], then_branch=branch, else_branch=branch),
    ]
    with pytest.raises(NetworkError, match="got no value"):
        Network.from_onnx(model(nodes))


@pytest.mark.parametrize("equation", ["a\0b", "a.b", "a>b", "a->b->a", "a1"])
def test_einsum_over_what_is_no_equation_is_refused(equation: str) -> None:
    with pytest.raises(NetworkError, match=r"got equation .* expected letters"):
        Network.from_onnx(model([helper.make_node("Einsum", ["x"], ["y"], equation=equation)]))


def test_einsum_over_many_axes_is_refused() -> None:
    letters = "abcdefghijklmnopqrst"
    node = helper.make_node("Einsum", ["x"] * len(letters), ["y"], equation=f"{','.join(letters)}->{letters}")
    with pytest.raises(NetworkError, match="got 20 letters in its equation; expected at most 16"):
        Network.from_onnx(model([node]))


@pytest.mark.parametrize("where", ["input", "Range", "ConstantOfShape"])
def test_vectors_of_any_size_are_described_at_once(where: str) -> None:
    """ONNX's data propagation makes a message for each of their elements."""
    many = 2**40
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [many if where == "input" else 1])]
    arrays = {"n": np.array([many]), "zero": np.array(0), "one": np.array(1), "end": np.array(many)}
    made = {"input": [], "Range": [["zero", "end", "one"]], "ConstantOfShape": [["n"]]}[where]
    nodes = [helper.make_node(where, names, ["v"]) for names in made]
    nodes.append(helper.make_node("Cast", ["v" if made else "x"], ["y"], to=TensorProto.FLOAT))
    held = [numpy_helper.from_array(value, name) for name, value in arrays.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "graph", inputs, [result], held)
    network = Network.from_onnx(helper.make_model(graph, opset_imports=OPSETS[:1], ir_version=9))
    assert network.descriptors()["y"].shape == (many,)


def test_indices_are_whole_numbers() -> None:
    from deep500.networks.execution.operands import check_operands
    from deep500.networks.node import Node

    node = Node("Gather", ("x", "i"), ("y",), "get")
    with pytest.raises(NetworkError, match="float64 numbers as operand 1; expected whole ones"):
        check_operands(node, [None, np.array([np.nan])], (4,))
    check_operands(node, [None, np.array([3])], (4,))


LOOP = """<ir_version: 9, opset_import: ["" : 20]> g (float[2] x, bool go) => (float[2] y)
<int64 most = {ROUNDS}> {{
  y = Loop (most, go, x)
    <body = inner (int64 i, bool on, float[2] a) => (bool off, float[2] b) {{ {BODY} b = Add (a, a) }}>
}}"""


@pytest.mark.parametrize(
    ("rounds", "body", "refused"),
    [
        (2**40, "off = Identity (on)", True),
        (2**40, "s = ReduceSum <keepdims = 0> (a) zero = Sub (s, s) off = Less (s, zero)", False),
        (10, "off = Identity (on)", False),
    ],
)
def test_a_loop_that_nothing_ends_is_refused(rounds: int, body: str, refused: bool) -> None:
    network = Network.from_onnx(onnx.parser.parse_model(LOOP.format(ROUNDS="{" + str(rounds) + "}", BODY=body)))
    inputs = {"x": np.ones(2, "float32"), "go": np.array(True)}
    backend = load_backend("reference")
    if refused:
        with pytest.raises(NetworkError, match=r"\(Loop\): got 1099511627776 rounds, and no condition that may end it"):
            backend.from_model(network)
    else:
        assert backend.from_model(network).inference(inputs)["y"].shape == (2,)


def test_a_graph_within_an_attribute_of_another_kind_is_refused() -> None:
    """Walks over sub-graphs pass such an attribute by, so nothing may be built from one."""
    inner = helper.make_graph([helper.make_node("Sin", ["x"], ["z"])], "inner", [], [])
    node = helper.make_node("Relu", ["x"], ["y"])
    hidden = node.attribute.add(name="hidden", type=onnx.AttributeProto.INT)
    hidden.g.CopyFrom(inner)
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    model = helper.make_model(helper.make_graph([node], "g", [x], [y]))
    with pytest.raises(NetworkError, match="valid ONNX model"):
        Network.from_onnx(model)
