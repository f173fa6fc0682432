"""Custom operators as nodes: shapes, gradients, files, errors that name the node; backends have tests of their own."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import deep500 as d5
import deep500.frameworks.reference as d5fw
from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.networks import Network, create, gradient_rule, replace_operator
from deep500.networks.custom import check_plugins
from deep500.networks.gradients.rules import RULES
from deep500.networks.gradients.rules.custom import find_rule
from deep500.networks.node import Node, _operators, find_schema
from deep500.operators import registry
from deep500.tensors import TensorDescriptor, tensordesc
from tests.networks import custom_operators
from tests.tolerances import assert_close

RNG = np.random.default_rng(4)
ROOT = Path(__file__).parents[2]


def chain(*op_types: str, shape: tuple = ("N", 4), dtype: str = "float64", **attributes: object) -> Network:
    """x -> operators in a row (custom ones where the name begins with Test) -> y -> loss, the mean."""
    net = Network("chain")
    net.add_input("x", shape, dtype)
    value = "x"
    for i, op_type in enumerate(op_types):
        domain = "deep500" if op_type.startswith("Test") else ""
        net.add_node(op_type, value, f"v{i}", name=f"n{i}", domain=domain, **(attributes if domain else {}))
        value = f"v{i}"
    net.add_node("Identity", value, "y")
    net.add_node("ReduceMean", "y", "loss", keepdims=0)
    net.add_output("loss")
    return net


def gradients(net: Network, wrt: list[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    names = [f"{name}.grad" for name in wrt]
    results = d5fw.from_model(net.with_gradient("loss", wrt)).inference(feeds, names)
    return [results[name] for name in names]


# -- dtypes and shapes ------------------------------------------------------------------------------------------------


def test_shapes_pass_through_declared_or_not() -> None:
    net = chain("Transpose", "TestLeakyRelu", "Transpose", alpha=0.1)
    assert net.descriptors()["v1"] == TensorDescriptor("float64", (4, "N"))
    assert net.descriptors()["y"] == TensorDescriptor("float64", ("N", 4))
    net.add_parameter("w", np.ones((4, 7)))
    net.add_node("TestMatMul", ["y", "w"], "product", domain="deep500")
    assert net.descriptors()["product"].shape == ("N", 7)
    assert chain("TestFourths", shape=(3, 8)).descriptors()["v0"].shape == (6, 4)
    assert chain("TestFourths", shape=("N", 8)).descriptors()["v0"].shape == (None, 4)  # 2 N is no symbol


def test_a_refusal_names_the_node() -> None:
    net = chain("Relu")
    net.add_parameter("w", np.ones((5, 7)))
    net.add_node("TestMatMul", ["y", "w"], "product", name="fc", domain="deep500")
    expected = r"node 'fc' \(deep500.TestMatMul\): operator 'MatMul', input 1: got float64\[5x7\].*with \{'K': 4, "
    with pytest.raises(NetworkError, match=expected):
        net.descriptors()
    with pytest.raises(NetworkError, match=r"node 'n0' \(deep500.TestLeakyRelu\).*'beta'"):
        chain("TestLeakyRelu", beta=1).descriptors()
    with pytest.raises(NetworkError, match=r"node 'n0'.*ValueError"):
        chain("TestFourths", shape=(3, 3)).descriptors()
    with pytest.raises(NetworkError, match=r"node 'cut'.*input 1 left out"):
        net = chain("Relu")
        net.add_node("TestMatMul", ["y", "", "x"], "z", name="cut", domain="deep500")
        d5fw.from_model(net).inference({"x": np.ones((1, 4))}, ["z"])


def test_sizes_made_up_for_symbols_prove_nothing() -> None:
    assert chain("TestFourths", "Relu", shape=("N", "M")).descriptors()["v1"].shape is None


def test_schemas_are_there_for_the_inference_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def infer(self, inputs):  # an operator may build and look at networks of its own in here
        find_schema.cache_clear()
        _operators.cache_clear()
        seen.append((onnx.defs.has("TestOpaque", "deep500"), find_schema("TestOpaque", "deep500")))
        assert chain("TestLeakyRelu").descriptors()["y"].shape == ("N", 4)
        return list(inputs)

    monkeypatch.setattr(custom_operators.Opaque, "infer", infer)
    assert chain("TestOpaque", "TestLeakyRelu").descriptors()["y"].shape == ("N", 4)
    assert set(seen) == {(True, None)}
    assert not onnx.defs.has("TestOpaque", "deep500") and not onnx.defs.has("TestLeakyRelu", "deep500")
    chain("TestNobodyHasIt")  # domain deep500 stays open for operators whose plugin is missing


def test_threads_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(answer):
        def infer(self, inputs):
            time.sleep(0.002)  # gives the other thread its turn
            return [TensorDescriptor("float64", answer)]

        return infer

    answers = {"TestLeakyRelu": (1, 2), "TestOpaque": (3,)}
    monkeypatch.setattr(custom_operators.LeakyRelu, "infer", slowly(answers["TestLeakyRelu"]))
    monkeypatch.setattr(custom_operators.Opaque, "infer", slowly(answers["TestOpaque"]))
    with ThreadPoolExecutor(2) as pool:
        shapes = list(pool.map(lambda name: chain(*[name] * 9).descriptors()["v8"].shape, answers))
    assert shapes == list(answers.values())


def test_inside_a_sub_graph() -> None:
    branches = {}
    for name, op_type in (("then_branch", "TestLeakyRelu"), ("else_branch", "TestFourths")):
        node = helper.make_node(op_type, ["x"], ["inner"], domain="deep500")
        result = helper.make_tensor_value_info("inner", TensorProto.DOUBLE, None)
        branches[name] = helper.make_graph([node], name, [], [result])
    net = Network()
    net.add_input("x", (2, 4), "float64")
    net.add_input("yes", (), "bool")
    net.add_node("If", "yes", "y", **branches)
    net.add_output("y")
    assert net.descriptors()["y"] == TensorDescriptor("float64", (2, 4))
    x, executor = RNG.normal(size=(2, 4)), d5fw.from_model(net)
    want = {True: np.where(x < 0, np.float32(0.01) * x, x), False: x}
    for yes, y in want.items():
        assert_close(executor.inference({"x": x, "yes": np.array(yes)})["y"], y)


def test_a_missing_plugin_leaves_values_unknown_unless_they_are_declared() -> None:
    net = chain("TestNobodyHasIt", "Relu")
    assert net.descriptors()["v1"] == TensorDescriptor(None, None)
    proto = net.to_onnx()
    proto.graph.value_info.append(helper.make_tensor_value_info("v0", TensorProto.DOUBLE, ["N", 9]))
    assert Network.from_onnx(proto).descriptors()["v1"] == TensorDescriptor("float64", ("N", 9))


def test_declarations_help_an_operator_that_cannot_tell() -> None:
    net = chain("NonZero", "TestOpaque")  # a size that only the run knows
    net.add_node("Cast", "v1", "v2", to=TensorProto.DOUBLE)
    assert net.descriptors()["v1"] == TensorDescriptor(None, None)
    proto = net.to_onnx()
    proto.graph.value_info.append(helper.make_tensor_value_info("v1", TensorProto.INT64, [2, None]))
    assert Network.from_onnx(proto).descriptors()["v2"].shape == (2, None)


# -- gradients --------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from(["LeakyRelu", "Tanh", "Transpose", "Exp"]), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(0, 2**31),
)
def test_equal_to_an_onnx_operator_wherever_it_stands(names: list[str], size: int, seed: int) -> None:
    """Outputs and gradients of a network are those of the same network with ONNX's operator."""
    plain, custom = (
        chain(*[f"{prefix}LeakyRelu" if n == "LeakyRelu" else n for n in names]) for prefix in ("", "Test")
    )
    x = {"x": np.random.default_rng(seed).normal(size=(size, 4))}
    for net in (plain, custom):
        net.add_output("y")
    want, got = (d5fw.from_model(net).inference(x)["y"] for net in (plain, custom))
    assert_close(got, want)
    assert_close(gradients(custom, ["x"], x)[0], gradients(plain, ["x"], x)[0], "gradient")


