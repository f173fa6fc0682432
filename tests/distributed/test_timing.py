"""Clocks of ranks agree within the bound that they state; times of ranks are told apart, and pooled only if alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deep500.distributed import Serial, Threads
from deep500.distributed.clocks import Reading, fit_clock, synchronise
from deep500.distributed.timing import parallel
from deep500.errors import InputError
from deep500.measure.launches import DIFFER
from deep500.measure.plan import Budget, Plan
from tests.distributed import timing_cases as cases

SKEW = cases.SKEW
TRUE_IMBALANCE = 1.0 / (0.8 + 0.2 / 4) - 1


def check_offsets(results: list[dict[str, Any]]) -> None:
    for rank, result in enumerate(results):
        assert abs(result["offset"] - rank * SKEW) <= result["error"] and result["drift"] == 0.0
        assert result["payload"] == 0 and result["control"] > 0
    assert results[0]["error"] == 0 and all(result["error"] > 0 for result in results[1:])


def test_offsets_are_found_within_their_bound() -> None:
    check_offsets(Threads(4).run(cases.offsets))


@pytest.mark.mpi
def test_offsets_are_found_within_their_bound_between_processes(on_ranks: Callable[..., list[Any]]) -> None:
    check_offsets(on_ranks(cases.offsets, 4))


def test_a_clock_that_drifts_gets_a_line() -> None:
    """In a tenth of a second such a clock gains milliseconds: more than a quick exchange takes on a busy machine."""
    drift = 3e-2
    results = Threads(3).run(lambda comm: cases.offsets(comm, drift))
    for rank, result in enumerate(results[1:], 1):
        assert abs(result["drift"] - rank * drift) < 0.3 * rank * drift


def test_only_the_quickest_exchange_of_a_round_counts_and_its_bound_is_kept() -> None:
    clock = fit_clock([Reading(0, 5000, 5000), Reading(1e6, 130, 30), Reading(2e6, 90, 40)])
    assert (clock.offset, clock.error, clock.drift) == (130, 30, 0.0)
    line = fit_clock([Reading(k * 1e9, 1000.0 * k, 1.0) for k in range(2, 6)])
    assert line.drift == pytest.approx(1e-6) and line.error == pytest.approx(1.0, abs=1e-3)
    for when in (0.0, 5e9):
        assert line.to_local(line.to_global(when)) == pytest.approx(when, abs=1e-3)
        assert line.to_global(when) == pytest.approx(when - 1e-6 * when, abs=1e-2)
    with pytest.raises(InputError, match="no readings"):
        fit_clock([])
    with pytest.raises(InputError, match="got 0 rounds"):
        synchronise(Serial(), rounds=0)


def check_skewed(results: list[dict[str, Any]]) -> None:
    """Row 14 of the figures to beat, on clocks that tell nothing but the truth."""
    assert all(result == {**results[0], "payload": 0} for result in results)  # every rank knows the same
    assert results[0]["payload"] == 0
    first = results[0]
    for offset, error, truth in zip(first["offsets"], first["errors"], [0, 0, 0, SKEW], strict=True):
        assert abs(offset - truth) <= error
    assert first["rank_p"] < DIFFER and "ranks differ" in first["text"] and first["steps"] == [60, 4]


def test_a_skewed_rank_is_found() -> None:
    results = Threads(4).run(cases.skewed)
    check_skewed(results)
    # In one process only: four processes on fewer cores wait for each other, and the times are the machine's then.
    assert abs(results[0]["imbalance"] - TRUE_IMBALANCE) < 0.05
    assert results[0]["seconds"] == pytest.approx(0.001, rel=0.05)


@pytest.mark.mpi
def test_a_skewed_rank_is_found_between_processes(on_ranks: Callable[..., list[Any]]) -> None:
    check_skewed(on_ranks(cases.skewed, 4))


def test_ranks_that_differ_are_not_pooled_and_others_are() -> None:
    refused = Threads(4).run(cases.skewed, 0.0008, 0.0002, "barrier", "pooled")
    assert all("expected ranks that take equally long" in result["refused"] for result in refused)
    few = Threads(2).run(cases.skewed, 0.0008, 0.0, "none", "pooled", 4)[0]
    assert "too few independent steps to tell" in few["refused"]
    pooled = Threads(4).run(cases.skewed, 0.0008, 0.0, "none", "pooled")[0]
    assert pooled["rank_p"] > DIFFER and "median of 240" in pooled["text"]
    middle = Threads(4).run(cases.skewed, 0.0008, 0.0002, "none", "median")[0]
    assert middle["seconds"] == pytest.approx(0.0008, rel=0.05)


def test_the_share_of_communication_is_who_waits() -> None:
    results = Threads(2).run(cases.exchanging)
    assert results[0] == results[1]
    first, second = results[0]["communicating"]
    assert results[0]["sent"] == (800.0, 800.0)
    assert first < 0.7 < second <= 1.0


class Overrunning(cases.Virtual):
    """One step takes much longer than the others."""

    steps = 0

    def step(self) -> None:
        """The thirtieth is the long one."""
        self.steps += 1
        self.work(0.005 if self.steps == 30 else 0.0002)


def test_windows_that_begin_late_count_for_nothing() -> None:
    """After the long step the next ones are late until the schedule has been caught up with."""
    clock = Overrunning()
    plan = Plan(budget=Budget(min_n=60, max_n=60, max_s=30.0, min_neff=5))
    measured = parallel(clock.step, plan, Serial(), "window", now=clock.now)
    late = [number for number, missed in enumerate(measured.missed) if missed]
    assert late and late[0] == 30 and late == list(range(30, 30 + len(late))) and len(late) < 15
    assert measured.seconds[29, 0] > 0.0049 and not measured.missed[29]
    assert len(measured.kept) == 60 - len(late) - measured.steady.cut
    assert f"{len(late)} of 60 windows missed" in str(measured)


def test_no_result_where_most_windows_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = cases.Virtual()
    monkeypatch.setattr("deep500.distributed.timing.SPIN", -1.0)  # there are always more windows than room for them

    def step() -> None:
        clock.work(0.002)

    with pytest.raises(InputError, match="of 30 windows missed; expected ranks that are there in time"):
        parallel(step, Plan(budget=Budget(max_n=30, max_s=30.0)), Serial(), "window", now=clock.now)


def test_words_and_transports_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InputError, match="got sync='windows'; expected one of window, barrier, none"):
        parallel(lambda: None, sync="windows", comm=Serial())
    with pytest.raises(InputError, match="got summary='mean'"):
        parallel(lambda: None, summary="mean", comm=Serial())
    with pytest.raises(InputError, match="these take turns"):
        Threads(2).run(lambda comm: parallel(lambda: None, comm=comm, sync="window"))
