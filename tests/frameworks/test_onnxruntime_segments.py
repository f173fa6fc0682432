"""ONNX Runtime and custom operators: how a network is cut, that nothing is copied, that nothing is kept too long."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.networks import Network, create, replace_operator
from deep500.networks.custom import is_custom
from deep500.networks.node import Node
from tests.conftest import load_backend
from tests.networks import custom_operators
from tests.tolerances import assert_close

pytestmark = pytest.mark.backend("onnxruntime")
RNG = np.random.default_rng(8)


def ort():
    return load_backend("onnxruntime")


def sandwich(*op_types: str, shape: tuple = ("N", 4), dtype: str = "float32") -> Network:
    """x -> operators in a row -> y; each of their values is v0, v1, ..."""
    net = Network("sandwich")
    net.add_input("x", shape, dtype)
    value = "x"
    for i, op_type in enumerate(op_types):
        net.add_node(op_type, value, f"v{i}", name=f"n{i}", domain="deep500" if op_type.startswith("Test") else "")
        value = f"v{i}"
    net.add_node("Identity", value, "y")
    net.add_output("y")
    return net


def compiled(executor):
    """The program of the network's outputs."""
    return executor._inference(tuple(executor.network.outputs))[0]


@given(st.data())
def test_cut_into_the_fewest_groups_in_an_order_that_works(data) -> None:
    from deep500.frameworks.onnxruntime.segments import split

    count = data.draw(st.integers(1, 9))
    nodes = []
    for i in range(count):
        reads = tuple(data.draw(st.lists(st.sampled_from([f"v{k}" for k in range(-1, i)]), min_size=1, max_size=3)))
        nodes.append(Node("Foo", reads, (f"v{i}",), f"n{i}", data.draw(st.sampled_from(["", "deep500"]))))
    groups = split(nodes)
    assert sorted(n.name for g in groups for n in g) == sorted(n.name for n in nodes)
    known = {"v-1"}
    for group in groups:
        assert len(group) == 1 or not any(map(is_custom, group))
        for node in group:
            assert known.issuperset(node.reads)
            known.update(node.writes)
    assert sum(not is_custom(g[0]) for g in groups) == _longest(nodes)


def _longest(nodes: list[Node]) -> int:
    """Number of stages with ordinary nodes: found by running everything that can run, in turns of kind."""
    left, known, sessions = list(nodes), {"v-1"}, 0
    for turn in range(2 * len(nodes) + 1):
        progress = True
        started = False
        while progress:
            ready = [n for n in left if known.issuperset(n.reads) and is_custom(n) == bool(turn % 2)]
            progress = bool(ready)
            started |= progress
            known.update(v for n in ready for v in n.writes)
            left = [n for n in left if n not in ready]
        sessions += started and not turn % 2
    return sessions


def test_sessions_lie_between_the_operators() -> None:
    plain = create("lenet", classes=10, shape=(1, 8, 8))
    executor = ort().from_model(replace_operator(plain, "Relu", "TestLeakyRelu", "deep500"))
    program = compiled(executor)
    assert len(program.programs) == 5 and len(program.steps) == 9
    assert type(compiled(ort().from_model(plain))).__name__ == "SessionProgram", "ordinary networks are one session"