def test_outputs_without_gradient_and_outputs_left_out() -> None:
    x = {"x": RNG.normal(size=(3, 4))}
    sine, cosine = -np.sin(x["x"]), np.cos(x["x"])
    for outputs, want in ((["s", "c"], sine), (["", "c"], sine), (["c", "unused"], cosine), (["c"], cosine)):
        net = chain("Identity")
        net.add_node("TestSinCos", "x", outputs, name="both", domain="deep500")
        net.remove_output("loss")
        net.add_node("ReduceSum", "c", "sum", keepdims=0)
        net.add_output("sum")
        gradient = net.with_gradient("sum", ["x"])
        node = next(n for n in gradient.nodes if n.op_type == "TestSinCosGrad")
        assert node.attributes == {"num_outputs": 2} and len(node.inputs) == 5
        got = d5fw.from_model(gradient).inference(x, ["x.grad"])["x.grad"]
        assert_close(got, want, "gradient", str(outputs))


def test_an_operator_that_cannot_tell_its_outputs_is_taken_to_have_those_named() -> None:
    """Its sizes are known at the run only, and it refuses all that are tried."""
    node = Node("TestFussy", ("x",), ("s", "c"), "both", "deep500")
    rule = find_rule(node, {"x": TensorDescriptor("float64", ("N", 4))})
    assert rule is not None and rule.outputs == 2


