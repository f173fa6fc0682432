"""A plan held to one real step: bytes, bits, and who is to blame when they differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import PlanError
from deep500.frameworks.reference import Executor
from deep500.frameworks.reference.operators import table
from deep500.networks import Network
from deep500.networks.dtype import to_dtype
from deep500.transformations.recomputation.verify import TOLERANCE, verify_plan
from tests.conftest import load_backend
from tests.transformations.recomputation.test_execution import everything_again
from tests.transformations.recomputation.test_rewriting import NETWORKS, inputs_of


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_differs(name: str) -> None:
    make, batch = NETWORKS[name]
    net = make()
    executor = Executor(net)
    before = executor.network.state()
    plan = everything_again(net, batch)
    checked = verify_plan(executor, plan, inputs_of(net, batch))
    assert checked.difference == 0 and checked.measured is not None and checked.without is not None
    executor.set_checkpointing(plan)
    assert executor.step_memory(inputs_of(net, batch)) == checked.measured
    executor = Executor(net)
    assert executor.step_memory(inputs_of(net, batch)) == checked.without
    assert before.keys() == executor.network.state().keys()


def test_what_is_not_measured_says_so() -> None:
    net, batch = NETWORKS["unet"][0](), 2
    executor = load_backend("onnxruntime").Executor(net)
    checked = verify_plan(executor, everything_again(net, batch), inputs_of(net, batch))
    assert checked.measured is None and checked.without is None and checked.difference == 0
    assert "measured not measured (no counter of memory" in str(checked)


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


class Counting(Executor):
    """Its kernels may know how often they were called in a step, as :func:`drifting` makes them."""

    calls = 0

    def inference_and_backprop(self, *args: Any, **options: Any) -> dict[str, Any]:
        Counting.calls = 0
        return super().inference_and_backprop(*args, **options)

    def step_memory(self, *args: Any, **options: Any) -> int:
        Counting.calls = 0
        return super().step_memory(*args, **options)


def drifting(monkeypatch: pytest.MonkeyPatch, offset: Callable[[Any], float]) -> None:
    """Let Tanh give another result the second time: as much more as ``offset`` says for a dtype."""

    def tanh(x: np.ndarray) -> np.ndarray:
        Counting.calls += 1
        return np.tanh(x) + x.dtype.type(offset(x.dtype) * (Counting.calls - 1))

    monkeypatch.setitem(table.OPS, ("", "Tanh"), table.ReferenceEntry(tanh))


INPUTS = {"x": np.random.default_rng(0).standard_normal((4, 6)).astype("float32")}


def test_a_region_that_gives_something_else_the_second_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that counts its calls in a step stands for one that draws numbers, which cannot be seen from outside."""
    net = two_blocks()
    plan = everything_again(net, 4)
    drifting(monkeypatch, lambda dtype: 0.1)
    guilty = [r.name for r in plan.regions if "b1.act" in r.values]
    with pytest.raises(PlanError, match=r"they are not deterministic") as caught:
        verify_plan(Counting(net), plan, INPUTS)
    named = [r.name for r in plan.regions if repr(r.name) in str(caught.value)]
    assert named == guilty and 0 < len(guilty) < len(plan.regions)
    with pytest.raises(PlanError, match=r"they are not deterministic"):
        double = to_dtype(net, "float64")
        verify_plan(Counting(double), everything_again(double, 4), {"x": INPUTS["x"].astype("float64")})


def test_rounding_is_told_from_another_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding that a kink (ReLU's) makes large, as in deep networks on JAX: double precision shows what it was."""
    net = two_blocks()
    drifting(monkeypatch, lambda dtype: 1e5 * np.finfo(dtype).eps)
    checked = verify_plan(Counting(net), everything_again(net, 4), INPUTS)
    assert checked.difference > TOLERANCE
    assert checked.double is not None and 0 < checked.double < 1e-9
    assert "rounding" in str(checked) and f"{checked.double:.1e} in double precision" in str(checked)


def test_the_numbers_in_words() -> None:
    net = NETWORKS["resnet"][0]()
    executor = Executor(net)
    plan = d5.plan_checkpointing(executor, 0.9, batch=4)
    text = str(verify_plan(executor, plan, inputs_of(net, 4)))
    assert f"predicted peak {plan.predicted_peak:,} B, measured " in text and "the same to the bit" in text


def test_what_is_verified_follows_plans_as_the_executor_does() -> None:
    """A tape of our own holds less than torch's checkpoints: a twin with default options would measure those."""
    net, batch = NETWORKS["resnet"][0](), 4
    plan, inputs = everything_again(net, batch), inputs_of(net, batch)
    held = {}
    for way in ("explicit", "checkpoint"):
        executor = load_backend("pytorch").from_model(net, recompute=way)
        held[way] = verify_plan(executor, plan, inputs).measured
        executor.set_checkpointing(plan)
        executor.inference_and_backprop(inputs)
        assert executor.step_memory(inputs) == held[way]
    assert held["explicit"] != held["checkpoint"]


@pytest.mark.parametrize(
    ("backend", "choices"),
    [
        ("pytorch", {"recompute": "explicit", "recognise": False}),
        ("tensorflow", {"jit_compile": True}),
        ("onnxruntime", {"optimization": "basic", "threads": 1}),
        ("jax", {"precision": "ieee"}),
    ],
)
def test_another_like_it_has_the_same_choices(backend: str, choices: dict[str, Any]) -> None:
    net = NETWORKS["resnet"][0]()
    other = load_backend(backend).Executor(net, **choices).like(two_blocks())
    assert {name: getattr(other, name) for name in choices} == choices and "x" in other.network.inputs
