"""Stages between which several values cross: chains of recurrent cells; and stages whose nodes run inside another's."""

from __future__ import annotations

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import Network, add_loss, create
from deep500.transformations.recomputation import find_regions, planning
from deep500.transformations.recomputation.chain import innermost_regions, linked_regions
from tests.conftest import load_backend
from tests.transformations.recomputation.test_rehearsing import step_of

STEPS = 8


def cell() -> Network:
    """Two values pass from every step to the next, as in an LSTM's cell that is written out."""
    net = Network("cell")
    net.add_input("x", ("N", 16))
    rng = np.random.default_rng(1)
    for name in ("w", "u"):
        net.add_parameter(name, rng.standard_normal((16, 16)).astype("float32") / 4)
    h = c = "x"
    for i in range(STEPS):
        net.add_node("MatMul", [h, "w"], [f"{i}/a"])
        net.add_node("MatMul", [c, "u"], [f"{i}/b"])
        net.add_node("Add", [f"{i}/a", f"{i}/b"], [f"{i}/sum"])
        net.add_node("Sigmoid", [f"{i}/sum"], [f"{i}/gate"])
        net.add_node("Mul", [f"{i}/gate", c], [f"{i}/c"])
        net.add_node("Tanh", [f"{i}/c"], [f"{i}/t"])
        net.add_node("Mul", [f"{i}/t", f"{i}/gate"], [f"{i}/h"])
        h, c = f"{i}/h", f"{i}/c"
    net.add_node("ReduceMean", [h], ["loss"], keepdims=0)
    net.add_output("loss")
    return net


def test_a_stage_of_a_chain_reads_activations_of_the_one_before_it_alone() -> None:
    for net, crossing, least in ((cell(), 2, STEPS - 1), (add_loss(create("unet", levels=2)), 3, 3)):
        regions = find_regions(net, 4, crossing=crossing)
        stages, parts = linked_regions(regions), innermost_regions(regions)
        assert least <= len(stages) <= len(parts) - (crossing == 3)
        assert [v for stage in stages for v in stage.values] == [v for part in parts for v in part.values]
        home = {value: i for i, stage in enumerate(stages) for value in stage.values}
        nodes = {value: node for node in regions.step.forward for value in node.writes}
        for i, stage in enumerate(stages):
            read = {home[v] for value in stage.values for v in nodes[value].reads if v in home}
            assert read <= {i - 1, i}


def test_cuts_through_which_two_values_pass_meet_small_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere does one value cross alone: without such cuts nothing could be saved.

    Gradients of weights that every step reads are summed as they are where nothing is cut: the same bits.
    """
    monkeypatch.setattr(planning, "SAMPLES", 1)
    inputs = {"x": np.random.default_rng(0).standard_normal((256, 16)).astype("float32")}
    executor = load_backend("pytorch").from_model(cell(), recompute="explicit")
    full, want = executor.step_memory(inputs), step_of(executor, inputs)
    plan = d5.plan_checkpointing(executor, 0.5, inputs)
    executor.set_checkpointing(plan)
    got = step_of(executor, inputs)
    assert executor.step_memory(inputs) == plan.predicted_peak <= 0.5 * full
    assert [name for name in want if not np.array_equal(want[name], got[name])] == []


def test_a_stage_whose_nodes_run_inside_another_ones_function_takes_nothing() -> None:
    """GELU written out is one function for PyTorch: what stands in the midst of it is no code of its own."""
    net = Network("gelu")
    net.add_input("x", ("N", 16))
    for name, value in (("root", 2**0.5), ("one", 1.0), ("half", 0.5)):
        net.add_parameter(name, np.array(value, "float32"), trainable=False)
    net.add_parameter("w", np.eye(16, dtype="float32"))
    net.add_node("MatMul", ["x", "w"], ["y"])
    net.add_node("Div", ["y", "root"], ["scaled"])
    net.add_node("Erf", ["scaled"], ["erf"])
    net.add_node("Add", ["erf", "one"], ["moved"])
    net.add_node("Mul", ["y", "moved"], ["product"])
    net.add_node("Mul", ["product", "half"], ["gelu"])
    net.add_node("ReduceMean", ["gelu"], ["loss"], keepdims=0)
    net.add_output("loss")
    executor = load_backend("pytorch").from_model(net)
    assert "Gelu" in executor.module.recognised.values()
    inputs = {"x": np.ones((8, 16), "float32")}
    first, inner, last = executor.measure_stages(
        [("y",), ("scaled", "erf"), ("moved", "product", "gelu", "loss")], inputs
    )
    assert inner.modes == ((0, 0, 0, 0, 0),) and inner.forward == 0
    assert first.output == inner.output == 8 * 16 * 4 and last.modes[0].saved > 0