def test_whole_numbers_have_no_gradient() -> None:
    net = Network()
    net.add_parameter("table", RNG.normal(size=(5, 3)))
    net.add_input("x", ("N",), "int64")
    net.add_node("TestPick", ["table", "x"], ["rows", "counts"], name="pick", domain="deep500")
    net.add_node("ReduceSum", "rows", "loss", keepdims=0)
    net.add_output("loss")
    node = next(n for n in net.with_gradient().nodes if n.op_type == "TestPickGrad")
    assert node.outputs[1:] == ("",) and node.outputs[0]
    got = gradients(net, ["table"], {"x": np.array([1, 1, 4])})[0]
    np.testing.assert_array_equal(got, np.array([0, 2, 0, 0, 1])[:, None] * np.ones((5, 3)))


def test_no_backward_is_an_error_that_says_how_to_get_one() -> None:
    with pytest.raises(UnsupportedOperator, match=r"deep500.TestOpaque in node 'n1' .*write its backward.*enzyme"):
        chain("Relu", "TestOpaque").with_gradient("loss", ["x"])
    with pytest.raises(UnsupportedOperator, match=r"'TestNobodyHasIt' in node 'n0'.*load_plugin"):
        chain("TestNobodyHasIt").with_gradient("loss", ["x"])
    twice = chain("TestLeakyRelu").with_gradient("loss", ["x"])
    twice.add_node("ReduceSum", twice.producer("x.grad").inputs[0], "second", keepdims=0)
    seed = next(n for n in twice.nodes if n.op_type == "TestLeakyReluGrad").inputs[0]
    with pytest.raises(UnsupportedOperator, match="the gradient of a custom operator has no gradient"):
        twice.with_gradient("second", [seed])


def test_a_rule_of_its_own_comes_first() -> None:
    @gradient_rule("TestOpaque", domain="deep500")
    def opaque(g):
        return [g.grad()]

    try:
        assert_close(gradients(chain("TestOpaque"), ["x"], {"x": np.ones((2, 4))})[0], np.full((2, 4), 1 / 8))
    finally:
        del RULES["deep500", "TestOpaque"]


# -- editing, files, plugins ------------------------------------------------------------------------------------------


def test_summary_and_flops_do_not_guess() -> None:
    text = str(chain("TestLeakyRelu"))
    assert "deep500.TestLeakyRelu" in text and "FLOPs per sample: >= 4" in text


def test_replace_operator() -> None:
    plain = create("lenet", classes=10, shape=(1, 8, 8))
    custom = replace_operator(plain, "Relu", "TestLeakyRelu", domain="deep500", alpha=0.0)
    relus = [n.name for n in plain.nodes if n.op_type == "Relu"]
    assert [n.name for n in custom.nodes if n.domain == "deep500"] == relus and len(relus) == 4
    assert all(n.op_type != "TestLeakyRelu" for n in plain.nodes)
    x = {"input": RNG.normal(size=(2, 1, 8, 8)).astype(np.float32)}
    want, got = (d5fw.from_model(net).inference(x)["output"] for net in (plain, custom))
    assert_close(got, want)
    back = replace_operator(custom, "TestLeakyRelu", "Relu", old_domain="deep500")
    assert back == plain
    replaced = replace_operator(plain, "Relu", "Tanh", where=lambda node: node.name == relus[1])
    assert [n.name for n in replaced.nodes if n.op_type == "Tanh"] == relus[1:2]
    clip = chain("Relu")
    clip.add_parameter("low", np.array(0.0), trainable=False)
    clip.replace("n0", "Clip", ["x", "low"])
    assert replace_operator(clip, "Clip", "Relu", inputs=1).node("n0").inputs == ("x",)


def test_replace_operator_refuses() -> None:
    net = chain("Relu")
    with pytest.raises(NetworkError, match="did you mean 'Relu'"):
        replace_operator(net, "Relo", "Tanh")
    with pytest.raises(NetworkError, match=r"1 node.*left out by where"):
        replace_operator(net, "Relu", "Tanh", where=lambda node: False)
    with pytest.raises(UnsupportedOperator, match="TestLeakyRelu"):
        replace_operator(net, "Relu", "TestLeakyRelo", domain="deep500")
    with pytest.raises(NetworkError, match=r"node 'n0'.*got 1 inputs; expected 2"):
        replace_operator(net, "Relu", "TestMatMul", domain="deep500")