def test_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators see the sessions' own memory, and sessions the operators' arrays."""
    from deep500.frameworks.onnxruntime import program

    seen, fed = [], []
    made = np.full((3, 4), 7, np.float32)

    def forward(self, inputs):
        seen.append(inputs[0])
        return made

    run = program.run_session

    def spy(session, outputs, feeds, plain):
        fed.extend(feeds.values())
        values = run(session, outputs, feeds, plain)
        fed.extend(values.values())
        return values

    monkeypatch.setattr(custom_operators.Opaque, "forward", forward)
    executor = ort().from_model(sandwich("Neg", "TestOpaque", "Abs"))
    monkeypatch.setattr(program, "run_session", spy)
    seen.clear()
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_array_equal(executor.inference({"x": x})["y"], made)
    given, between, taken, _ = fed
    assert given is x and np.shares_memory(seen[0], between) and taken is made
    assert not between.flags.owndata, "a view of ONNX Runtime's memory, not a copy of it"


def test_values_are_dropped_after_their_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = []

    def forward(self, inputs):
        out = inputs[0] + 1
        alive.append((sum(reference() is not None for reference, _ in alive), len(alive)))
        alive[-1] = (weakref.ref(out), alive[-1][0])
        return out

    monkeypatch.setattr(custom_operators.Opaque, "forward", forward)
    executor = ort().from_model(sandwich(*["TestOpaque", "Exp"] * 4))
    alive.clear()
    executor.inference({"x": np.zeros((3, 4), np.float32)})
    assert [before for _, before in alive] == [0, 0, 0, 0], "an operator's output is gone once the session has read it"


def test_live_parameters_reach_operators_and_sessions() -> None:
    net = sandwich("TestLeakyRelu", "Neg")
    net.add_parameter("w", np.array([1, -2, 3, -4], np.float32))
    net.add_node("TestLeakyRelu", "w", "u", domain="deep500", alpha=0.5)
    net.add_node("Mul", ["y", "u"], "z")
    net.add_node("ReduceSum", "z", "loss", keepdims=0)
    net.add_output("loss")
    executor, x = ort().from_model(net), np.ones((1, 4), np.float32)
    assert executor.inference({"x": x})["loss"] == -(1 - 1 + 3 - 2)
    assert executor.inference_and_backprop({"x": x}, "loss")["loss"] == -1
    assert_close(executor.network.fetch_tensors(["w.grad"])[0], np.array([-1, -0.5, -1, -0.5], np.float32))
    executor.network.feed_tensor("w", np.full(4, 2, np.float32))
    assert executor.inference_and_backprop({"x": x}, "loss")["loss"] == -8
    assert executor.inference({"x": x})["loss"] == -8 and executor.inference({"x": x}, ["w"])["w"][0] == 2


def test_masks_of_two_sessions_differ_and_follow_the_seed() -> None:
    net = Network()
    net.add_input("x", (64,))
    net.add_parameter("w", np.ones(64, np.float32))
    net.add_node("Dropout", "x", "a", name="first")
    net.add_node("TestLeakyRelu", "a", "b", domain="deep500")
    net.add_node("Dropout", "b", "c", name="second")
    net.add_node("Mul", ["c", "w"], "d")
    net.add_node("ReduceSum", "d", "loss", keepdims=0)
    for name in ("a", "c", "loss"):
        net.add_output(name)
    executor, feeds = ort().from_model(net), {"x": np.ones(64, np.float32)}

    def masks() -> tuple[np.ndarray, np.ndarray]:
        executor.reseed(3)
        masked = executor.inference_and_backprop(feeds, "loss")
        return masked["a"] != 0, masked["c"] != 0

    first, second = masks()
    kept = second[first]
    assert 0 < kept.sum() < first.sum() < 64, "with the same mask, all that the first keeps would be kept"
    for mask, again in zip((first, second), masks(), strict=True):
        np.testing.assert_array_equal(mask, again)


def test_what_cannot_be_cut_is_named() -> None:
    node = helper.make_node("TestOpaque", ["x"], ["inner"], domain="deep500")
    result = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    body = helper.make_graph([node], "body", [], [result])
    net = sandwich("Neg")
    net.add_input("yes", (), "bool")
    net.add_node("If", "yes", "z", name="choice", then_branch=body, else_branch=body)
    net.add_output("z")
    with pytest.raises(UnsupportedOperator, match=r"'choice' \(If\).*'TestOpaque' inside its sub-graph"):
        ort().from_model(net)
    unknown = sandwich("NonZero", "TestOpaque", "Neg")
    with pytest.raises(UnsupportedOperator, match=r"'n1' .*'v1' of unknown dtype.*output_descriptors"):
        ort().from_model(unknown)


def test_errors_of_a_run_name_the_node() -> None:
    net = sandwich("Neg", "TestMatMul", dtype="float64", shape=("N", "M"))
    net.replace("n1", "TestMatMul", ["v0", "x"], domain="deep500")
    executor = ort().from_model(net)
    assert executor.inference({"x": np.ones((3, 3))})["y"].shape == (3, 3)
    with pytest.raises(InputError, match=r"node 'n1'.*float64\[2x3\]"):
        executor.inference({"x": np.ones((2, 3))})
    pole = ort().from_model(sandwich("TestPole"))  # infinite, without a warning: also where shapes are tried
    assert np.isinf(pole.inference({"x": np.ones((2, 4), np.float32)})["y"]).all()
    broken = ort().from_model(sandwich("TestBroken"))
    with pytest.raises(NetworkError, match=r"node 'n0' \(deep500.TestBroken\): got ZeroDivisionError \(oh\)"):
        broken.inference({"x": np.ones((2, 4), np.float32)})
