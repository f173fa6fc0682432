"""A plan held to one real step: bytes, bits, and who is to blame when they differ."""

from __future__ import annotations

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import PlanError
from deep500.frameworks.reference import Executor
from deep500.frameworks.reference.operators import table
from deep500.networks import Network
from deep500.training.checkpointing.verify import verify_plan
from tests.conftest import load_backend
from tests.training.checkpointing.test_execution import everything_again
from tests.training.checkpointing.test_recompute import NETWORKS, inputs_of


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_differs(name: str) -> None:
    make, batch = NETWORKS[name]
    net = make()
    executor = Executor(net)
    before = executor.network.state()
    plan = everything_again(net, batch)
    found = verify_plan(executor, plan, inputs_of(net, batch))
    assert found.difference == 0 and found.measured is not None and found.without is not None
    executor.set_checkpointing(plan)
    assert executor.step_memory(inputs_of(net, batch)) == found.measured
    executor = Executor(net)
    assert executor.step_memory(inputs_of(net, batch)) == found.without
    assert before.keys() == executor.network.state().keys()


def test_what_is_not_measured_says_so() -> None:
    net, batch = NETWORKS["unet"][0](), 2
    executor = load_backend("onnxruntime").Executor(net)
    found = verify_plan(executor, everything_again(net, batch), inputs_of(net, batch))
    assert found.measured is None and found.without is None and found.difference == 0
    assert "measured not measured (no counter of memory" in str(found)


def two_blocks() -> Network:
    net = Network("two")
    net.add_input("x", ("N", 6))
    value = "x"
    for i, op_type in enumerate(("Sigmoid", "Tanh", "Sigmoid")):
        net.add_parameter(f"w{i}", np.eye(6, dtype="float32"))
        net.add_node("MatMul", [value, f"w{i}"], [f"b{i}.product"])
        net.add_node(op_type, [f"b{i}.product"], [f"b{i}.act"])
        net.add_node("Exp", [f"b{i}.act"], [f"b{i}.out"])
        value = f"b{i}.out"
    net.add_node("ReduceMean", [value], ["loss"], keepdims=0)
    net.add_output("loss")
    return net


def test_a_region_that_gives_something_else_the_second_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that counts its calls in a step stands for one that draws numbers, which nobody can see from outside."""
    net = two_blocks()
    plan = everything_again(net, 4)
    calls = [0]

    def counting(x: np.ndarray) -> np.ndarray:
        calls[0] += 1
        return np.tanh(x) + np.float32(0.1 * (calls[0] - 1))

    class Fresh(Executor):
        def inference_and_backprop(self, *args: object, **options: object) -> dict[str, object]:
            calls[0] = 0
            return super().inference_and_backprop(*args, **options)  # type: ignore[arg-type]

        def step_memory(self, *args: object, **options: object) -> int:
            calls[0] = 0
            return super().step_memory(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setitem(table.OPS, ("", "Tanh"), table.Entry(counting))
    inputs = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype("float32")}
    guilty = [r.name for r in plan.regions if "b1.act" in r.values]
    with pytest.raises(PlanError, match=r"they are not deterministic") as caught:
        verify_plan(Fresh(net), plan, inputs)
    named = [r.name for r in plan.regions if repr(r.name) in str(caught.value)]
    assert named == guilty and 0 < len(guilty) < len(plan.regions)


def test_the_numbers_in_words() -> None:
    net = NETWORKS["resnet"][0]()
    executor = Executor(net)
    plan = d5.plan_checkpointing(executor, 0.9, batch=4)
    text = str(verify_plan(executor, plan, inputs_of(net, 4)))
    assert f"predicted peak {plan.predicted_peak:,} B, measured " in text and "the same to the bit" in text