def test_every_missing_plugin_is_named_at_once() -> None:
    nodes = [Node("TestLeakyRelo", ("x",), (f"y{i}",), f"n{i}", "deep500") for i in range(2)]
    with pytest.raises(UnsupportedOperator, match=r"'n0'.*'n1'.*did you mean 'TestLeakyRelu'.*load_plugin.*custom_ops"):
        check_plugins(nodes)


PLUGIN = """
import numpy as np
import deep500 as d5

@d5.register_op("RoundTripCube")
class Cube(d5.CustomPythonOp):
    '''The cube, scaled.'''
    def __init__(self, factor, names=()):
        super().__init__()
        assert names == ("a", "b")
        self.factor = factor
    def forward(self, inputs):
        return self.factor * inputs[0] ** 3
    def backward(self, grads, fwd_inputs, fwd_outputs):
        return grads[0] * self.factor * 3 * fwd_inputs[0] ** 2
"""
FRESH = """
import json, sys
import numpy as np
import deep500 as d5
import deep500.frameworks.reference as d5fw
model, plugin = sys.argv[1:]
network = d5.Network.from_onnx(model)
try:
    d5fw.from_model(network)
except d5.errors.UnsupportedOperator as error:
    print(json.dumps(str(error)))
d5.load_plugin(plugin)
network = d5.Network.from_onnx(model)
executor = d5fw.from_model(network)
out = executor.inference_and_backprop({"x": np.arange(8.0).reshape(2, 4)}, "loss")
print(json.dumps([network.content_hash(), float(out["loss"]), executor.network.fetch_tensors(["w.grad"])[0].tolist()]))
"""


def test_round_trip_through_a_file_in_a_fresh_process(tmp_path: Path) -> None:
    folder = tmp_path / "cube"
    folder.mkdir()
    (folder / "cube.py").write_text(PLUGIN)
    d5.load_plugin(folder)
    assert d5.load_plugin(folder) is d5.load_plugin(folder / "cube.py")
    net = Network("trip")
    net.add_input("x", ("N", 4), "float64")
    net.add_parameter("w", np.arange(1.0, 5))
    net.add_node("Mul", ["x", "w"], "v")
    net.add_node("RoundTripCube", "v", "y", name="cube", domain="deep500", factor=0.5, names=["a", "b"])
    net.add_node("ReduceMean", "y", "loss", keepdims=0)
    net.add_output("loss")
    model = net.to_onnx(tmp_path / "net.onnx")
    assert {o.domain: o.version for o in model.opset_import}["deep500"] == 1
    assert Network.from_onnx(net.to_onnx(opset=17)).node("cube") == net.node("cube")
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path / "net.onnx"), str(folder)],
        cwd=ROOT,
        text=True,
        check=True,
        stdout=subprocess.PIPE,
    )
    error, (digest, loss, gradient) = map(json.loads, done.stdout.splitlines())
    assert "'RoundTripCube' in node 'cube'" in error and "load_plugin" in error
    assert digest == net.content_hash()
    x, w = np.arange(8.0).reshape(2, 4), np.arange(1.0, 5)
    np.testing.assert_allclose(loss, (0.5 * (x * w) ** 3).mean())
    np.testing.assert_allclose(gradient, (1.5 * (x * w) ** 2 * x / 8).sum(0))


def test_what_a_plugin_may_get_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="num_outputs"):
        d5.register_op("TestClash")(lambda inputs, num_outputs=1: None)
    with pytest.raises(InputError, match="second operator"):
        d5.register_op("TestOpaque")(custom_operators.LeakyRelu)
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    for _ in range(2):
        with pytest.raises(InputError, match=r"broken.py.*ZeroDivisionError.*mend it"):
            d5.load_plugin(broken)
    (tmp_path / "own.py").write_text(PLUGIN.replace("RoundTripCube", "TestTwoNames"))
    d5.load_plugin(tmp_path / "own.py")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own")  # the same file under another name is no second operator
    asking = tmp_path / "asking.py"  # while it is imported, it looks for an operator that no plugin has
    asking.write_text("from deep500.operators import is_registered\nfound = is_registered('TestNobodyHasIt')\n")
    assert d5.load_plugin(asking).found is False
    with pytest.raises(InputError, match="num_outputs=None"):
        registry.find_operator("TestOpaqueGrad", {}, [tensordesc((1,))] * 3)
    d5.register_op("TestRaising")(lambda inputs: inputs[1])
    with pytest.raises(InputError, match=r"'TestRaising': got IndexError .* from its factory"):
        registry.find_operator("TestRaising", {}, [tensordesc((1,))])
