"""The user's own blocks as plans: equal gradients, counted peaks, and no plan worse than every block."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import BudgetError
from deep500.networks import add_loss, create
from deep500.networks.execution.inputs import make_inputs
from deep500.registry import load_backend
from deep500.transformations.recomputation.blocks import BlockPlans, scope_blocks
from deep500.transformations.recomputation.planning import plan_checkpointing
from deep500.transformations.recomputation.regions import find_regions
from deep500.transformations.recomputation.training_step import training_step

BATCH = 4
NETWORKS = {
    "unet": {"width": 4, "levels": 2, "shape": (3, 16, 16)},
    "causal_transformer": {"width": 16, "heads": 2, "shape": (8,), "classes": 9},
}


def plans_of(name):
    network = add_loss(create(name, **NETWORKS[name]))
    return network, BlockPlans(network, BATCH, find_regions(network, BATCH), "none")


def gradients_of(executor, names):
    return [np.array(executor.network.to_numpy(value)) for value in executor.network.fetch_tensors(names)]


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in ("reference", "pytorch")])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_block_is_a_plan(name, backend):
    network, plans = plans_of(name)
    executor = load_backend(backend).from_model(network)
    inputs = make_inputs(network, BATCH, 0)
    gradients = [gradient for _, gradient in network.gradient()]
    executor.inference_and_backprop(inputs)
    expected = gradients_of(executor, gradients)
    assert plans.every_block()
    for plan in plans.every_block():
        executor.set_checkpointing(plan)
        executor.inference_and_backprop(inputs)
        for a, b in zip(gradients_of(executor, gradients), expected, strict=True):
            np.testing.assert_array_equal(a, b)
        if backend == "reference":
            assert executor.step_memory(inputs) <= 1.01 * plan.predicted_peak  # views do not count again
        if name == "unet":
            assert executor.step_memory(inputs) < load_backend(backend).from_model(network).step_memory(inputs)


def test_blocks_are_runs_of_one_scope():
    step = training_step(add_loss(create("unet", **NETWORKS["unet"])), BATCH)
    (blocks,) = scope_blocks(step)
    assert [block.name for block in blocks] == ["down1", "down2", "bottom", "up2", "up1"]
    written = {value for node in step.forward for value in node.writes}
    for block in blocks:
        assert {v for v in written if v.startswith(f"{block.location}.")} <= set(block.values)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_plan_is_worse_than_every_block(name):
    network, plans = plans_of(name)
    for every in plans.every_block():
        within = plans.within(every.predicted_peak)
        assert within.predicted_peak <= every.predicted_peak and within.predicted_extra <= every.predicted_extra
        whole = plan_checkpointing(network, every.predicted_peak, batch=BATCH)
        assert whole.predicted_peak <= every.predicted_peak and whole.predicted_extra <= every.predicted_extra


def test_a_budget_below_all_of_them_says_the_smallest():
    _, plans = plans_of("unet")
    with pytest.raises(BudgetError) as error:
        plans.within(1)
    assert error.value.smallest == min(plan.predicted_peak for plan in plans.every_block())
    assert plans.within(error.value.smallest).predicted_peak == error.value.smallest
