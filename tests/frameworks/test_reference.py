"""What only the reference backend promises: readable plans, live arrays, sub-graphs, and the errors of its kernels."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import deep500.networks as d5nt
from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.frameworks import reference
from deep500.frameworks.reference.compiler import KernelProgram
from deep500.frameworks.reference.operators import OPS, Random, op
from deep500.networks import Network
from tests.conftest import HANG


def product() -> Network:
    """y = x w, and z = relu(y)."""
    net = Network()
    net.add_input("x", ("N", 3))
    net.add_parameter("w", np.arange(6, dtype=np.float32).reshape(3, 2))
    net.add_node("MatMul", ["x", "w"], "y", name="product")
    net.add_node("Relu", "y", "z", name="relu")
    net.add_output("z")
    return net


def test_parameters_are_live_arrays() -> None:
    executor = reference.from_model(product())
    (array,) = executor.network.fetch_tensors(["w"])
    x = np.ones((1, 3), np.float32)
    assert executor.inference({"x": x})["z"].tolist() == [[6, 9]]
    array[:] = 1
    assert executor.inference({"x": x})["z"].tolist() == [[3, 3]]
    given = np.full((3, 2), 2, np.float32)
    executor.network.assign_tensor("w", given)
    assert executor.network.fetch_tensors(["w"])[0] is given


def test_a_plan_has_only_what_is_needed_and_drops_what_is_read() -> None:
    net = product()
    net.add_node("Neg", "x", "unused", name="unused")
    plan = KernelProgram(net, ["z"], Random())
    assert [step.node.name for step in plan.steps] == ["product", "relu"]
    names = {slot: name for name, slot in plan.slots.items()}
    assert [{names[slot] for slot in step.done} for step in plan.steps] == [{"x"}, {"y"}]
    assert plan.inputs == ["x"] and list(plan.parameters) == ["w"]


def test_unread_outputs_are_dropped_at_once() -> None:
    net = Network()
    net.add_input("x", (4,))
    net.add_node("Split", "x", ["a", "b"], name="split", num_outputs=2)
    net.add_output("a")
    (step,) = KernelProgram(net, ["a"], Random()).steps
    assert len(step.done) == 2  # x and b


def test_compilation_happens_once_per_selection() -> None:
    executor = reference.from_model(product())
    feeds = {"x": np.ones((1, 3), np.float32)}
    for _ in range(3):
        executor.inference(feeds)
        executor.inference(feeds, ["y"])
    assert set(executor._inferences) == {("z",), ("y",)}
    plan = executor._inferences["z",][0]
    executor.network.feed_tensor("w", np.zeros((3, 2), np.float32))  # no edit
    assert executor.inference(feeds)["z"].tolist() == [[0, 0]] and executor._inferences["z",][0] is plan
    executor.network.add_output("y")
    executor.inference(feeds)
    assert set(executor._inferences) == {("z", "y")}


def test_a_kernel_that_fails_names_its_node() -> None:
    net = Network()
    net.add_input("x", ("N", "M"))
    net.add_parameter("w", np.ones((3, 2), np.float32))
    net.add_node("MatMul", ["x", "w"], "y", name="product")
    net.add_output("y")
    with pytest.raises(NetworkError, match=r"node 'product' \(MatMul\): got float32\[5, 4\], float32\[3, 2\]"):
        reference.from_model(net).inference({"x": np.ones((5, 4), np.float32)})


def test_an_index_out_of_range_names_its_node() -> None:
    executor = reference.from_model(d5nt.create("transformer", shape=(4,), vocabulary=10, width=8))
    with pytest.raises(InputError, match=r"node 'embedding' \(Gather\).*index 10 is out of bounds"):
        executor.inference({"input": np.full((2, 4), 10)})


def test_there_is_no_native_network() -> None:
    with pytest.raises(UnsupportedOperator, match="use from_model"):
        reference.from_native(object())


def test_own_kernels_enter_the_table() -> None:
    net = Network()
    net.add_input("x", (3,))
    net.add_node("Cube", "x", "y", domain="test.domain", scale=2.0)
    net.add_output("y")
    try:

        @op("Cube", domain="test.domain")
        def cube(x: np.ndarray, *, scale: float) -> np.ndarray:
            return x**3 * np.float32(scale)

        got = reference.from_model(net).inference({"x": np.arange(3, dtype=np.float32)})["y"]
        assert got.tolist() == [0, 2, 16] and got.dtype == np.float32
    finally:
        OPS.pop(("test.domain", "Cube"))
    with pytest.raises(UnsupportedOperator, match=r"test\.domain\.Cube"):
        reference.from_model(net)


# -- sub-graphs -------------------------------------------------------------------------------------------------------
HEADER = '<ir_version: 10, opset_import: ["" : 21]>'
GRAPHS: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "a branch captures, in a branch": (
        """f (float[2] x, bool a, bool b) => (float[2] y) {
            twice = Add(x, x)
            y = If(a) <then_branch = t () => (float[2] out) {
                    out = If(b) <then_branch = tt () => (float[2] o) { o = Add(twice, x) },
                                 else_branch = te () => (float[2] o) { o = Identity(twice) }>
                }, else_branch = e () => (float[2] out) { out = Neg(x) }>
        }""",
        {"x": np.array([1, 2], np.float32), "a": np.array(True), "b": np.array(True)},
        [[3, 6]],
    ),
    "a loop carries, captures and collects scalars": (
        """f (int64 n, float x, float d) => (float last, float[k] all) {
            go = Constant<value = bool {1}>()
            last, all = Loop(n, go, x) <body = b (int64 i, bool c, float v) => (bool c2, float w, float s) {
                c2 = Identity(c)
                w = Add(v, d)
                s = Mul(v, v)
            }>
        }""",
        {"n": np.array(3), "x": np.float32(1), "d": np.float32(2)},
        [7, [1, 9, 25]],
    ),
    "a loop ends by its condition": (
        """f (float x) => (float last) {
            go = Constant<value = bool {1}>()
            limit = Constant<value = float {100}>()
            last = Loop(, go, x) <body = b (int64 i, bool c, float v) => (bool c2, float w) {
                w = Add(v, v)
                c2 = Less(w, limit)
            }>
        }""",
        {"x": np.float32(3)},
        [192],
    ),
    "a scan backwards": (
        """f (float[3] x, float s) => (float last, float[3] sums) {
            last, sums = Scan<num_scan_inputs = 1, scan_input_directions = [1],
                body = b (float a, float v) => (float t, float out) { t = Add(a, v)
                                                                      out = Identity(t) }>(s, x)
        }""",
        {"x": np.array([1, 2, 3], np.float32), "s": np.float32(10)},
        [16, [13, 15, 16]],
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_sub_graphs(name: str) -> None:
    text, feeds, want = GRAPHS[name]
    executor = reference.from_onnx(onnx.parser.parse_model(HEADER + text))
    got = executor.inference({k: np.asarray(v) for k, v in feeds.items()})
    assert [np.asarray(v).tolist() for v in got.values()] == want


def test_unsupported_operators_inside_sub_graphs_are_named() -> None:
    branch = onnx.helper.make_graph(
        [onnx.helper.make_node("NoSuch", ["x"], ["o"], name="inner", domain="nowhere")],
        "g",
        [],
        [onnx.helper.make_tensor_value_info("o", 1, (2,))],
    )
    net = Network()
    net.add_input("x", (2,))
    net.add_input("c", (), "bool")
    net.add_node("If", "c", "y", name="outer", then_branch=branch, else_branch=branch)
    net.add_output("y")
    with pytest.raises(UnsupportedOperator, match=r"NoSuch.*'inner'"):
        reference.from_model(net)


def test_the_fallback_is_imported_only_when_needed() -> None:
    import subprocess

    program = (
        "import sys, numpy as np, deep500.networks as n, deep500.frameworks.reference as r;"
        "r.from_model(n.create('mlp', shape=(4,))).inference({'input': np.ones((1, 4), 'float32')});"
        "print([m for m in ('onnx.reference', 'scipy', 'torch') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG)
    assert shown.stdout.strip() == "[]"
