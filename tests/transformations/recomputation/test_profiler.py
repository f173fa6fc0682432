"""The profiler against running again without one checkpoint; the simulator against sums done by hand."""

from __future__ import annotations

import pytest

from deep500.errors import PlanError
from deep500.transformations.recomputation.profiler import Profiler, profile
from deep500.transformations.recomputation.region_tree import StepEvent, TreeRegion, locations, simulate
from tests.transformations.recomputation.trees import mismatches, random_tree

DEEP = TreeRegion(
    "root",
    (1, 2, 4),
    (
        TreeRegion("a", (8, 16), (TreeRegion("b", (32,), snapshot=3, time=5),), snapshot=7, time=10),
        TreeRegion("c", (64,), snapshot=9, time=100),
    ),
    time=1000,
)
# recomputed, peak, peak where snapshots are kept, extra time
BY_HAND = [
    ((), 127, 127, 0),
    (("a",), 1 + 7 + 2 + 64 + 4, 1 + 7 + 2 + 64 + 4, 15),
    (("b",), 1 + 8 + 3 + 16 + 2 + 64 + 4, 1 + 8 + 3 + 16 + 2 + 64 + 4, 5),
    (("c",), 1 + 56 + 2 + 64, 1 + 56 + 2 + 9 + 64, 100),
    (("a", "c"), 1 + 7 + 2 + 64, 1 + 7 + 2 + 9 + 64, 115),
    (("a", "b", "c"), 1 + 7 + 2 + 64, 1 + 7 + 2 + 9 + 64, 120),
]


@pytest.mark.parametrize(("plan", "peak", "kept", "extra"), BY_HAND)
def test_simulator_by_hand(plan: tuple[str, ...], peak: int, kept: int, extra: int) -> None:
    assert simulate(DEEP, plan) == (peak, 1115 + extra, extra)
    assert simulate(DEEP, plan, snapshot_kept=True) == (kept, 1115 + extra, extra)


@pytest.mark.parametrize("snapshot_kept", [False, True])
@pytest.mark.parametrize("transient", [False, True])
@pytest.mark.parametrize("places", [None, 6])
def test_profile_equals_running_again(snapshot_kept: bool, transient: bool, places: int | None) -> None:
    """All locations of 60 random trees; tests/benchmarks/recomputation has more of them."""
    mismatched = [
        mismatches(random_tree(seed, 4 + seed % 27, places=places, transient=transient), snapshot_kept)
        for seed in range(60)
    ]
    assert sum(total for total, _ in mismatched) > (300 if places else 900)
    assert sum(wrong for _, wrong in mismatched) == 0


def test_profile_of_a_partial_plan() -> None:
    """Profile again once some are off: what is left is predicted as exactly."""
    for seed in range(20):
        root = random_tree(seed, 15, transient=True)
        places = set(list(locations(root))[::2])
        base = simulate(root, places)
        for saving in profile(root, places):
            again = simulate(root, places - {saving.place})
            assert (saving.time, saving.memory) == (base.time - again.time, again.peak - base.peak)


def test_sum_of_changes_is_no_prediction() -> None:
    """Why plans are simulated: over several locations the changes of the peak do not add up."""
    wrong = 0
    for seed in range(30):
        root = random_tree(seed, 20)
        places = set(locations(root))
        off = set(list(locations(root))[::2])
        memory = {s.place: s.memory for s in profile(root, places)}
        change = simulate(root, places - off).peak - simulate(root, places).peak
        wrong += change != sum(memory[place] for place in off)
    assert wrong > 15


def test_events_must_nest() -> None:
    profiler = Profiler()
    with pytest.raises(PlanError, match="no complete step"):
        profiler.savings()
    profiler(StepEvent("snp_write", "a", 0, 0, 0))
    with pytest.raises(PlanError, match="expected them to nest"):
        profiler(StepEvent("begin_adv", "b", 0, 0, 0))
    with pytest.raises(PlanError, match="expected one of those"):
        profiler(StepEvent("coffee", "b", 0, 0, 0))


def test_bad_trees() -> None:
    with pytest.raises(PlanError, match="2 stretches of its own tape and 0 children"):
        TreeRegion("a", (1, 2))
    with pytest.raises(PlanError, match="none negative"):
        TreeRegion("a", (-1,))
    with pytest.raises(PlanError, match="unique names"):
        locations(TreeRegion("root", (0, 0, 0), (TreeRegion("a"), TreeRegion("a"))))
    with pytest.raises(PlanError, match="did you mean 'c'"):
        simulate(DEEP, ["cc"])


def test_transients_by_hand() -> None:
    """Running without recording and starting a reversal need more for a moment, the former only where recomputed."""
    root = TreeRegion(
        "root", (10, 5), (TreeRegion("a", (20,), snapshot=2, time=1, advance=100, overhead=30),), overhead=7
    )
    assert simulate(root, []).peak == 10 + 20 + 30
    assert simulate(root, ["a"]).peak == 10 + 2 + 100
    assert profile(root, ["a"]) == [("a", 1, 60 - 112, 1)]


def test_a_peak_of_recording_stays() -> None:
    """A real run may need more for a moment while it records; that is there with and without the later checkpoint."""
    profiler = Profiler()
    for event in (
        StepEvent("snp_write", "a", 10, 100, 0.0),
        StepEvent("begin_adv", "a", 12, 12, 1.0),
        StepEvent("end_adv", "a", 12, 40, 3.0),
        StepEvent("turn", "root", 15, 15, 4.0),
        StepEvent("snp_read", "a", 12, 15, 5.0),
        StepEvent("begin_rev", "a", 10, 12, 5.5),
        StepEvent("turn", "a", 30, 30, 8.0),
        StepEvent("end_rev", "a", 10, 30, 9.0),
        StepEvent("end_rev", "root", 0, 10, 10.0),
    ):
        profiler(event)
    assert (profiler.peak, profiler.savings()) == (100, [("a", 3.5, 0, 1)])
