"""Plans for chains against trying all of them, against closed forms, and against an independent implementation."""

from __future__ import annotations

import math

import pytest

from deep500.errors import BudgetError, PlanError
from deep500.transformations.recomputation.chain import (
    ChainStage,
    Keep,
    Mode,
    Recompute,
    keep_all,
    optimal_chain,
    simulate_chain,
    smallest_chain,
)
from deep500.transformations.workshop.recomputation.baselines import every_stage, segmented
from deep500.transformations.workshop.recomputation.revolve import revolve, revolve_steps
from tests.transformations.recomputation.chains import all_plans, random_chain, run, unit_chain

UNIFORM = [(steps, slots) for slots in range(1, 9) for steps in range(slots + 1, 61)]
MIXED = [(steps, slots) for slots in range(1, 8) for steps in range(slots + 1, 31)]


def test_simulator_by_hand() -> None:
    chain = [
        ChainStage("a", output=3, modes=(Mode(10, 20, saved=9, forward_overhead=2, backward_overhead=1),), forward=8),
        ChainStage("b", output=5, modes=(Mode(30, 40, saved=7, forward_overhead=1, backward_overhead=4),), forward=25),
    ]
    assert simulate_chain(chain, (Keep(0), Keep(1))) == (9 + 7 + 5 + 4, 100, 0)
    again = (Recompute(0, 0, (Keep(0),)), Keep(1))
    assert simulate_chain(chain, again) == (3 + 7 + 5 + 4, 108, 8)
    both = (Recompute(0, 1, (Keep(0), Keep(1))),)  # forward over both: 3 + 5 live at once; nothing is gained later
    assert simulate_chain(chain, both) == (25, 133, 33)


@pytest.mark.parametrize("modes", [1, 2])
def test_optimum_equals_trying_all(modes: int) -> None:
    refused = 0
    for seed in range(10):
        chain = random_chain(seed, 4, modes)
        outcomes = [simulate_chain(chain, plan) for plan in all_plans(chain, 0, 3)]
        smallest, full = min(o.peak for o in outcomes), simulate_chain(chain, keep_all(chain)).peak
        assert smallest_chain(chain).outcome.peak == smallest
        for budget in {smallest - 1, smallest, int(0.6 * full), int(0.8 * full), full}:
            want = min((o.time for o in outcomes if o.peak <= budget), default=None)
            if want is None:
                refused += 1
                with pytest.raises(BudgetError) as caught:
                    optimal_chain(chain, budget, slots=10**9)
                assert caught.value.smallest == smallest
            else:
                best = optimal_chain(chain, budget, slots=10**9)
                assert (best.outcome.time, best.method) == (want, "optimal")
                assert best.outcome.peak <= budget
    assert refused >= 10


def test_the_first_sweep_runs_before_there_is_a_gradient() -> None:
    """Its transients do not stand on the gradient of the last output, here 50 bytes."""
    chain = [
        ChainStage("a", output=2, modes=(Mode(1, 1, saved=400),), forward=1, overhead=410),
        ChainStage("b", output=50, modes=(Mode(1, 1, saved=50),), forward=1),
    ]
    plan = (Recompute(0, 0, (Keep(0),)), Keep(1))
    assert optimal_chain(chain, 412, slots=412) == (plan, (412, 5, 1), "optimal")
    assert smallest_chain(chain).outcome.peak == 412


def test_rounded_plans_stay_within_the_budget() -> None:
    """Rounding up costs time, never memory; where it leaves nothing, the smallest plan is taken, and named."""
    named = 0
    for seed in range(12):
        chain = random_chain(seed, 12)
        smallest = smallest_chain(chain).outcome
        exact = optimal_chain(chain, smallest.peak + 2, slots=10**9).outcome
        for slots in (8, 20, 60):
            rough = optimal_chain(chain, smallest.peak + 2, slots=slots)
            assert rough.outcome.peak <= smallest.peak + 2
            assert rough.outcome.time >= exact.time
            named += rough.method == "smallest peak"
    assert named > 0


def test_rivals_are_never_better() -> None:
    worse = 0
    for seed in range(5):
        chain = random_chain(seed, 12)
        for rival in (*(segmented(chain, count) for count in range(1, 13)), every_stage(chain)):
            best = optimal_chain(chain, rival.outcome.peak, slots=10**9).outcome
            assert best.time <= rival.outcome.time
            worse += best.time < rival.outcome.time
    assert worse > 20
    assert [segmented(random_chain(0, n)).method for n in (4, 6, 7, 20)] == [f"{k} segments" for k in (2, 2, 3, 4)]


def test_revolve_equals_the_closed_form() -> None:
    """All 444 cases are planned, carried out and counted."""
    assert len(UNIFORM) == 444
    for steps, slots in UNIFORM:
        forward, order = run(revolve(steps, slots), slots)
        assert order == list(range(steps))[::-1]
        assert forward == revolve_steps(steps, slots)
    for slots, repeats in [
        (3, 4),
        (5, 2),
        (8, 3),
    ]:  # beta(s, r) steps: every one runs at most r times before it records
        steps = math.comb(slots + repeats, slots)
        assert revolve_steps(steps, slots) == steps + repeats * steps - math.comb(slots + repeats, slots + 1)


def test_mixed_by_published_counts() -> None:
    """Maddison (2023): 38 forward steps for 20 steps and 5 slots, where Revolve takes 53."""
    for steps, slots, want in [(20, 5, 38)]:
        plan = optimal_chain(unit_chain(steps), slots + 1)
        assert (plan.outcome.time, plan.outcome.peak) == (want, slots + 1)


@pytest.mark.filterwarnings("ignore:Numba not available:RuntimeWarning")  # the oracle's own, and only about speed
def test_uniform_counts_equal_checkpoint_schedules() -> None:
    """The counts of an independent implementation: 444 of Revolve, 182 of the mixed schedule."""
    oracle = pytest.importorskip("checkpoint_schedules", reason="pip install 'deep500[test]': an oracle for tests")
    assert len(MIXED) == 182
    for steps, slots in UNIFORM:
        assert _forward(oracle.Revolve(steps, slots)) == revolve_steps(steps, slots)
    for steps, slots in MIXED:
        schedule = oracle.MixedCheckpointSchedule(steps, slots, storage=oracle.StorageType.RAM)
        assert _forward(schedule) == optimal_chain(unit_chain(steps), slots + 1).outcome.time


def _forward(schedule: object) -> int:
    """Steps that a schedule of checkpoint-schedules runs forward until its reversal ends."""
    total = 0
    for action in schedule:  # type: ignore[attr-defined]
        if type(action).__name__ == "Forward":
            total += action.n1 - action.n0
        if type(action).__name__ == "EndReverse":
            return total
    raise AssertionError("the schedule did not end")


def test_bad_chains() -> None:
    chain = random_chain(0, 3)
    with pytest.raises(PlanError, match="in order, each once"):
        simulate_chain(chain, (Keep(0), Keep(2)))
    with pytest.raises(PlanError, match="ends before stage 2"):
        simulate_chain(chain, (Keep(0), Keep(1)))
    with pytest.raises(PlanError, match="got no mode"):
        ChainStage("a", 1, (), 1)
    with pytest.raises(PlanError, match="no negative number"):
        ChainStage("a", -1, (Mode(1, 1, 1),), 1)
    with pytest.raises(PlanError, match="expected one of each"):
        optimal_chain([], 0.5)
    with pytest.raises(PlanError, match="expected 1 to 3"):
        segmented(chain, 4)
    with pytest.raises(PlanError, match="expected one of each"):
        revolve(3, 0)
