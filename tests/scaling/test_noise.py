"""System noise: records of fixed work, and what they do to ranks that wait for each other."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.distributed import Threads
from deep500.errors import InputError
from deep500.scaling.model import Interconnect
from deep500.scaling.noise import Noise, measure_noise, noise_of
from deep500.scaling.prediction import Machine
from deep500.scaling.simulation import RULES, Case, neighbours, served, simulate, together


def ends(detours: dict[int, float], quanta: int = 60) -> np.ndarray:
    """A record of work of one second a piece, in which some pieces take so much longer."""
    return np.cumsum([1.0 + detours.get(number, 0.0) for number in range(quanta)])


def regular(every: int, first: int, longer: float) -> np.ndarray:
    return ends(dict.fromkeys(range(first, 60, every), longer))


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_records_without_detours_change_nothing(rule):
    quiet = Noise(1.0, [[ends({}), ends({})]])
    for ranks in (2, 3, 5):
        cases = [Case(ranks, np.array([2.0]), 0.5, service=0.25, noise=noise) for noise in (None, quiet)]
        plain, replayed = (simulate(rule, case).median for case in cases)
        assert replayed == pytest.approx(plain, rel=1e-9)


def test_work_takes_as_much_longer_as_the_record_says():
    noise = Noise(1.0, [[regular(3, 1, 1.0)]])
    assert noise.dilation == pytest.approx(4 / 3)
    assert simulate(together, Case(1, np.array([10.0]), 0.0, noise=noise), steps=120).median == pytest.approx(
        40 / 3, rel=0.01
    )


def test_detours_of_ranks_that_wait_for_each_other_add_up_unless_they_coincide():
    """A detour of one rank is a detour of all that wait for it; one that comes to all at once counts once.

    Apart, 12 s pass: from 1 to 4 the first rank is away, from 4 to 7 the second, and from 9 to 12 the first again.
    """
    apart = Noise(1.0, [[regular(6, 1, 2.0), regular(6, 4, 2.0)]])
    at_once = Noise(1.0, [[regular(6, 1, 2.0), regular(6, 1, 2.0)]])
    times = {}
    for name, noise in (("apart", apart), ("at once", at_once)):
        go = noise.replayed(2, None)
        times[name] = together(Case(2, np.array([1.0]), 0.0), lambda count: np.full(count, 1.0), 6, go)
    assert times == {"apart": pytest.approx(12 / 6), "at once": pytest.approx(8 / 6)}


def test_a_detour_is_absorbed_where_a_rank_waits_anyway():
    """The second rank works for 3 s, the first for 1 s: 2 s of detour cost nothing, on any rule that waits."""
    noise = Noise(1.0, [[ends({0: 2.0}), ends({})]])
    work = np.array([1.0, 3.0])
    for rule in (together, neighbours):
        go = noise.replayed(2, None)
        assert rule(Case(2, work, 0.0), lambda count: work[:count], 1, go) == pytest.approx(3.0)


def test_a_server_that_is_interrupted_keeps_its_workers_waiting():
    noise = Noise(1.0, [[ends({1: 5.0}), ends({})]])
    case = Case(2, np.array([1.0]), 0.0, service=1.0)
    assert served(case, np.ones, 3, noise.replayed(2, None)) == pytest.approx((6 + 5) / 3)


def test_sharing_is_refused():
    shared = Noise(1.0, [[regular(2, 0, 1.0)]])
    machine = Machine(Interconnect(1e-6, 1e-9), noise=shared)
    with pytest.raises(InputError, match="got cores of which others take 33%; expected at most 20%"):
        machine.check(2)
    Machine(Interconnect(1e-6, 1e-9), noise=Noise(1.0, [[regular(6, 0, 0.5)]])).check(2)


def test_what_is_measured_is_a_record():
    answer = Threads(2).run(lambda comm: measure_noise(comm, seconds=0.01, times=2))[0]
    noise = noise_of(answer)
    assert len(noise.records) == 2 and all(len(ranks) == 2 for ranks in noise.records)
    assert all((np.diff(rank) > 0).all() and rank[-1] >= 0.01 for ranks in noise.records for rank in ranks)
    assert (noise.quantum > 0 and noise.dilation >= 1 - 1e-9) or noise.dilation > 0.5


def test_records_are_needed():
    with pytest.raises(InputError, match="noise without records"):
        Noise(1.0, [])
