"""Plans by counting what the step holds: the smallest peak there is, nothing that is not needed, the front of both."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from deep500.errors import BudgetError, PlanError
from deep500.networks import Network, add_loss, create
from deep500.transformations.recomputation import find_regions, plan_front, plan_network
from deep500.transformations.recomputation.counting import Counted, Counter
from deep500.transformations.recomputation.planning import counted_planners
from tests.transformations.recomputation.test_rewriting import NETWORKS


@pytest.mark.parametrize("name", NETWORKS)
def test_the_smallest_peak_is_that_of_all_choices(name: str) -> None:
    """Against every subset of the regions; a chain, whose stretches nest anew, may hold less. The error names it."""
    make, batch = NETWORKS[name]
    net = make()
    counter = Counter(find_regions(net, batch * 4))
    assert 3 <= len(counter.names) <= 8
    every = [counter.count(c, "") for n in range(len(counter.names) + 1) for c in combinations(counter.names, n)]
    smallest = min(counted.peak for counted in every)
    assert counter.smallest().peak == smallest
    with pytest.raises(BudgetError, match="expected at least") as caught:
        plan_network(net, 1, batch * 4)
    least = caught.value.smallest
    assert least is not None and least <= smallest
    assert plan_network(net, least, batch * 4).predicted_peak == least
    with pytest.raises(BudgetError):
        plan_network(net, least - 1, batch * 4)
    if smallest < counter.full:
        plan = plan_network(net, smallest, batch * 4)
        assert plan.predicted_peak <= smallest
        assert 0 < plan.predicted_extra <= min(counted.extra for counted in every if counted.peak == smallest)


def test_chains_repeat_less_than_trees_where_stretches_nest_anew() -> None:
    """Without a backend, too: stages with counted bytes are planned as measured ones are."""
    net = add_loss(create("resnet", depth=20))
    regions = find_regions(net, 32)
    counter = Counter(regions)
    tree, _ = counted_planners(net, 32, regions, "none")
    limit = int(0.5 * counter.full)
    plan, nested = plan_network(net, limit, 32), tree.within(limit)
    assert plan.predicted_peak <= limit and plan.predicted_extra < 0.9 * nested.predicted_extra
    assert (plan.predicted_peak, plan.predicted_extra) == counter.step([region.values for region in plan.regions])
    with pytest.raises(BudgetError):
        tree.within(int(0.35 * counter.full))
    assert plan_network(net, 0.35, 32).predicted_peak <= 0.35 * counter.full


def test_no_region_of_a_plan_could_be_left_out() -> None:
    net = add_loss(create("resnet", depth=20))
    counter = Counter(find_regions(net, 16))
    for share in (0.9, 0.7, 0.5):
        limit = int(share * counter.full)
        choice = counter.within(limit)
        for name in choice.names:
            fewer = counter.count(choice.names - {name}, "")
            assert fewer.peak > limit or fewer.extra >= choice.extra


def test_the_front_falls_in_time_as_it_rises_in_memory() -> None:
    net = add_loss(create("resnet", depth=20))
    front = plan_front(net, 16, points=5)
    peaks, extras = [p.predicted_peak for p in front], [p.predicted_extra for p in front]
    assert len(front) >= 3
    assert peaks == sorted(set(peaks)) and extras == sorted(set(extras), reverse=True)
    assert extras[-1] == 0 and not front[-1].regions
    with pytest.raises(BudgetError):
        plan_network(net, peaks[0] - 1, 16)
    with pytest.raises(PlanError, match="at least 2"):
        plan_front(net, 16, points=1)


def test_a_network_of_one_operator_is_refused() -> None:
    net = Network("one")
    net.add_input("x", ("N", 4))
    net.add_parameter("w", np.ones((4, 1), "float32"))
    net.add_node("Einsum", ["x", "w"], ["loss"], equation="ij,jk->")
    net.add_output("loss")
    with pytest.raises(PlanError, match=r"1 operator.*expected several"):
        plan_network(net, 0.5, 2)


def test_a_model_that_counts_too_little_is_a_budget_that_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for less and less, down to nothing: the error is that of the limit, not of a budget below zero."""
    make, batch = next(iter(NETWORKS.values()))
    counter = Counter(find_regions(make(), batch * 4))
    held = 10 * counter.full
    monkeypatch.setattr(counter, "count", lambda names, method: Counted(frozenset(names), held, 1.0, method))
    with pytest.raises(BudgetError, match=f"expected at least {held}"):
        counter.within(int(0.95 * counter.full))
