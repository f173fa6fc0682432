"""Parameter servers that do not wait for all: no gradient is lost, none is too stale, and runs can be replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import Threads, schemes
from deep500.distributed.gradient_log import GradientLog, replay
from deep500.distributed.schemes import StaleSynchronous
from deep500.errors import CommunicationError, InputError
from deep500.events import Events
from tests.distributed import problem
from tests.distributed.problem import serial, train

BACKENDS = ["reference", pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))]
PARAMETERS = 6 * 8 + 8 + 8 * 3 + 3
SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("InconsistentParameterServer", {}),
    ("StaleSynchronous", {"staleness": 0}),
    ("StaleSynchronous", {"staleness": 2}),
]


def run(size: int, scheme: str, seed: int | None = None, **options: Any) -> list[dict[str, Any]]:
    return Threads(size, seed).run(lambda comm: train(comm, scheme, **options))


def last(results: list[dict[str, Any]]) -> np.ndarray:
    """The server's parameters, which all ranks have in the end."""
    assert all(result["evaluated"] == results[0]["evaluated"] for result in results)
    assert results[0]["history"][-1] == results[0]["evaluated"]
    return np.array(results[0]["evaluated"])


@pytest.mark.parametrize("optimizer", ["MomentumOptimizer", "AdamOptimizer"])
@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES)
def test_one_worker_is_the_serial_run_bit_by_bit(
    scheme: str, keywords: dict[str, Any], optimizer: str, backend_name: str
) -> None:
    options: dict[str, Any] = {"backend": backend_name, "optimizer": optimizer, "dtype": "float32", "steps": 5}
    results = run(2, scheme, 1, keywords=keywords, **options)
    assert np.array_equal(last(results), serial(**options))
    assert results[0]["steps"] == [5, 5] and results[0]["facts"]["staleness"] == {"0": 5}


@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES)
def test_an_optimizer_of_three_steps_is_prepared_once_for_each_update(scheme: str, keywords: dict[str, Any]) -> None:
    """AcceleGrad moves the parameters before a gradient is taken; between steps the network holds other ones."""
    options: dict[str, Any] = {"optimizer": "AcceleGradOptimizer", "hyper": {"lr": 0.1}}
    assert np.array_equal(last(run(2, scheme, 0, keywords=keywords, **options)), serial(**options))


def replayed(log: list[list[int]], size: int, batch: int, backend: str, optimizer: str) -> np.ndarray:
    base = problem.make(backend, optimizer, {})
    whole = problem.batches(12, batch)
    shares = {worker: [problem.share(part, worker - 1, size - 1) for part in whole] for worker in range(1, size)}
    replay(base, shares, GradientLog(log))
    return problem.weights(base)


def counted(log: list[list[int]]) -> dict[str, int]:
    """Gradients by staleness, from a log."""
    staleness = [update - read for update, _, _, read, _ in log]
    return {str(value): staleness.count(value) for value in sorted(set(staleness))}


