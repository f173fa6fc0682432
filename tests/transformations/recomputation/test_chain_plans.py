"""Networks as chains: what the dynamic programme chooses is a plan that every backend can run."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import BudgetError, PlanError
from deep500.frameworks.reference import Executor
from deep500.networks import add_loss, create
from deep500.transformations.recomputation import find_regions, load_plan
from deep500.transformations.recomputation.chain import (
    Keep,
    Recompute,
    as_plan,
    innermost_regions,
    optimal_chain,
    plan_chain,
    simulate_chain,
    smallest_chain,
)
from tests.tolerances import assert_close
from tests.transformations.recomputation.chains import random_chain
from tests.transformations.recomputation.test_rewriting import inputs_of

NETWORK, BATCH = add_loss(create("resnet", depth=14, shape=(3, 8, 8))), 2
FOUND = find_regions(NETWORK, BATCH)
LINKS = innermost_regions(FOUND)


def test_links_hold_the_forward_pass_once_in_order() -> None:
    values = [value for region in LINKS for value in region.values]
    assert values == [value for node in FOUND.step.forward for value in node.writes]
    assert len(LINKS) > 6
    assert [region.location for region in LINKS].count("layer1.0.conv1:layer1.0.relu2") == 2


@pytest.mark.parametrize("seed", range(4))
def test_plans_of_chains_run_on_the_reference_to_the_bit(seed: int, tmp_path: object) -> None:
    chain = random_chain(seed, len(LINKS))
    smallest = smallest_chain(chain).outcome.peak
    plan = plan_chain(NETWORK, BATCH, FOUND, chain, smallest, "none", slots=smallest)
    assert plan.predicted_peak <= plan.budget == smallest
    placement = optimal_chain(chain, smallest, slots=smallest)
    assert (plan.predicted_time, plan.predicted_extra) == placement.outcome[1:]
    plan = load_plan(plan.save(f"{tmp_path}/plan.json"))
    inputs = inputs_of(NETWORK, BATCH)
    free, planned = Executor(NETWORK), Executor(NETWORK)
    planned.set_checkpointing(plan)
    want, got = (executor.inference_and_backprop(inputs) for executor in (free, planned))
    names = [f"{name}.grad" for name in free.network.get_params()]
    want.update(zip(names, free.network.fetch_tensors(names), strict=True))
    got.update(zip(names, planned.network.fetch_tensors(names), strict=True))
    for name, value in {**want, **free.network.state()}.items():
        assert_close({**got, **planned.network.state()}[name], value, "exact", name)


def test_stretches_become_regions_inside_regions() -> None:
    chain = random_chain(0, len(LINKS))
    keep = tuple(Keep(k) for k in range(len(LINKS)))
    plan = (
        Recompute(0, 3, (Recompute(0, 1, keep[:2]), *keep[2:4])),
        *keep[4:-1],
        Recompute(len(LINKS) - 1, len(LINKS) - 1, keep[-1:]),
    )
    placement = smallest_chain(chain)._replace(plan=plan, outcome=simulate_chain(chain, plan))
    regions = as_plan(NETWORK, BATCH, FOUND, placement, 1, "none").regions
    sizes = [4, 2, 1]
    assert [len(region.values) for region in regions] == [
        sum(len(region.values) for region in (LINKS[:size] if size > 1 else LINKS[-1:])) for size in sizes
    ]
    assert set(regions[1].values) < set(regions[0].values)
    assert regions[2].name == LINKS[-1].name
    assert regions[0].name == f"{LINKS[0].values[0]}..{LINKS[3].values[-1]}"


def test_what_does_not_fit() -> None:
    chain = random_chain(0, len(LINKS))
    smallest = smallest_chain(chain).outcome.peak
    with pytest.raises(BudgetError, match=f"expected at least {smallest} ") as caught:
        plan_chain(NETWORK, BATCH, FOUND, chain, smallest - 1, "none")
    assert caught.value.smallest == smallest
    with pytest.raises(PlanError, match=f"expected the last of {len(LINKS)} stages"):
        plan_chain(NETWORK, BATCH, FOUND, chain[:-1], 1.0, "none")
    assert np.isfinite(simulate_chain(chain, smallest_chain(chain).plan).time)
