"""The gradient transformation as a whole: what it differentiates, what it refuses, what it leaves alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from deep500.errors import NetworkError, UnsupportedOperator
from deep500.networks import Network
from deep500.networks.emit import Emitter
from deep500.networks.gradients.rules import FLAT, RULES, gradient_rule
from tests.differences import slope
from tests.networks.evaluate import evaluate
from tests.networks.test_gradient_rules import check_against_differences
from tests.tolerances import assert_close

RNG = np.random.default_rng(5)


def quadratic() -> Network:
    """loss = sum(w * x * x + x), with parameters that it does not reach."""
    net = Network("quadratic")
    net.add_input("x", ("N", 3), "float64")
    net.add_parameter("w", np.array([1.0, 2.0, 3.0]))
    net.add_parameter("unused", np.ones(2))
    net.add_parameter("fixed", np.array([0.5, 0.5, 0.5]), trainable=False)
    emit = Emitter(net)
    wx = emit("Mul", "w", "x", output="wx")
    total = emit("Add", emit("Add", emit("Mul", wx, "x"), "x"), "fixed")
    emit("ReduceSum", total, output="loss", keepdims=0)
    net.add_node("Identity", "unused", "copy")
    net.add_node("Cast", "x", "whole", to=TensorProto.INT64)
    net.add_output("loss")
    return net


def test_closed_form_with_fan_out_and_broadcasting() -> None:
    net, x = quadratic(), RNG.normal(size=(4, 3))
    before = net.content_hash()
    gradient = net.with_gradient("loss", ["w", "x", "wx", "fixed", "loss"])
    names = gradient.outputs
    assert names == ["loss", "w.grad", "x.grad", "wx.grad", "fixed.grad", "loss.grad"]
    w = net.parameters["w"].value
    want = [(x * x).sum(0), 2 * w * x + 1, x, np.full(3, 4.0), np.array(1.0)]
    for name, got, value in zip(names[1:], evaluate(gradient, {"x": x}, names[1:]), want, strict=True):
        assert_close(got, value, "gradient", name)
    assert net.content_hash() == before
    onnx.checker.check_model(gradient.to_onnx(), full_check=True)


def test_batch_stays_symbolic() -> None:
    gradient = quadratic().with_gradient()
    for batch in (1, 2, 5):
        x = RNG.normal(size=(batch, 3))
        assert_close(evaluate(gradient, {"x": x}, ["w.grad"])[0], (x * x).sum(0), "gradient")


def test_default_is_what_the_loss_depends_on() -> None:
    net = quadratic()
    assert net.gradient() == [("w", "w.grad")]
    assert net.with_gradient().outputs == ["loss", "w.grad"]


def test_no_influence_is_a_gradient_of_zeros() -> None:
    net = quadratic()
    got = evaluate(net.with_gradient("loss", ["unused", "copy"]), {"x": np.ones((2, 3))}, ["unused.grad", "copy.grad"])
    for value in got:
        np.testing.assert_array_equal(value, np.zeros(2))


def _with(op_type: str, *inputs: str, **attributes: Any) -> Network:
    net = quadratic()
    net.add_node(op_type, inputs, ["y"], **attributes)
    return net


@pytest.mark.parametrize(
    ("net", "loss", "wrt", "message"),
    [
        (quadratic(), "los", None, "did you mean 'loss'"),
        (quadratic(), "wx", None, "expected one element"),
        (_with("ReduceSum", "whole", keepdims=0), "y", None, "expected a floating dtype"),
        (_with("Einsum", "x", equation="ij->i"), "y", None, "expected one element"),
        (quadratic(), "loss", ["ww"], "did you mean 'w'"),
        (quadratic(), "loss", ["whole"], "expected a floating value"),
        (quadratic().with_gradient(), "loss", ["w"], "expected that name to be free"),
    ],
    ids=["misspelt loss", "vector", "integer", "symbolic", "misspelt wrt", "integer wrt", "twice"],
)
def test_bad_requests(net: Network, loss: str, wrt: list[str] | None, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        net.with_gradient(loss, wrt)


def chain(*op_types: str, reduce: bool = True) -> Network:
    """x through operators with one input, to a loss; the custom domain has no rules."""
    net = Network("chain")
    net.add_input("x", (2, 3), "float64")
    value = "x"
    for i, op_type in enumerate(op_types):
        domain, _, name = op_type.rpartition(".")
        net.add_node(name, value, f"y{i}", name=f"node{i}", domain=domain)
        value = f"y{i}"
    net.add_node("ReduceSum" if reduce else "Identity", value, "loss", **({"keepdims": 0} if reduce else {}))
    net.add_output("loss")
    return net


def test_all_nodes_without_rule_are_named() -> None:
    net = chain("Det", "Tanh", "lab.Fancy", "lab.Plain")
    with pytest.raises(UnsupportedOperator, match=r"3 node\(s\).*Det in node 'node0'.*lab.Fancy.*'node2'.*'node3'"):
        net.with_gradient("loss", ["x"])


def test_refusals_of_rules_and_missing_rules_are_one_error() -> None:
    net = Network()
    net.add_input("x", (1, 1, 4, 4), "float64")
    net.add_node("MaxPool", "x", "y", name="odd", kernel_shape=[2, 2], storage_order=1)
    net.add_node("Det", "x", "d", name="det")
    net.add_node("ReduceSum", "y", "s", keepdims=0)
    net.add_node("ReduceSum", "d", "t", keepdims=0)
    net.add_node("Add", ["s", "t"], "loss")
    with pytest.raises(UnsupportedOperator, match=r"(?s)2 node\(s\).*(?=.*'odd' \(storage_order)(?=.*'det')"):
        net.with_gradient("loss", ["x"])


@pytest.mark.parametrize(
    "block",
    [["Det"], ["lab.Fancy"], ["lab.Fancy", "Floor"]],
    ids=["beside the loss", "custom beside the loss", "before a zero derivative"],
)
def test_nodes_without_gradient_need_no_rule(block: list[str]) -> None:
    net = chain("Tanh")
    value = "x"
    for i, op_type in enumerate(block):
        domain, _, name = op_type.rpartition(".")
        net.add_node(name, value, f"side{i}", domain=domain)
        value = f"side{i}"
    if block[-1] == "Floor":
        net.add_node("ReduceSum", value, "s", keepdims=0)
        net.add_node("Add", ["loss", "s"], "loss2")
    else:
        net.add_node("Identity", "loss", "loss2")
    assert "x.grad" in net.with_gradient("loss2", ["x"]).outputs


@pytest.mark.parametrize("op_type", ["Floor", "Ceil", "Round", "Sign", "Hardmax"])
def test_zero_where_mathematics_says_so(op_type: str) -> None:
    net = chain(op_type)
    np.testing.assert_array_equal(evaluate(net.with_gradient("loss", ["x"]), {"x": np.ones((2, 3))}, ["x.grad"])[0], 0)
    net.add_parameter("p", np.ones((2, 3)))
    net.add_node(op_type, "p", "z")
    net.add_node("ReduceSum", "z", "loss2", keepdims=0)
    assert net.gradient("loss2") == ([("p", "p.grad")] if op_type in FLAT else [])


KINKS = [
    ("Relu", [0.0, -1.0, 2.0], [0, 0, 1]),
    ("Abs", [0.0, -1.0, 2.0], [0, -1, 1]),
    ("LeakyRelu", [0.0, -1.0, 2.0], [0.01, 0.01, 1]),
    ("ReduceMax", [1.0, 3.0, 3.0], [0, 0.5, 0.5]),
    ("ReduceL2", [0.0, 0.0, 0.0], [0, 0, 0]),
]


@pytest.mark.parametrize(("op_type", "x", "want"), KINKS, ids=[k[0] for k in KINKS])
def test_kinks_are_those_of_pytorch(op_type: str, x: list[float], want: list[float]) -> None:
    net = chain(op_type)
    got = evaluate(net.with_gradient("loss", ["x"]), {"x": np.array([x, [5.0, 6.0, 7.0]])}, ["x.grad"])[0]
    if op_type.startswith("Reduce"):
        net = Network()
        net.add_input("x", (3,), "float64")
        net.add_node(op_type, "x", "loss", keepdims=0)
        got = evaluate(net.with_gradient("loss", ["x"]), {"x": np.array(x)}, ["x.grad"])
    np.testing.assert_allclose(got[0], want, rtol=1e-7)


# -- operators without a rule of their own --------------------------------------------------------------------------


def weighted(op_type: str, inputs: dict[str, np.ndarray | None], outputs: int = 1, **attributes: Any):
    """The operator, a randomly weighted sum of all its outputs as loss, its inputs and their names."""
    net, rng = Network(op_type), np.random.default_rng(3)
    feeds = {n: v for n, v in inputs.items() if v is not None}
    for name, value in feeds.items():
        net.add_input(name, value.shape, str(value.dtype))
    names = [f"y{i}" for i in range(outputs)]
    net.add_node(op_type, [n if v is not None else "" for n, v in inputs.items()], names, **attributes)
    emit = Emitter(net)
    shapes = [v.shape for v in evaluate(net, feeds, names)]
    parts = [
        emit("ReduceSum", emit("Mul", n, emit.constant(rng.normal(size=s))), keepdims=0)
        for n, s in zip(names, shapes, strict=True)
    ]
    emit("Sum", *parts, output="loss")
    net.add_output("loss")
    return net, feeds, [n for n, v in feeds.items() if v.dtype == np.float64]


FUNCTIONS: list[tuple[str, dict[str, np.ndarray | None], dict[str, Any]]] = [
    (
        "RotaryEmbedding",
        {"x": RNG.normal(size=(2, 3, 4, 6)), "cos": RNG.normal(size=(2, 4, 3)), "sin": RNG.normal(size=(2, 4, 3))},
        {},
    ),
    ("Attention", {n: RNG.normal(size=(2, 3, 8)) for n in "qkv"}, {"q_num_heads": 2, "kv_num_heads": 2}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_functions_are_expanded(op_type: str, inputs: dict[str, np.ndarray | None], attributes: dict[str, Any]) -> None:
    assert ("", op_type) not in RULES
    check_against_differences(*weighted(op_type, inputs, **attributes), op_type)


# fmt: off
RECURRENT = [
    ("LSTM", 4, {}), ("LSTM", 4, {"direction": "bidirectional"}), ("LSTM", 4, {"direction": "reverse"}),
    ("LSTM", 4, {"layout": 1}),
    ("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1, "direction": "bidirectional"}), ("RNN", 1, {}),
    ("RNN", 1, {"activations": ["Tanh", "Tanh"], "direction": "bidirectional"}),
]
# fmt: on


@pytest.mark.parametrize("state", [False, True], ids=["zero state", "initial state"])
@pytest.mark.parametrize(("op_type", "gates", "attributes"), RECURRENT)
def test_recurrences_are_unrolled(op_type: str, gates: int, attributes: dict[str, Any], state: bool) -> None:
    steps, batch, size, hidden = 4, 2, 3, 2
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    first = attributes.get("layout", 0)
    start = (batch, directions, hidden) if first else (directions, batch, hidden)
    inputs: dict[str, np.ndarray | None] = {
        "x": RNG.normal(size=(batch, steps, size) if first else (steps, batch, size)),
        "w": RNG.normal(size=(directions, gates * hidden, size)),
        "r": RNG.normal(size=(directions, gates * hidden, hidden)),
        "b": RNG.normal(size=(directions, 2 * gates * hidden)) if state else None,
        "lengths": None,
        "h": RNG.normal(size=start) if state else None,
        **({"c": RNG.normal(size=start) if state else None} if op_type == "LSTM" else {}),
    }
    while list(inputs.values())[-1] is None:
        inputs.popitem()
    net, feeds, wrt = weighted(op_type, inputs, 3 if op_type == "LSTM" else 2, hidden_size=hidden, **attributes)
    check_against_differences(net, feeds, wrt, op_type)
    unrolled = net.with_gradient("loss", wrt)
    assert op_type not in {n.op_type for n in unrolled.nodes}
    assert_close(evaluate(unrolled, feeds, ["loss"])[0], evaluate(net, feeds, ["loss"])[0], "forward")


def test_recurrence_of_unknown_length_is_refused() -> None:
    net = Network()
    net.add_input("x", ("T", 2, 3), "float64")
    net.add_parameter("w", np.ones((1, 8, 3)))
    net.add_parameter("r", np.ones((1, 8, 2)))
    net.add_node("LSTM", ["x", "w", "r"], ["y"], name="memory", hidden_size=2)
    net.add_node("ReduceSum", "y", "loss", keepdims=0)
    with pytest.raises(UnsupportedOperator, match=r"'memory'.*sequence length"):
        net.with_gradient()


# -- rules of others, second order, dropout ---------------------------------------------------------------------------


def test_custom_operators_bring_their_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deep500.networks.gradients.rules.registry.RULES", RULES)
    net = chain("lab.Fancy")

    @gradient_rule("Fancy", domain="lab")
    def fancy(g):
        return [g.grad() * 3 * g("Cos", g.input(0))]

    try:
        gradient = net.with_gradient("loss", ["x"])
    finally:
        del RULES["lab", "Fancy"]
    assert {"Cos", "Mul"} <= {n.op_type for n in gradient.nodes}


def test_gradient_of_a_gradient() -> None:
    rng = np.random.default_rng(5)  # its own, so that the order of the tests cannot make the derivative vanish
    net = Network()
    net.add_input("x", (3, 4), "float64")
    net.add_parameter("w", rng.normal(size=(4, 2)))
    emit = Emitter(net)
    inner = emit("Identity", "x", output="inner")
    emit("ReduceSum", emit("Softmax", emit("Tanh", emit("MatMul", inner, "w"))), emit.ints(0), output="s")
    emit("ReduceLogSumExp", "s", output="loss", keepdims=0)
    first = net.with_gradient("loss", ["inner"])
    emit = Emitter(first)
    emit("ReduceSum", emit("Mul", "inner.grad", "inner.grad"), output="penalty", keepdims=0)
    first.add_output("penalty")
    second = first.copy()
    feeds = {"x": rng.normal(size=(3, 4))}
    got = evaluate(second.with_gradient("penalty", ["x"]), feeds, ["x.grad"])[0]
    direction = rng.normal(size=(3, 4))
    want = slope(lambda x: evaluate(first, {"x": x}, ["penalty"])[0], feeds["x"], direction)
    assert abs(want) > 1e-4
    assert_close((got * direction).sum(), want, "finite_difference")


def test_dropout_drops_the_same_gradients() -> None:
    net = Network()
    net.add_input("x", ("N", 50), "float64")
    net.add_parameter("ratio", np.array(0.4), trainable=False)
    net.add_parameter("on", np.array(True), trainable=False)
    net.add_node("Dropout", ["x", "ratio", "on"], ["y"])
    net.add_node("ReduceSum", "y", "loss", keepdims=0)
    net.add_output("y")
    y, dx = evaluate(net.with_gradient("loss", ["x"]), {"x": np.ones((20, 50))}, ["y", "x.grad"])
    assert 0.2 < np.mean(y == 0) < 0.6
    np.testing.assert_allclose(y, dx, rtol=1e-6)


# -- ONNX's own Gradient operator -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["test_gradient_of_add", "test_gradient_of_add_and_mul"])
def test_gradient_cases_of_onnx(case: str) -> None:
    from onnx.backend.test.case.model import collect_testcases

    test_case = next(c for c in collect_testcases() if c.name == case)
    net = Network.from_onnx(test_case.model)
    inputs, want = test_case.data_sets[0]
    got = evaluate(net, dict(zip(net.inputs, map(np.asarray, inputs), strict=True)), net.outputs)
    for ours, theirs in zip(got, want, strict=True):
        assert_close(ours, theirs, "forward")


def test_gradient_node_whose_result_is_read() -> None:
    net = Network()
    net.add_input("x", (), "float64")
    net.add_node("Exp", "x", "y")
    net.add_node("Gradient", "x", "dy", domain="ai.onnx.preview.training", xs=["x"], y="y")
    net.add_node("Mul", ["dy", "x"], "z")
    net.add_node("Gradient", "x", "dz", domain="ai.onnx.preview.training", xs=["x"], y="z")
    net.add_output("dz")
    got = evaluate(net, {"x": np.array(0.5)}, ["dz"])[0]
    assert_close(got, np.exp(0.5) * 1.5, "gradient")


def test_gradient_node_at_other_values_is_refused() -> None:
    net = Network()
    net.add_input("x", (), "float64")
    net.add_node("Exp", "x", "y")
    net.add_node("Gradient", "y", "dy", name="elsewhere", domain="ai.onnx.preview.training", xs=["x"], y="y")
    with pytest.raises(UnsupportedOperator, match="'elsewhere'"):
        evaluate(net, {"x": np.array(0.5)}, ["dy"])