@pytest.mark.parametrize("optimizer", ["MomentumOptimizer", "AdamOptimizer"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES)
@pytest.mark.parametrize(("size", "batch"), [(2, 12), (4, 13), (5, 3)])
def test_the_log_replayed_serially_gives_the_same_bits(
    size: int, batch: int, scheme: str, keywords: dict[str, Any], backend: str, optimizer: str
) -> None:
    outcomes = set()
    for seed in (None, 1, 2):
        results = run(size, scheme, seed, keywords=keywords, backend=backend, optimizer=optimizer, batch=batch)
        log, got = results[0]["log"], last(results)
        assert len(log) == 12 * min(size - 1, batch)
        assert np.array_equal(replayed(log, size, batch, backend, optimizer), got)
        assert results[0]["facts"]["staleness"] == counted(log) and min(u - read for u, _, _, read, _ in log) >= 0
        outcomes.add(got.tobytes())
    # the order of arrival matters as soon as there are two workers that do not wait for each other
    assert (len(outcomes) == 1) == (size == 2 or keywords.get("staleness") == 0)


def witnessed(scheme: str, keywords: dict[str, Any], size: int, seed: int) -> tuple[list[list[int]], GradientLog]:
    """By worker and step the version of the parameters that a worker saw, known by their bits alone, and the log."""
    versions: dict[bytes, int] = {}
    seen: list[tuple[int, int, bytes]] = []
    logs = []

    class Versions(d5.Event):
        def after_update(self, source: Any) -> None:
            versions[problem.weights(source).tobytes()] = len(versions)

    def work(comm: Any) -> None:
        base = problem.make("reference", "GradientDescent", {"lr": 0.1})
        optimizer = getattr(schemes, scheme)(base, comm, **keywords)
        if comm.rank == 0:
            versions[problem.weights(base).tobytes()] = 0
            base.executor.events = Events([Versions()])
        for step, batch in enumerate(problem.batches(12, 12)):
            optimizer.step(problem.share(batch, comm.rank - 1 if comm.rank else None, size - 1))
            if comm.rank:  # a worker's parameters are those that it took, until the next step
                seen.append((comm.rank, step, problem.weights(base).tobytes()))
        logs.append((comm.rank, optimizer.log))

    Threads(size, seed).run(work)
    return sorted([worker, step, versions[bits]] for worker, step, bits in seen), dict(logs)[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES)
def test_the_log_has_the_versions_that_workers_saw(scheme: str, keywords: dict[str, Any], seed: int) -> None:
    """A worker that has gone on has newer parameters by the time of the update: those do not count."""
    seen, log = witnessed(scheme, keywords, 4, seed)
    assert sorted([worker, step, read] for _, worker, step, read, _ in log.rows().tolist()) == seen
    assert max(log.staleness()) == keywords.get("staleness", max(log.staleness())), "the bound was not made use of"


def test_a_log_of_another_run_is_refused() -> None:
    base = problem.make("reference", "GradientDescent", {})
    with pytest.raises(InputError, match="no batch 0 of worker 2, or no parameters with 0 updates, for update 1"):
        replay(base, {1: problem.batches(2, 4)}, GradientLog([[0, 1, 0, 0, 4], [1, 2, 0, 0, 4]]))
    with pytest.raises(InputError, match="no batch 1 of worker 1, or no parameters with 7 updates, for update 1"):
        replay(base, {1: problem.batches(2, 4)}, GradientLog([[0, 1, 0, 0, 4], [1, 1, 1, 7, 4]]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", ["MomentumOptimizer", "AdamOptimizer"])
@pytest.mark.parametrize(("size", "batch"), [(3, 12), (4, 13), (5, 3)])
def test_no_staleness_is_the_synchronous_server(size: int, batch: int, optimizer: str, backend: str) -> None:
    """On as many ranks as there are workers; sums are made in the order of ranks, so that arrival changes no bit."""
    options: dict[str, Any] = {"backend": backend, "optimizer": optimizer, "batch": batch}
    want = np.array(run(size - 1, "ConsistentParameterServer", **options)[0]["history"][-1])
    for seed in (None, 1, 2):
        results = run(size, "StaleSynchronous", seed, keywords={"staleness": 0}, **options)
        np.testing.assert_allclose(last(results), want, rtol=0, atol=1e-13)
        assert set(results[0]["facts"]["staleness"]) == {"0"} and results[0]["facts"]["updates"] == 12
    np.testing.assert_allclose(want, serial(backend, optimizer, batch=batch), rtol=0, atol=1e-11)


def lead(size: int, scheme: str, keywords: dict[str, Any], seed: int, steps: int = 30) -> int:
    """By how many steps any worker was ahead of the slowest when it began to compute, with rank 1 slowed down."""
    computed = dict.fromkeys(range(1, size), 0)
    ahead = []

    def work(comm: Any) -> None:
        optimizer = getattr(schemes, scheme)(problem.make("reference", "GradientDescent", {}), comm, **keywords)
        run_network = optimizer.executor.inference_and_backprop

        def watched(inputs: Any, loss: str) -> Any:
            if comm.rank:
                ahead.append(computed[comm.rank] - min(computed.values()))
                for _ in range(60 if comm.rank == 1 else 0):  # lets others have their turn
                    comm.send(np.zeros(1), 1, 5)
                    comm.receive(np.zeros(1), 1, 5)
                computed[comm.rank] += 1
            return run_network(inputs, loss)

        optimizer.executor.inference_and_backprop = watched
        for batch in problem.batches(steps, 12):
            optimizer.step(problem.share(batch, comm.rank - 1 if comm.rank else None, size - 1))

    Threads(size, seed).run(work)
    assert set(computed.values()) == {steps}
    return max(ahead)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [3, 4, 5])
@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_nobody_is_further_ahead_than_allowed(staleness: int, size: int, seed: int) -> None:
    assert lead(size, "StaleSynchronous", {"staleness": staleness}, seed) == staleness  # and it is made use of


def test_without_a_bound_workers_run_further_ahead() -> None:
    assert lead(4, "InconsistentParameterServer", {}, 0) > 3


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_bounded_staleness_uses_every_gradient_once(staleness: int) -> None:
    """Parameters have all steps before c - s; so no gradient is staler than s, and every step is one update."""
    results = run(4, "StaleSynchronous", 3, keywords={"staleness": staleness})
    log = np.array(results[0]["log"]).reshape(12, 3, 5)
    assert (log[:, :, 1] == [1, 2, 3]).all() and (log[:, :, 2] == np.arange(12)[:, None]).all()
    stale = np.arange(12)[:, None] - log[:, :, 3]
    assert stale.min() >= 0 and stale.max() <= staleness and (staleness == 0 or stale.max() > 0)


def test_with_linear_updates_the_server_ends_where_the_gradients_lead() -> None:
    """Nothing is lost: the way from start to end is the sum of all gradients that any worker computed."""
    for size in (3, 5):
        results = run(size, "InconsistentParameterServer", 4, hyper={"lr": 0.1})
        total = np.sum([gradient for rank in results[1:] for gradient in rank["gradients"]], axis=0)
        np.testing.assert_allclose(last(results), results[0]["history"][0] - 0.1 * total, rtol=0, atol=1e-13)
        assert results[0]["losses"] == [None] * 12 and None not in results[1]["losses"]


@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES)
def test_payload_is_a_gradient_there_and_the_parameters_back(scheme: str, keywords: dict[str, Any]) -> None:
    results = run(4, scheme, 5, keywords=keywords, dtype="float32", batch=13)
    assert [result["payload"] for result in results] == [12 * 3 * PARAMETERS * 4] + [12 * PARAMETERS * 4] * 3
    assert results[1]["facts"]["traffic"]["send"]["control_bytes"] == 12 * 2 * 24
    empty = run(5, scheme, 5, keywords=keywords, dtype="float32", batch=3)
    assert [result["payload"] for result in empty] == [12 * 3 * PARAMETERS * 4] + [12 * PARAMETERS * 4] * 3 + [0]


@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES)
def test_the_gradient_modifier_is_the_servers(scheme: str, keywords: dict[str, Any]) -> None:
    hyper = {"lr": 0.1, "gradient_modifier": lambda name, parameter, gradient: gradient * (name != "w1")}
    results = run(3, scheme, 2, keywords=keywords, hyper=hyper)
    first, end = np.array(results[0]["history"][0]), last(results)
    assert np.array_equal(first[:48], end[:48]) and (first[48:] != end[48:]).all()


