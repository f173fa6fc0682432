"""Ranks that take turns: deterministic, deadlocks named, sums in the order of ranks."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deep500.distributed import ANY, Serial, Threads
from deep500.errors import CommunicationError, InputError

RANKS = (1, 2, 3, 4, 5)


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(0, 6)), elements=st.floats(-1e6, 1e6)))
@settings(max_examples=25, deadline=None)
def test_collectives_are_what_their_names_say(rows):
    size, length = rows.shape
    total = rows[0].copy()
    for row in rows[1:]:
        total += row

    def work(comm):
        results = {"sum": comm.all_reduce(rows[comm.rank].copy()), "gathered": comm.all_gather(rows[comm.rank].copy())}
        results["root"] = comm.reduce(rows[comm.rank].copy(), root=size - 1)
        results["first"] = comm.broadcast(rows[comm.rank].copy(), root=0)
        results["ragged"] = comm.all_gather_ragged(rows[comm.rank][: comm.rank].copy())
        results["part"] = comm.reduce_scatter(np.repeat(rows[comm.rank][None], size, 0))
        results["facts"] = comm.gather_facts({"rank": comm.rank})
        return results

    for rank, results in enumerate(Threads(size).run(work)):
        assert np.array_equal(results["sum"], total) and np.array_equal(results["gathered"], rows)
        assert np.array_equal(results["first"], rows[0]) and np.array_equal(results["part"], total[None])
        assert np.array_equal(results["root"], total if rank == size - 1 else rows[rank])
        assert [array.tolist() for array in results["ragged"]] == [rows[p][:p].tolist() for p in range(size)]
        assert results["facts"] == [{"rank": p} for p in range(size)]
    assert length >= 0


@pytest.mark.parametrize("size", RANKS)
def test_what_was_handed_in_is_counted(size):
    def work(comm):
        comm.all_reduce(np.zeros(10), control=8)
        others = {(comm.rank + 1) % size, (comm.rank - 1) % size} - {comm.rank}
        comm.exchange({p: np.zeros(4, np.float32) for p in others}, {p: np.zeros(4, np.float32) for p in others})
        return comm.traffic

    for traffic in Threads(size).run(work):
        assert traffic.kinds["all_reduce"].payload_bytes == 72 and traffic.kinds["all_reduce"].control_bytes == 8
        assert traffic.kinds["exchange"].payload_bytes == 16 * min(2, size - 1)
        assert traffic.seconds > 0


def test_one_thread_counts_as_one_process_does():
    def work(comm):
        comm.all_reduce(np.zeros(3))
        comm.broadcast(np.zeros(2))
        return {kind: (counter.calls, counter.payload_bytes) for kind, counter in comm.traffic.kinds.items()}

    assert Threads(1).run(work)[0] == work(Serial())


def first_come(comm):
    """Rank 0 notes in which order the others' messages come."""
    if comm.rank:
        for number in range(3):
            comm.send(np.array([comm.rank * 10 + number]), 0)
        return None
    box = np.zeros(1, np.int64)
    return [comm.receive(box, ANY) for _ in range(3 * (comm.size - 1))]


def test_the_order_of_arrival_is_a_function_of_the_seed():
    orders = [tuple(Threads(4, seed=seed).run(first_come)[0]) for seed in range(8)]
    assert orders == [tuple(Threads(4, seed=seed).run(first_come)[0]) for seed in range(8)]
    assert len(set(orders)) > 4, "seeds should try different orders"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda comm: comm.barrier() if comm.rank else None, r"rank 1 in barrier \(ended: 0\)"),
        (lambda comm: comm.receive(np.zeros(1), 1 - comm.rank), "rank 0 in receive from rank 1.*rank 1 in receive"),
        (lambda comm: comm.all_reduce(np.zeros(comm.rank + 1)), "all_reduce.*expected the same on every rank"),
        (lambda comm: comm.barrier() if comm.rank else comm.all_reduce(np.zeros(1)), "as collective call 0"),
        (lambda comm: comm.broadcast(np.zeros(1), comm.rank), "broadcast.*expected the same on every rank"),
        (lambda comm: comm.send(np.zeros(2), 1) if comm.rank == 0 else comm.receive(np.zeros(3), 0), "array to fill"),
        (lambda comm: comm.send(np.zeros(2), 7), "got rank 7; expected 0 to 1"),
    ],
)
def test_ranks_that_do_not_fit_together_are_named(function, said):
    with pytest.raises(CommunicationError, match=f"(?s){said}"):
        Threads(2).run(function)


def test_a_rank_that_computes_for_ever_is_named():
    def work(comm):
        if comm.rank == 1:
            time.sleep(3)
        comm.barrier()

    with pytest.raises(CommunicationError, match=r"got rank 1 computing for more than 0\.2 s"):
        Threads(2, timeout=0.2).run(work)


def test_a_rank_for_which_nobody_waits_may_compute_for_long():
    def work(comm):
        if comm.rank == comm.size - 1:  # the others have ended
            time.sleep(0.7)
        return comm.rank

    assert Threads(2, timeout=0.2).run(work) == [0, 1]
    assert Threads(1, timeout=0.2).run(work) == [0]


def test_the_first_failure_is_raised_with_its_rank():
    def work(comm):
        comm.barrier()
        if comm.rank == 2:
            raise ZeroDivisionError("on purpose")
        comm.barrier()

    with pytest.raises(ZeroDivisionError) as raised:
        Threads(4).run(work)
    assert raised.value.__notes__ == ["[rank 2]"]


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((4, 4))[:, ::2], "contiguous"),
        ([1.0], "got list"),
        (np.array(["a"]), "array of numbers"),
        (np.broadcast_to(np.zeros(1), 1), "writeable"),
    ],
)
def test_what_cannot_be_sent_is_refused(array, said):
    with pytest.raises(InputError, match=said):
        Serial().all_reduce(array)


def test_no_rank_is_too_few():
    with pytest.raises(InputError, match="at least 1"):
        Threads(0)


def test_the_time_out_is_a_positive_number(monkeypatch):
    monkeypatch.setenv("DEEP500_COMM_TIMEOUT", "soon")
    with pytest.raises(InputError, match="DEEP500_COMM_TIMEOUT='soon'"):
        Serial()
