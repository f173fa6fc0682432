"""Placements on nested regions against trying every one; the baselines never beat them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deep500.errors import BudgetError, PlanError
from deep500.transformations.recomputation.placement import optimal_placement, smallest_placement
from deep500.transformations.recomputation.region_tree import Region, simulate
from deep500.transformations.workshop.recomputation.baselines import everything, greedy, pareto
from tests.transformations.recomputation.trees import best_by_trying, random_tree, subsets


@pytest.mark.parametrize("snapshot_kept", [False, True])
@pytest.mark.parametrize(("places", "transient"), [(None, False), (None, True), (4, True)])
def test_optimum_equals_trying_all(snapshot_kept: bool, places: int | None, transient: bool) -> None:
    """The more trees are in tests/benchmarks/recomputation."""
    infeasible = 0
    for seed in range(14, 22):
        root = random_tree(seed, 5 + seed % 5, places=places, transient=transient)
        full = simulate(root, ()).peak
        smallest = min(simulate(root, plan, snapshot_kept=snapshot_kept).peak for plan in subsets(root))
        assert smallest_placement(root, snapshot_kept=snapshot_kept).outcome.peak == smallest
        for budget in (int(0.55 * full), int(0.8 * full), smallest):
            want = best_by_trying(root, budget, snapshot_kept)
            if want is None:
                infeasible += 1
                with pytest.raises(BudgetError) as caught:
                    optimal_placement(root, budget, snapshot_kept=snapshot_kept)
                assert caught.value.smallest == smallest
            else:
                placement = optimal_placement(root, budget, snapshot_kept=snapshot_kept)
                assert placement.outcome.extra == want
                assert placement.outcome == simulate(root, placement.recomputed, snapshot_kept=snapshot_kept)
                assert placement.outcome.peak <= budget
    assert infeasible > 0


def test_bytes_beyond_the_tolerance_of_the_solver() -> None:
    """One byte of a gigabyte decides: HiGHS's tolerance would let the cheaper plan through."""
    big = 10**9
    root = Region("root", (0, 0, 0), (Region("a", (big,), time=2), Region("b", (big + 1,), time=1)))
    root = replace(root, own_tape=(0, 0, 1))
    assert optimal_placement(root, big + 2).recomputed == ("a",)
    assert optimal_placement(root, big + 1).recomputed == ("a", "b")


def test_greedy_is_never_better() -> None:
    worse = 0
    for seed in range(12):
        root = random_tree(seed, 12)
        for reprofile in (False, True):
            budget = int(0.7 * simulate(root, ()).peak)
            try:
                rival = greedy(root, budget, reprofile=reprofile)
            except BudgetError as error:
                assert error.smallest > budget
                continue
            assert rival.outcome.peak <= budget
            best = optimal_placement(root, budget).outcome.extra
            assert best <= rival.outcome.extra <= everything(root).outcome.extra
            worse += best < rival.outcome.extra
    assert worse > 5


def test_front_falls() -> None:
    root = random_tree(3, 12)
    front = pareto(root, 7)
    peaks, extras = zip(*((p.outcome.peak, p.outcome.extra) for p in front), strict=True)
    assert len(front) > 3 and extras[-1] == 0
    assert list(peaks) == sorted(set(peaks)) and list(extras) == sorted(set(extras), reverse=True)
    with pytest.raises(PlanError, match="at least 2"):
        pareto(root, 1)


@pytest.mark.parametrize("budget", [0, -5, -0.5, 0.0, 1.5, float("nan"), True, "half"])
def test_bad_budgets(budget: object) -> None:
    with pytest.raises(PlanError, match="expected bytes"):
        optimal_placement(random_tree(0, 4), budget)  # type: ignore[arg-type]


def test_no_region_at_all() -> None:
    """A network with one operator: nothing to place, and the error names what it needs."""
    root = Region("root", (10,))
    assert optimal_placement(root, 1.0).recomputed == ()
    with pytest.raises(BudgetError, match="at least 10"):
        optimal_placement(root, 0.5)
