"""A commit's piece of drawn networks under drawn plans, thousands every night; and that faults would be found."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from deep500.distributed import Serial
from deep500.distributed.rank_runs import RankRun
from deep500.frameworks import reference
from deep500.networks import Network
from deep500.networks.node import Node
from deep500.transformations.parallel.planning import parallelize
from deep500.transformations.parallel.rules import SHARDING_RULES
from deep500.transformations.parallel.strategies import Strategy
from tests.fuzz import plans
from tests.fuzz.plan_networks import LAYERS, Case, Layers, drawn

pytestmark = [pytest.mark.slow, pytest.mark.backend("reference"), pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).resolve().parents[2]


def judged(number: int, kind: Callable[[random.Random], Case | None] = drawn) -> str:
    """Say what is wrong with one number; empty for nothing and what is refused."""
    draw = random.Random(f"1:{number}")
    made = kind(draw)
    try:
        return "" if made is None else plans.judge(made, draw)
    except plans.Refused:
        return ""


def test_some_drawn_plans_equal_serial_training(numbers: Callable[[int], range]) -> None:
    found = {number: text for number in numbers(8) if (text := judged(number))}
    assert not found


@pytest.mark.long
@pytest.mark.parametrize("kind", ["drawn", "zoo", "modules", "nnsmith"])
def test_thousands_of_plans(kind: str) -> None:
    pytest.importorskip({"modules": "torch", "nnsmith": "nnsmith"}.get(kind, "numpy"))
    command = [sys.executable, "-m", "tests.fuzz.plans", "--count", "2000", "--seed", "2", "--kinds", kind]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=6 * 3600, check=False)
    assert done.returncode == 0 and "findings: none" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]


def one_layer(name: str) -> Case:
    """A network of a layer between two products, and a large batch."""
    b = Layers(random.Random(f"fault: {name}"))
    layer = {layer.__name__[1:]: layer for layer in LAYERS}
    for part in ("linear", name, "linear"):
        b.value = layer[part](b, b.value)
    b.network.add_node("ReduceSumSquare", [b.value], ["loss"], "loss", keepdims=0)
    b.network.add_output("loss")
    return Case(b.network, {"x": b.rng.normal(size=(b.rows, int(b.network.inputs["x"].shape[1])))}, name)


def split_at_batch(case: Case, **pins: str) -> str:
    """Say what is wrong where the input is split along the batch."""
    plan = plans.plan_of(case, 2, plans.Wishes(pins={"x": "S0", **pins}, model=plans.CHEAP))
    got = plans.divided(case, plan.division(case.network))
    return plans.differs(plans.serial(case), got, got)


@pytest.mark.parametrize("name", ["if", "loop", "batch_mean", "heads", "sorted", "index_update"])
def test_what_a_stranger_met(name: str) -> None:
    """Captured values and weights, means over the batch, masks, gathered and written elements."""
    assert split_at_batch(one_layer(name)) == ""


def test_a_scan_forward() -> None:
    """Its gradient has sizes that only a run can tell."""
    case = one_layer("scan")
    wishes = plans.Wishes(pins={"x": "S0"}, model=plans.CHEAP)
    plan = parallelize(case.network, 3, {"x": case.feeds["x"].shape}, None, wishes)
    got = plans.divided(case, plan.division(case.network))
    assert plans.differs(plans.serial(case), got, got) == ""


@pytest.mark.parametrize("fault", ["captures", "means"])
def test_a_fault_would_be_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody places what sub-graphs capture; a rank's mean is not weighted by its share."""
    if fault == "means":
        rule = SHARDING_RULES["ReduceMean"]
        monkeypatch.setitem(SHARDING_RULES, "ReduceMean", lambda view: replace(rule(view), means=frozenset()))
        assert "is off by" in split_at_batch(one_layer("batch_mean"), **{"ReduceMean_p/ReduceMean": "d0"})
        return

    def inputs_alone(strategy: Strategy, node: Node) -> list[Any]:
        return [(value, s) for value, s in zip(node.inputs, strategy.inputs, strict=True) if value]

    monkeypatch.setattr(Strategy, "reads", inputs_alone)
    with pytest.raises(KeyError):
        split_at_batch(one_layer("if"))


def test_constants_that_are_split_and_read_whole() -> None:
    """A collective reads what no node of a rank does."""
    network, rng = Network("table"), np.random.default_rng(0)
    network.add_input("x", ("N", 12), "float64")
    network.add_parameter("w", rng.normal(size=(12, 12)))
    network.add_parameter("table", rng.normal(size=(12, 12)), trainable=False)
    network.add_node("MatMul", ["x", "w"], ["y"], "y")
    network.add_node("MatMul", ["y", "table"], ["z"], "z")
    network.add_node("ReduceSumSquare", ["z"], ["loss"], "loss", keepdims=0)
    network.add_output("loss")
    case = Case(network, {"x": rng.normal(size=(5, 12))}, "")
    plan = plans.plan_of(case, 2, plans.Wishes(pins={"table": "S0", "z": "replicate"}))
    got = plans.divided(case, plan.division(network))
    assert plan.constants or plan.sources["table"] == "S0"
    assert plans.differs(plans.serial(case), got, got) == ""


def test_what_is_an_output_as_it_stands_is_whole() -> None:
    case = one_layer("linear")
    weight = case.network.trainable()[0]
    for name in ("x", weight):
        case.network.add_output(name)
    plan = plans.plan_of(case, 2, plans.Wishes(memory=0, model=plans.CHEAP))
    got = plans.divided(case, plan.division(case.network))
    assert plan.sources and weight not in plan.sources
    assert plans.differs(plans.serial(case), got, got) == "" and {"x", weight} <= got.keys()


def test_numbers_that_sub_graphs_draw_are_those_of_all_ranks() -> None:
    """A trainer seeds every rank otherwise; one seed is agreed on where a piece says that it draws."""
    network = Network("noise")
    network.add_input("x", (3,), "float64")
    network.add_parameter("yes", np.array(True), trainable=False)
    bodies = {}
    for branch in ("then_branch", "else_branch"):
        node = helper.make_node("RandomUniformLike", ["x"], [branch])
        given = helper.make_tensor_value_info(branch, TensorProto.DOUBLE, [3])
        bodies[branch] = helper.make_graph([node], branch, [], [given])
    network.add_node("If", ["yes"], ["y"], "y", **bodies)
    network.add_output("y")
    run = RankRun(network, (), reference.from_model(network), Serial())
    assert [phase.random for phase in run.phases] == [True]