@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES)
def test_one_rank_is_too_few_and_the_server_computes_nothing(scheme: str, keywords: dict[str, Any]) -> None:
    with pytest.raises(CommunicationError, match=r"got 1 rank for .*; expected at least 2"):
        run(1, scheme, keywords=keywords)

    def work(comm: Any) -> None:
        optimizer = getattr(schemes, scheme)(problem.make("reference", "GradientDescent", {}), comm, **keywords)
        optimizer.step(problem.share(problem.batches(1, 12)[0], comm.rank, comm.size))

    with pytest.raises(InputError, match="got 4 samples on rank 0, the server; expected none"):
        Threads(3).run(work)
    with pytest.raises(InputError, match="got staleness -1; expected an integer of at least 0"):
        run(2, "StaleSynchronous", keywords={"staleness": -1})
    assert list(StaleSynchronous.computing_ranks(4)) == [1, 2, 3]


@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES)
def test_it_goes_on_from_its_state(scheme: str, keywords: dict[str, Any]) -> None:
    """With one worker, so that the outcome is one; the server's state is enough for all."""

    def work(comm: Any, stop: int) -> tuple[np.ndarray, int, dict[str, Any]]:
        batches, states = problem.batches(10, 12), []
        for steps in (range(stop), range(stop, 10)):
            optimizer = getattr(schemes, scheme)(problem.make("reference", "AdamOptimizer", {}), comm, **keywords)
            if states:
                optimizer.network.load_state(states[0])
                optimizer.load_state_dict(states[1])
            for step in steps:
                optimizer.step(problem.share(batches[step], comm.rank - 1 if comm.rank else None, comm.size - 1))
            with optimizer.evaluation():
                states = [optimizer.network.state(), optimizer.state_dict()]
        return problem.weights(optimizer), optimizer.updates, optimizer.communication_facts()["staleness"]

    for got, want in zip(Threads(2).run(work, 4), Threads(2).run(work, 0), strict=True):
        assert np.array_equal(got[0], want[0]) and got[1:] == want[1:]


# -- processes --------------------------------------------------------------------------------------------------------
@pytest.mark.mpi
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.slow
def test_processes_serve_one_worker_as_serially(backend: str, on_ranks: Callable[..., Any]) -> None:
    options: dict[str, Any] = {"backend": backend, "optimizer": "AdamOptimizer"}
    assert np.array_equal(last(on_ranks(train, 2, scheme="InconsistentParameterServer", **options)), serial(**options))


@pytest.mark.mpi
def test_a_log_of_processes_can_be_replayed(on_ranks: Callable[..., Any]) -> None:
    results = on_ranks(train, 4, scheme="InconsistentParameterServer", optimizer="MomentumOptimizer")
    assert np.array_equal(replayed(results[0]["log"], 4, 12, "reference", "MomentumOptimizer"), last(results))


@pytest.mark.mpi
@pytest.mark.parametrize(("scheme", "keywords"), SCHEMES[::2])
def test_large_parameters_pass_without_a_deadlock(
    scheme: str, keywords: dict[str, Any], on_ranks: Callable[..., Any]
) -> None:
    """1.2 MB: far more than MPI buffers, so that every send waits for its receive."""
    results = on_ranks(train, 4, scheme=scheme, keywords=keywords, width=15_000, steps=4, every_step=False)
    size = 8 * (10 * 15_000 + 3)
    assert [result["payload"] for result in results] == [12 * size] + [4 * size] * 3
    assert all(np.isfinite(result["losses"]).all() for result in results[1:])
