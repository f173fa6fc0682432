"""Schemes without a centre keep the mean, approach each other as the mixing matrix says, and never wait in a circle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deep500.distributed import Threads, schemes
from deep500.distributed.schemes.gossip import matching
from deep500.distributed.schemes.mixing import MIXINGS, mixing_matrix, second_eigenvalue
from deep500.errors import CommunicationError, InputError
from tests.distributed import problem
from tests.distributed.problem import serial, train

BACKENDS = ["reference", pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))]
PARAMETERS = 6 * 8 + 8 + 8 * 3 + 3
TURNED = [[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0.5, 0, 0, 0.5]]


def run(size: int, scheme: str, seed: int | None = None, **options: Any) -> list[dict[str, Any]]:
    return Threads(size, seed).run(lambda comm: train(comm, scheme, **options))


def histories(results: list[dict[str, Any]]) -> np.ndarray:
    """(rank, step, parameter)."""
    return np.array([result["history"] for result in results])


def gradients(results: list[dict[str, Any]]) -> np.ndarray:
    """(rank, step, parameter); 0 where a rank had no samples."""
    return np.array([[np.zeros(PARAMETERS) if g is None else g for g in result["gradients"]] for result in results])


# -- D-PSGD -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("mixing", "backend"),
    [
        *((mixing, "reference") for mixing in [*MIXINGS, TURNED]),
        *(pytest.param(mixing, "pytorch", marks=pytest.mark.backend("pytorch")) for mixing in ("ring", TURNED)),
    ],
)
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_every_rank_takes_over_its_neighbours_and_the_mean_moves_alone(mixing: Any, size: int, backend: str) -> None:
    """Against the formula itself, from ranks that start apart, with shares of different size."""
    if mixing is TURNED and size != 4:
        mixing = [[0.75, 0.25], [0.25, 0.75]] if size == 2 else np.roll(np.eye(size), 1, axis=0)
    matrix, lr = mixing_matrix(mixing, size), 0.2
    results = run(
        size,
        "ConsistentNeighbors",
        seed=size,
        backend=backend,
        keywords={"mixing": mixing},
        hyper={"lr": lr},
        apart=0.3,
        batch=13,
    )
    w, g = histories(results), gradients(results)
    want = np.einsum("pq,qkn->pkn", matrix, w[:, :-1]) - lr * g
    np.testing.assert_allclose(w[:, 1:], want, rtol=0, atol=1e-14)
    np.testing.assert_allclose(w.mean(0)[1:], w.mean(0)[:-1] - lr * g.mean(0), rtol=0, atol=1e-14)
    assert np.abs(g).max() > 1e-2 and np.abs(w[0, -1] - w[1, -1]).max() > 1e-3
    for result in results:
        np.testing.assert_allclose(result["evaluated"], w[:, -1].mean(0), rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("mixing", MIXINGS)
def test_without_learning_ranks_approach_by_the_second_eigenvalue(mixing: str, size: int) -> None:
    results = run(size, "ConsistentNeighbors", keywords={"mixing": mixing}, hyper={"lr": 0.0}, apart=1.0)
    w = histories(results)
    error = np.linalg.norm(w - w.mean(0), axis=(0, 2))
    factor = second_eigenvalue(mixing_matrix(mixing, size))
    assert results[0]["facts"]["second_eigenvalue"] == factor and error[0] > 1
    assert (error[1:] <= (factor + 1e-12) * error[:-1] + 1e-13).all()
    if factor > 0.05:  # the slowest direction remains; else all ranks agree to rounding
        assert error[7] / error[6] == pytest.approx(factor, rel=0.02) or error[7] < 1e-12
    np.testing.assert_allclose(w.mean(0), np.broadcast_to(w.mean(0)[0], w.mean(0).shape), rtol=0, atol=1e-14)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_the_complete_graph_after_the_local_step_is_model_average(size: int, backend: str) -> None:
    options: dict[str, Any] = {"backend": backend, "optimizer": "MomentumOptimizer", "batch": size * 3}
    results = run(size, "ConsistentNeighbors", keywords={"mixing": "complete", "mix_last": True}, **options)
    average = run(size, "ModelAverage", **options)
    np.testing.assert_allclose(histories(results), histories(average), rtol=0, atol=1e-13)
    last = serial(backend, "MomentumOptimizer", batch=size * 3)
    np.testing.assert_allclose(histories(results)[0, -1], last, rtol=0, atol=1e-12)
    first = run(size, "ConsistentNeighbors", keywords={"mixing": "complete"}, **options)
    assert np.abs(histories(first)[0, -1] - last).max() > 1e-4  # mixing first is another scheme


def test_with_momentum_the_mean_moves_by_the_mean_velocity() -> None:
    results = run(4, "ConsistentNeighbors", optimizer="MomentumOptimizer", hyper={"lr": 0.1, "momentum": 0.9})
    w, g = histories(results), gradients(results).mean(0)
    velocity = np.zeros(PARAMETERS)
    for step in range(g.shape[0]):
        velocity = 0.9 * velocity + g[step]
        np.testing.assert_allclose(w.mean(0)[step + 1], w.mean(0)[step] - 0.1 * velocity, rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [2, 4])
def test_two_and_four_ranks_are_not_everybody_with_everybody(size: int) -> None:
    """On a ring of three all are neighbours, so that three ranks alone would not show a wrong neighbour."""
    matrix = [[0.75, 0.25], [0.25, 0.75]] if size == 2 else "ring"
    w = histories(run(size, "ConsistentNeighbors", keywords={"mixing": matrix}, apart=0.3))[:, -1]
    assert np.abs(w - w.mean(0)).max() > 1e-4


def test_a_rank_without_samples_mixes_and_makes_no_update() -> None:
    results = run(4, "ConsistentNeighbors", batch=3, optimizer="MomentumOptimizer", steps=3)
    w, matrix = histories(results), mixing_matrix("ring", 4)
    assert results[3]["losses"] == [None] * 3
    assert (results[0]["steps"], results[3]["steps"]) == ([3, 3], [3, 0])
    np.testing.assert_allclose(w[3, 1:], np.einsum("q,qkn->kn", matrix[3], w[:, :-1]), rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("mixing", "degree"), [("ring", 2), ("torus", 2), ("exponential", 2), ("complete", 3), (TURNED, 1)]
)
def test_payload_is_the_parameters_times_the_neighbours(mixing: Any, degree: int) -> None:
    for dtype, width in (("float64", 8), ("float32", 4)):
        results = run(4, "ConsistentNeighbors", keywords={"mixing": mixing}, dtype=dtype, steps=5)
        assert {result["payload"] for result in results} == {5 * degree * PARAMETERS * width}


def test_ranks_with_different_matrices_are_refused() -> None:
    def work(comm: Any) -> Any:
        return train(comm, "ConsistentNeighbors", {"mixing": "ring" if comm.rank else "complete"})

    with pytest.raises(CommunicationError, match=r"a mixing on rank . that differs from that on rank ."):
        Threads(4).run(work)
    with pytest.raises(InputError, match=r"column 0 sums to 0\.5"):
        run(2, "ConsistentNeighbors", keywords={"mixing": [[0.5, 0.5], [0, 1]]})


# -- pairs ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_pairs_are_matchings_and_every_pair_comes(size: int) -> None:
    seen = set()
    for step in range(120):
        pairs = matching(size, 3, step)
        assert len(pairs) == size - size % 2 and all(pairs[q] == p != q for p, q in pairs.items())
        assert pairs == matching(size, 3, step)
        seen |= set(pairs.items())
    assert len(seen) == size * (size - 1)
    assert size < 3 or any(matching(size, 3, step) != matching(size, 4, step) for step in range(9))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_gossip_averages_pairs_and_keeps_the_sum(size: int, backend: str) -> None:
    results = run(
        size, "InconsistentDecentralized", seed=1, backend=backend, keywords={"seed": 5}, hyper={"lr": 0.2}, apart=0.3
    )
    w, g = histories(results), gradients(results)
    for step in range(g.shape[1]):
        pairs = matching(size, 5, step)
        for p in range(size):
            want = (w[p, step] + w[pairs.get(p, p), step]) / 2 - 0.2 * g[p, step]
            np.testing.assert_allclose(w[p, step + 1], want, rtol=0, atol=1e-15)
    np.testing.assert_allclose(w.sum(0)[1:], w.sum(0)[:-1] - 0.2 * g.sum(0), rtol=0, atol=1e-14)
    idle = [sum(p not in matching(size, 5, step) for step in range(12)) for p in range(size)]
    assert [result["payload"] for result in results] == [(12 - n) * PARAMETERS * 8 for n in idle]


@pytest.mark.parametrize("seed", [0, 3])
def test_without_learning_gossip_agrees_on_the_mean(seed: int) -> None:
    w = histories(run(5, "InconsistentDecentralized", keywords={"seed": seed}, hyper={"lr": 0.0}, apart=1.0, steps=80))
    np.testing.assert_allclose(w.sum(0), np.broadcast_to(w[:, 0].sum(0), w.sum(0).shape), rtol=0, atol=1e-13)
    assert np.abs(w[:, 0] - w[:, 0].mean(0)).max() > 1 and np.abs(w[:, -1] - w[:, -1].mean(0)).max() < 1e-6


@pytest.mark.parametrize("scheme", ["ConsistentNeighbors", "InconsistentDecentralized"])
def test_whose_turn_it_is_changes_nothing_and_nobody_waits_for_ever(scheme: str) -> None:
    want = histories(run(5, scheme, steps=40))
    for seed in range(6):
        assert np.array_equal(histories(run(5, scheme, seed, steps=40)), want)


def test_ranks_with_different_seeds_are_refused() -> None:
    with pytest.raises(CommunicationError, match="a seed of pairs on rank"):
        Threads(2).run(lambda comm: train(comm, "InconsistentDecentralized", {"seed": comm.rank}))
    with pytest.raises(InputError, match="got seed -1; expected an integer of at least 0"):
        run(2, "InconsistentDecentralized", keywords={"seed": -1})


# -- both -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("optimizer", ["MomentumOptimizer", "AdamOptimizer"])
@pytest.mark.parametrize("scheme", ["ConsistentNeighbors", "InconsistentDecentralized"])
def test_one_rank_is_the_serial_run_bit_by_bit(scheme: str, optimizer: str, backend_name: str) -> None:
    result = run(1, scheme, backend=backend_name, optimizer=optimizer, dtype="float32", steps=5)[0]
    want = serial(backend_name, optimizer, dtype="float32", steps=5)
    assert np.array_equal(result["history"][-1], want) and np.array_equal(result["evaluated"], want)
    assert result["payload"] == 0 and result["steps"] == [5, 5]


@pytest.mark.parametrize("scheme", ["ConsistentNeighbors", "InconsistentDecentralized"])
def test_it_goes_on_from_its_state_as_if_never_stopped(scheme: str) -> None:
    def work(comm: Any, stop: int) -> np.ndarray:
        batches = problem.batches(10, 12)
        state: dict[str, Any] = {}
        for steps in (range(stop), range(stop, 10)):
            base = problem.make("reference", "AdamOptimizer", {"lr": 0.05})
            optimizer = getattr(schemes, scheme)(base, comm)
            if state:
                optimizer.network.load_state(state["network"])
                optimizer.load_state_dict(state["optimizer"])
            for step in steps:
                optimizer.step(problem.share(batches[step], comm.rank, comm.size))
            state = {"network": optimizer.network.state(), "optimizer": optimizer.state_dict()}
        return problem.weights(optimizer)

    for got, want in zip(Threads(3).run(work, 4), Threads(3).run(work, 0), strict=True):
        assert np.array_equal(got, want)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("scheme", "size", "backend"),
    [
        ("ConsistentNeighbors", 4, "reference"),
        ("InconsistentDecentralized", 5, "reference"),
        pytest.param("ConsistentNeighbors", 2, "pytorch", marks=pytest.mark.backend("pytorch")),
    ],
)
@pytest.mark.slow
def test_processes_do_what_threads_do(scheme: str, size: int, backend: str, on_ranks: Callable[..., Any]) -> None:
    options: dict[str, Any] = {"backend": backend, "apart": 0.1}
    assert np.array_equal(
        histories(on_ranks(train, size, scheme=scheme, **options)), histories(run(size, scheme, **options))
    )


@pytest.mark.mpi
@pytest.mark.parametrize("scheme", ["ConsistentNeighbors", "InconsistentDecentralized"])
def test_large_parameters_pass_between_processes(scheme: str, on_ranks: Callable[..., Any]) -> None:
    """1.2 MB for each neighbour: more than MPI buffers, so that two blocking sends would wait for each other."""
    results = on_ranks(train, 3, scheme=scheme, width=15_000, steps=3, every_step=False)
    size = 8 * (10 * 15_000 + 3)
    if scheme == "ConsistentNeighbors":
        assert [result["payload"] for result in results] == [3 * 2 * size] * 3
    else:
        assert sum(result["payload"] for result in results) == 3 * 2 * size  # one of three is left out
    assert all(np.isfinite(result["losses"]).all() for result in results)


@pytest.mark.parametrize(
    "scheme",
    [
        "ConsistentNeighbors",
        "InconsistentDecentralized",
        "ConsistentParameterServer",
        "ModelAverage",
        "LocalSGD",
        "DiLoCo",
    ],
)
def test_an_optimizer_that_would_not_notice_the_mixing_is_refused(scheme: str) -> None:
    """AcceleGrad's state holds the parameters, and it writes them over those of the network in every step."""
    with pytest.raises(InputError, match=f"got AcceleGradOptimizer for {scheme}; expected an optimizer that takes"):
        run(2, scheme, optimizer="AcceleGradOptimizer")
    alone = run(1, scheme, optimizer="AcceleGradOptimizer", hyper={"lr": 0.1})[0]["history"][-1]
    if scheme != "DiLoCo":  # with its outer step it is another optimizer, also alone
        assert np.array_equal(alone, serial(optimizer="AcceleGradOptimizer", hyper={"lr": 0.1}))
