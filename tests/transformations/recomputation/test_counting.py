"""Plans by counting what the step holds: the smallest peak there is, nothing that is not needed, the front of both."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from deep500.errors import BudgetError, PlanError
from deep500.networks import Network, add_loss, create
from deep500.transformations.recomputation import find_regions, plan_front, plan_network
from deep500.transformations.recomputation.counting import Counter
from tests.transformations.recomputation.test_rewriting import NETWORKS


@pytest.mark.parametrize("name", NETWORKS)
def test_the_smallest_peak_is_that_of_all_choices(name: str) -> None:
    """Against every subset of the regions; the error names it, and a plan with it is found."""
    make, batch = NETWORKS[name]
    net = make()
    counter = Counter(find_regions(net, batch * 4))
    assert 3 <= len(counter.names) <= 8
    every = [counter.count(c, "") for n in range(len(counter.names) + 1) for c in combinations(counter.names, n)]
    smallest = min(counted.peak for counted in every)
    assert counter.smallest().peak == smallest
    with pytest.raises(BudgetError, match="expected at least") as caught:
        plan_network(net, smallest - 1, batch * 4)
    assert caught.value.smallest == smallest
    if smallest < counter.full:
        plan = plan_network(net, smallest, batch * 4)
        assert plan.predicted_peak == smallest
        assert plan.predicted_extra == min(counted.extra for counted in every if counted.peak == smallest) > 0


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
