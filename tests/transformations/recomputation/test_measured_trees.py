"""Trees of measured regions: what they predict is what the allocator counts, skip connections or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import BudgetError, PlanError
from deep500.networks import Network, add_loss, create
from deep500.networks.execution.inputs import make_inputs
from deep500.transformations.recomputation import ChainStage, CheckpointingPlan, Mode, NetworkRegions, find_regions
from deep500.transformations.recomputation.chain import innermost_regions
from deep500.transformations.recomputation.measured_trees import as_tree_plan, plan_tree, staged_regions
from deep500.transformations.recomputation.region_tree import simulate
from deep500.transformations.workshop.recomputation.measured_trees import placement_of, segment_plan
from tests.conftest import load_backend

BATCH = 16
CASES = {
    "unet": ({"width": 4, "levels": 2, "shape": (3, 16, 16)}, 3),
    "nested_resnet": ({"width": 2, "counts": (2, 2, 3), "shape": (3, 16, 16)}, 1),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Any, Network, dict[str, np.ndarray], NetworkRegions]:
    """PyTorch, a network, its inputs, and its regions as measured."""
    backend, (options, crossing) = load_backend("pytorch"), CASES[request.param]
    network = add_loss(create(request.param, **options))
    inputs, regions = make_inputs(network, BATCH), find_regions(network, BATCH, crossing=crossing)
    stages = backend.from_model(network).measure_stages(
        [region.values for region in innermost_regions(regions)], inputs, passes=1
    )
    return backend, network, inputs, staged_regions(regions, stages)


def peak_of(case: Any, plan: CheckpointingPlan | None) -> int:
    backend, network, inputs, _ = case
    executor = backend.from_model(network, recompute="explicit")
    executor.set_checkpointing(plan)
    executor.inference_and_backprop(inputs)
    return executor.step_memory(inputs)


def test_predicted_peaks_are_the_allocators(case: Any) -> None:
    """Within 0.5 %, for no plan, plans for budgets, every region and segments; and never above the budget but by what
    the network hands out."""
    _, network, _, regions = case
    full = simulate(regions.root, ()).peak
    assert peak_of(case, None) == pytest.approx(full, rel=0.005)
    outputs = sum(regions.step.sizes[name] for name in network.outputs)
    plans = [plan_tree(network, BATCH, regions, share, "pytorch") for share in (0.9, 0.8, 0.7)]
    for plan in plans:
        measured = peak_of(case, plan)
        assert measured == pytest.approx(plan.predicted_peak, rel=0.005) and measured <= plan.budget + outputs
        assert len(plan.regions) > 0 and plan.time_unit == "s" and plan.backend == "pytorch"
    every = placement_of(regions, [region.name for region in regions.innermost()], "every region")
    others = [as_tree_plan(network, BATCH, regions, every, "pytorch"), segment_plan(network, BATCH, regions, "pytorch")]
    for plan in others:
        assert peak_of(case, plan) == pytest.approx(plan.predicted_peak, rel=0.005)
        assert plan.predicted_extra > 0


def test_what_is_not_there() -> None:
    network = add_loss(create("mixed_resnet", width=2, blocks=(1, 1, 1, 1), shape=(3, 8, 8)))
    regions = find_regions(network, batch=4)
    stage = ChainStage("", output=10, modes=(Mode(0.1, 0.2, saved=100),), forward=0.1, gradient=7)
    with pytest.raises(PlanError, match="got 5 measured stages; expected 6"):
        staged_regions(regions, [stage] * 5)
    twin = staged_regions(regions, [stage] * 6)
    assert (twin.root.full_tape, twin.root.step_time) == (600, pytest.approx(1.8))
    assert all((leaf.snapshot, leaf.overhead) == (10, 7) for leaf in twin.innermost())
    with pytest.raises(BudgetError, match="expected at least"):
        plan_tree(network, 4, twin, 20, "pytorch")
