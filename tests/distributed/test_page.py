"""docs/distributed.md: its tables of the communicator against the code, its two schemes against NumPy alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deep500.distributed import Communicator, Threads
from deep500.distributed.tensors import TensorCommunicator
from deep500.distributed.transports.communicator import Pending
from tests.conftest import load_backend
from tests.distributed import page_cases as cases

TOGETHER = {"patience", "close", "abort", "all_ended"}
"""What is no exchange; the page names them below the first table."""


OTHER_SIDE = {("send_to_root", True), ("wait_for_root", True), ("wait_for_any_rank", False)}
"""Calls that rank 0, or all but rank 0, answer in some other way."""


def rows(head: str) -> dict[str, list[str]]:
    """By method, the cells behind it."""
    text = cases.PAGE.read_text(encoding="utf-8").partition(f"| {head} |")[2].partition("\n\n")[0]
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    return {name: cells[1:] for cells in table for name in re.findall(r"`(\w+)", cells[0])}


def public(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


def test_the_tables_have_every_method_and_no_other() -> None:
    assert set(rows("on arrays")) == public(Communicator) - TOGETHER
    properties = {name for name, value in vars(TensorCommunicator).items() if isinstance(value, property)}
    assert set(rows("on tensors")) == public(TensorCommunicator) | properties
    page = cases.PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}(" in page for name in TOGETHER)


def array_calls(comm: Communicator) -> dict[str, Callable[[], Any]]:
    """Every method on 6 elements of 8 bytes; ``exchange`` and messages go to the next rank."""
    array, after, before = np.ones(6), (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return {
        "all_reduce": lambda: comm.all_reduce(array),
        "start_all_reduce": lambda: comm.start_all_reduce(array),
        "reduce": lambda: comm.reduce(array, 1),
        "broadcast": lambda: comm.broadcast(array, 1),
        "all_gather": lambda: comm.all_gather(array),
        "all_gather_ragged": lambda: comm.all_gather_ragged(array),
        "reduce_scatter": lambda: comm.reduce_scatter(array),
        "barrier": comm.barrier,
        "send": lambda: comm.send(array, after, 1),
        "receive": lambda: comm.receive(array, before, 1),
        "exchange": lambda: comm.exchange({before: array, after: array}, {before: array + 0, after: array + 0}),
        "split": lambda: comm.split("alike", comm.rank),
        "gather_facts": lambda: comm.gather_facts(["a fact"]),
    }


def tensor_calls(comm: Communicator) -> dict[str, Callable[[], Any]]:
    executor = load_backend("reference").from_model(cases.network())
    tensors, array = TensorCommunicator(comm, executor.network), np.ones(6)
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    at_root = comm.rank == 0
    return {
        "all_reduce": lambda: tensors.all_reduce(array),
        "sync_all": lambda: tensors.sync_all(array),
        "mean": lambda: tensors.mean(array),
        "broadcast": lambda: tensors.broadcast(array, 1),
        "sync_all_with_root": lambda: tensors.sync_all_with_root(array),
        "all_gather": lambda: tensors.all_gather(array),
        "reduce_from_neighbors": lambda: tensors.reduce_from_neighbors(array),
        "exchange": lambda: tensors.exchange(array, [before, after]),
        "send_to_rank": lambda: tensors.send_to_rank(array, after, 1),
        "receive_from_rank": lambda: tensors.receive_from_rank(array, before, 1),
        "send_to_root": lambda: None if at_root else tensors.send_to_root(array, 2),
        "wait_for_any_rank": lambda: [tensors.wait_for_any_rank(array, 2) for _ in "12" if at_root],
        "wait_for_root": lambda: (
            comm.send(array, after, 3) or comm.send(array, before, 3) if at_root else tensors.wait_for_root(array, 3)
        ),
        "sync_all_at_root": lambda: tensors.sync_all_at_root(array),
        "gather_at_root": lambda: tensors.gather_at_root(array),
        "barrier": tensors.barrier,
    }


def counted(comm: Communicator, calls: Callable[[Communicator], dict[str, Callable[[], Any]]]) -> dict[str, Any]:
    """By method: payload bytes by kind, and whether what came back has to be waited for."""
    found = {}
    for name, call in calls(comm).items():
        comm.traffic.reset()
        result = call()
        if isinstance(result, Pending):
            result.wait()
        kinds = {kind: count.payload_bytes for kind, count in comm.traffic.kinds.items()}
        found[name] = (kinds, isinstance(result, Pending))
    return found


@pytest.mark.parametrize(("head", "calls"), [("on arrays", array_calls), ("on tensors", tensor_calls)])
def test_what_the_tables_say_of_kinds_bytes_and_waiting_is_so(head: str, calls: Any) -> None:
    said = {name: cells for name, cells in rows(head).items() if cells[2]}
    on_ranks = Threads(3).run(counted, calls)
    assert set(on_ranks[0]) == set(said)
    for rank, found in enumerate(on_ranks):
        for name, (_, blocks, kind, payload) in said.items():
            kinds, pending = found[name]
            if (name, rank == 0) in OTHER_SIDE:
                continue
            words = payload.partition("; rank 0: ")
            text = words[2] if rank == 0 and words[1] else words[0]
            nbytes = {"n": 48, "n each": 96, "0": 0}[text]
            own = kind.strip("`") if not (words[1] and rank == 0) else "receive"
            assert kinds == {own: nbytes}, (name, rank)
            assert (blocks == "no") == pending, name


@pytest.mark.parametrize("name", ["all_reduce", "start_all_reduce", "reduce", "broadcast", "all_gather", "barrier"])
def test_what_blocks_returns_after_all_have_called_it(name: str) -> None:
    """With no seed rank 0 goes first, and keeps its turn until it waits."""
    order = []

    def work(comm: Communicator) -> None:
        call = array_calls(comm)[name]
        order.append(("calls", comm.rank))
        result = call()
        order.append(("goes on", comm.rank))
        if isinstance(result, Pending):
            result.wait()

    Threads(2).run(work)
    blocked = order.index(("goes on", 0)) > order.index(("calls", 1))
    assert blocked == (rows("on arrays")[name][1] == "yes")


def close_to(results: list[Any], want: list[Any]) -> None:
    """Every replica in every step; by parameters' names, weights before bias."""
    for rank, result in enumerate(results):
        assert [np.ndim(array) for array in result["seen"][0]] == [2, 1], result["names"]
        for step, replicas in enumerate(want):
            for mine, expected in zip(result["seen"][step], replicas[rank], strict=True):
                assert np.abs(np.array(mine) - expected).max() < 1e-12, (rank, step)


