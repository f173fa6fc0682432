"""`plan_checkpointing` and its front: what they promise is what a step takes, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import BudgetError, InputError, NetworkError, PlanError
from deep500.frameworks.reference import Executor
from deep500.networks import Network, add_loss, create
from deep500.transformations.recomputation import checkpointing_front, find_regions
from deep500.transformations.recomputation.node_times import least_seconds, measured_regions
from tests.conftest import load_backend
from tests.transformations.recomputation.test_rewriting import NETWORKS, inputs_of


@pytest.mark.parametrize(("name", "share"), [("resnet", 0.8), ("transformer", 0.7)])
def test_the_reference_holds_what_was_predicted(name: str, share: float) -> None:
    """Arrays counted while a real step runs, with the plan and without; what it drew or learnt stays as it was."""
    make, batch = NETWORKS[name]
    net = make()
    inputs = inputs_of(net, batch * 4)
    executor = Executor(net)
    before = executor.network.state()
    plan = d5.plan_checkpointing(executor, share, inputs)
    assert (plan.time_unit, plan.backend, plan.batch) == ("s", "reference", batch * 4)
    for value, array in executor.network.state().items():
        np.testing.assert_array_equal(array, before[value])
    full = executor.step_memory(inputs)
    executor.set_checkpointing(plan)
    held = executor.step_memory(inputs)
    assert 0.85 * plan.predicted_peak < held <= plan.predicted_peak <= plan.budget, "views do not count again"
    assert held < 1.02 * share * full


@pytest.mark.slow
def test_bytes_or_a_share_with_or_without_an_executor() -> None:
    net = add_loss(create("resnet", depth=8))
    share = d5.plan_checkpointing(net, 0.8, batch=8)
    assert share.time_unit == "FLOP"
    for target in (net, Executor(net)):
        assert d5.plan_checkpointing(target, share.budget, batch=8) == share
    assert d5.plan_checkpointing(net, 0.8, inputs_of(net, 8)) == share
    assert d5.plan_checkpointing(net, 1.0, batch=8).regions == ()
    numbers = [np.float32(0.75), np.int64(10**9)]  # as arithmetic with arrays makes them
    for number, plain in zip(numbers, (0.75, 10**9), strict=True):
        target = NETWORKS["transformer"][0]()
        plan = d5.plan_checkpointing(target, number, batch=np.int64(4))  # type: ignore[arg-type, call-overload]
        assert plan == d5.plan_checkpointing(target, plain, batch=4)
        assert type(plan.budget) is type(plan.batch) is int
    with pytest.raises(BudgetError) as caught:
        d5.plan_checkpointing(net, 0.01, batch=8)
    smallest = caught.value.smallest
    assert smallest is not None and d5.plan_checkpointing(net, smallest, batch=8).predicted_peak == smallest
    assert f"expected at least {smallest} " in str(caught.value)


@pytest.mark.parametrize("budget", [0, 0.0, -1, -0.5, 1.5, True, "half", float("nan"), None])
def test_budgets_that_are_none(budget: Any) -> None:
    with pytest.raises(PlanError, match=r"expected bytes .* or a share"):
        d5.plan_checkpointing(add_loss(create("mlp")), budget, batch=2)


def test_what_cannot_be_planned_for() -> None:
    net = add_loss(create("resnet", depth=8))
    with pytest.raises(PlanError, match="got no batch size"):
        d5.plan_checkpointing(net)
    with pytest.raises(NetworkError, match="resnet: got a file that does not exist"):
        d5.plan_checkpointing("resnet", batch=2)
    with pytest.raises(InputError, match="got int as a model"):
        d5.plan_checkpointing(5, batch=2)
    with pytest.raises(PlanError, match="batch=3 and inputs of 2 samples"):
        d5.plan_checkpointing(net, inputs=inputs_of(net, 2), batch=3)
    with pytest.raises(PlanError, match="got no input 'label'"):
        d5.plan_checkpointing(net, inputs={"input": np.zeros((2, 3, 32, 32), "float32")})
    uneven = {**inputs_of(net, 2), "label": np.zeros(3, "int64")}
    with pytest.raises(PlanError, match="expected one for every symbolic size"):
        d5.plan_checkpointing(Executor(net), inputs=uneven)
    for target in (net, Executor(net)):
        with pytest.raises(PlanError, match="got int for inputs; expected a batch"):
            d5.plan_checkpointing(target, inputs=5)  # type: ignore[arg-type]
        wrong = {**inputs_of(net, 2), "input": np.zeros((2, 3, 32, 32))}
        with pytest.raises(InputError, match="'input': got dtype float64; expected float32"):
            d5.plan_checkpointing(target, inputs=wrong)
        with pytest.raises(InputError, match=r"'input': got .*expected .*32"):
            d5.plan_checkpointing(target, inputs={**wrong, "input": np.zeros((2, 3, 4, 32), "float32")})
        with pytest.raises(InputError, match="got input 'more'"):
            d5.plan_checkpointing(target, inputs={**inputs_of(net, 2), "more": np.zeros(2)})
        with pytest.raises(PlanError, match="got float as a profile"):
            d5.plan_checkpointing(target, batch=2, profile=0.5)  # type: ignore[arg-type]
    fixed = add_loss(create("mlp", batch=4))
    with pytest.raises(PlanError, match=r"got batch=5 .* expected 4"):
        d5.plan_checkpointing(fixed, 1.0, batch=5)
    assert d5.plan_checkpointing(fixed, 1.0, batch=4) == d5.plan_checkpointing(fixed, 1.0)
    single = Network("one")
    single.add_input("x", ("N", 4))
    single.add_parameter("w", np.ones((4, 4), "float32"))
    single.add_node("Einsum", ["x", "w"], ["loss"], equation="ij,jk->")
    single.add_output("loss")
    with pytest.raises(PlanError, match=r"'one' with 1 operator\(s\), none of which may run again"):
        d5.plan_checkpointing(single, batch=2)


def test_a_profile_serves_several_budgets_of_its_network_batch_and_backend() -> None:
    net = add_loss(create("resnet", depth=8))
    executor, inputs = Executor(net), inputs_of(net, 8)
    profile = measured_regions(executor, inputs)
    plans = [d5.plan_checkpointing(executor, share, inputs, profile=profile) for share in (0.9, 0.8)]
    assert [(plan.backend, plan.time_unit) for plan in plans] == [("reference", "s")] * 2
    assert plans[0].predicted_extra <= plans[1].predicted_extra
    with pytest.raises(PlanError, match=r"profile of network 'resnet.*expected 'resnet.*this batch size"):
        d5.plan_checkpointing(executor, 0.9, inputs_of(net, 4), profile=profile)
    with pytest.raises(PlanError, match=r"profile of network 'resnet.*expected 'lenet"):
        d5.plan_checkpointing(add_loss(create("lenet")), 0.9, batch=8, profile=profile)
    other = load_backend("onnxruntime").Executor(net)
    with pytest.raises(PlanError, match="taken on backend 'reference'; expected one of 'onnxruntime'"):
        d5.plan_checkpointing(other, 0.9, batch=8, profile=profile)


def test_the_front_of_an_executor() -> None:
    net = add_loss(create("resnet", depth=8))
    front = d5.checkpointing_front(Executor(net), inputs_of(net, 4), points=4)
    peaks, extras = [p.predicted_peak for p in front], [p.predicted_extra for p in front]
    assert len(front) > 1 and front[0].time_unit == "s"
    assert peaks == sorted(peaks) and extras == sorted(extras, reverse=True) and extras[-1] == 0


@pytest.mark.parametrize("points", [1, 0, -3, 2.5, True, "9", None])
def test_fronts_of_no_points(points: Any) -> None:
    with pytest.raises(PlanError, match="points; expected a whole number, at least 2"):
        checkpointing_front(add_loss(create("mlp")), batch=2, points=points)


def test_a_network_without_training() -> None:
    net = Network("fixed")
    net.add_input("x", ("N", 4))
    net.add_parameter("w", np.ones(4, "float32"), trainable=False)
    net.add_node("Mul", ["x", "w"], ["a"])
    net.add_node("Exp", ["a"], ["b"])
    net.add_node("Sin", ["b"], ["c"])
    net.add_node("ReduceMean", ["c"], ["loss"], keepdims=0)
    net.add_output("loss")
    with pytest.raises(NetworkError, match="loss 'loss', which no trainable parameter influences"):
        d5.plan_checkpointing(net, 0.9, batch=2)


def test_regions_measured_on_every_backend(backend_name: str) -> None:
    """Through the public methods of executors, or by the backend's own timing: every node has a time."""
    net = add_loss(create("mlp", shape=(16,)))
    executor = load_backend(backend_name).Executor(net)
    inputs = inputs_of(net, 8)
    regions = measured_regions(executor, inputs, samples=2)
    names = {node.writes[0] for node in (*regions.step.forward, *regions.step.backward)}
    assert names <= regions.times.keys() and all(regions.times[name] > 0 for name in names)
    assert regions.time_unit == "s" and 0 < regions.root.total_time < regions.root.step_time < 10
    counted = find_regions(net, 8)
    assert [r.name for r in counted.root.walk()] == [r.name for r in regions.root.walk()]


def test_the_least_of_samples_that_take_turns() -> None:
    turns: list[str] = []
    seconds = least_seconds({"a": lambda: turns.append("a"), "b": lambda: sum(range(400_000))}, 3)
    assert seconds["a"] < seconds["b"] < 1
    assert len(turns) > 3 + 2, "a short call is repeated within a sample"
