"""Spinning and pausing inside MPI: how it is decided, and that a pausing rank leaves its core to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deep500.distributed.transports import waiting
from deep500.distributed.transports.waiting import CROWDED, Waiting
from tests.distributed import transport_cases


class Counts:
    """What the kernel would say, as the test has it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.busy, self.switches = 0.0, 0.0, 0
        monkeypatch.setattr(Waiting, "_counts", lambda _: (self.now, self.busy, self.switches))
        monkeypatch.setattr(waiting.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(waiting.time, "sleep", self.sleep)
        self.naps = 0

    def sleep(self, seconds: float) -> None:
        self.naps += 1
        self.now += seconds

    def passes(self, seconds: float, busy: float, switches: float) -> None:
        self.now, self.busy = self.now + seconds, self.busy + busy
        self.switches += round(switches)


def waited(way: Waiting) -> bool:
    """Whether one wait used the library's own; the request is done when it is asked for the fifth time."""
    calls, asked = [], iter([False] * 4 + [True])
    way.until(lambda: calls.append("wait"), lambda: next(asked))
    return calls == ["wait"]


def test_the_switches_that_the_kernel_counts_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(monkeypatch)
    way = Waiting(ranks=2, cores=2)
    assert waited(way)
    counts.passes(1.0, 1.0, 0.5 * CROWDED)
    assert waited(way), "others wanted the core now and then only"
    counts.passes(1.0, 0.5, 2 * 0.5 * CROWDED)
    assert not waited(way), "half of the time was another's"
    counts.passes(1.0, 0.001, 0)
    assert not waited(way), "a rank that slept has learnt nothing"
    counts.passes(0.01, 0.01, 0)
    assert not waited(way), "too soon to look again"
    counts.passes(1.0, 0.5, 0)
    assert waited(way), "the others are gone"


def test_it_asks_without_a_pause_first_and_rests_then(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(monkeypatch)
    way = Waiting(ranks=3, cores=2)
    assert not waited(way) and counts.naps == 0, "time stood still: nobody had waited long"
    ticks = iter([False] * 4 + [True])

    def asked() -> bool:
        counts.now += 0.4 * waiting.SPIN
        return next(ticks)

    way.until(lambda: pytest.fail("it must not spin"), asked)
    assert counts.naps == 2
    way.always = False
    assert waited(way)


@pytest.mark.mpi
def test_a_rank_that_pauses_leaves_its_core(on_ranks: Callable[..., list[Any]]) -> None:
    """By processor time, which other programs do not change."""
    for name, share in on_ranks(transport_cases.pauses, 2)[0].items():
        assert share < 0.5, f"{name} used {share:.0%} of the time that it waited"