def start() -> list[np.ndarray]:
    return [parameter.value.astype(np.float64) for parameter in cases.network().parameters.values()]


def check_elastic(results: list[Any], alpha: float) -> None:
    seen, center = cases.elastic(start(), len(results), alpha)
    close_to(results, seen)
    for result in results:
        for mine, expected in zip(result["center"], center, strict=True):
            assert np.abs(np.array(mine) - expected).max() < 1e-12
    assert max(np.abs(a - b).max() for a, b in zip(center, start(), strict=True)) > 0.01, "nothing has moved"


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_elastic_averaging_from_the_page_is_the_formula(ranks: int) -> None:
    check_elastic(Threads(ranks).run(cases.trained, "ElasticAveraging", {"alpha": 0.15}), 0.15)


@pytest.mark.parametrize(("ranks", "group", "every"), [(2, 2, 4), (3, 2, 3), (4, 2, 3), (4, 1, 2), (4, 3, 4)])
def test_hierarchical_averaging_from_the_page_is_the_formula(ranks: int, group: int, every: int) -> None:
    results = Threads(ranks).run(cases.trained, "Hierarchical", {"group": group, "every": every})
    close_to(results, cases.hierarchical(start(), ranks, group, every))


@pytest.mark.backend("pytorch")
def test_both_take_tensors_of_another_framework() -> None:
    check_elastic(Threads(2).run(cases.trained, "ElasticAveraging", {"alpha": 0.15}, "pytorch"), 0.15)
    results = Threads(3).run(cases.trained, "Hierarchical", {}, "pytorch")
    close_to(results, cases.hierarchical(start(), 3, 2, 4))


@pytest.mark.mpi
def test_hierarchical_averaging_from_the_page_over_mpi(on_ranks: Callable[..., list[Any]]) -> None:
    results = on_ranks(cases.trained, 3, name="Hierarchical", options={"every": 3})
    close_to(results, cases.hierarchical(start(), 3, 2, 3))


def test_the_centre_is_resumed() -> None:
    def work(comm: Communicator) -> tuple[bool, bool]:
        def made() -> Any:
            executor = load_backend("reference").from_model(cases.network(), "cpu")
            return cases.scheme("ElasticAveraging")(cases.GradientDescent(executor, lr=cases.LR), comm)

        first, second, samples = made(), made(), cases.batch(comm.rank, 0)
        for _ in range(2):  # the first step pulls nobody: all begin at the centre
            first.step({"input": samples[0], "label": samples[1]})
        moved = bool((first.center[0] != second.center[0]).all())
        second.load_state_dict(first.state_dict())
        return moved, all((a == b).all() for a, b in zip(first.center, second.center, strict=True))

    assert Threads(2).run(work) == [(True, True)] * 2
