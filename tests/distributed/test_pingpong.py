"""Costs of messages: the fit finds the numbers that times were made of, and measuring is bookkeeping."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.distributed import Communicator, Threads, pingpong
from deep500.scaling.ranks_job import fitted

ALPHA, BETA, GAMMA = 3e-6, 2e-10, 5e-11


def timed(comm: Communicator, call: object, data: np.ndarray) -> float:
    """As on a network of these numbers, with an all-reduce in one step on two ranks, by halves on more."""
    size = data.nbytes
    if call is not Communicator.all_reduce:
        return 2 * (ALPHA + size * BETA)
    if comm.name == "once":
        return ALPHA + size * (BETA + GAMMA)
    steps, share = int(np.log2(comm.size)), (comm.size - 1) / comm.size
    return 2 * steps * ALPHA + 2 * share * size * BETA + share * size * GAMMA


def test_the_network_between_two_ranks_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pingpong, "_timed", timed)
    fit = Threads(2).run(lambda comm: pingpong.measure_network(comm.split("once", 0)))[0]
    assert [fit[name] for name in ("alpha", "beta", "gamma")] == pytest.approx([ALPHA, BETA, GAMMA], rel=1e-6)
    assert fit["worst"] < 1e-6 and (fitted(fit).alpha, fitted(fit).gamma) == (fit["alpha"], fit["gamma"])


@pytest.mark.parametrize("ranks", [2, 4])
def test_costs_of_plans_are_fitted_to_all_ranks(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pingpong, "_timed", timed)
    results = Threads(ranks).run(pingpong.measured_costs)
    costs, about = results[0]
    assert [costs.latency, costs.byte_time, costs.sum_time] == pytest.approx([ALPHA, BETA, GAMMA], rel=1e-6)
    assert results == [(costs, about)] * ranks
    assert about == f"measured between {ranks} ranks by messages and sums over threads, misses them by 0%, at most 0%"


def test_measuring_is_no_traffic_of_the_program() -> None:
    def work(comm: Communicator) -> tuple[float, int, int]:
        costs, _ = pingpong.measured_costs(comm, rounds=2)
        traffic = comm.traffic
        return costs.latency + costs.byte_time, traffic.payload_bytes, traffic.kinds["control"].control_bytes

    for positive, payload, control in Threads(2).run(work):
        assert positive > 0 and payload == 0 and control > 2 * sum(pingpong.SIZES[::2])
