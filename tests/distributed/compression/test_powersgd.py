"""PowerSGD against PyTorch's hook, and on matrices that it must not lose anything of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.distributed import Serial, Threads
from deep500.distributed.schemes import PowerSGD
from deep500.networks.network import Network
from deep500.training.optimizers import GradientDescent
from tests.conftest import HANG, load_backend
from tests.distributed.powersgd_hook import SHAPES, compressed, first_factors, gradients
from tests.training.linear import FakeExecutor, linear_network

ROOT = Path(__file__).resolve().parents[3]
RNG = np.random.default_rng(0)
STEPS = 12
NAMES = [f"p{number}" for number in range(len(SHAPES))]


def make(comm: Any, **options: Any) -> PowerSGD:
    """On a network that is never run: the exchange of gradients needs none."""
    return PowerSGD(GradientDescent(FakeExecutor(linear_network())), comm, **options)


@pytest.mark.backend("pytorch")
@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "approximation"), [(2, 1), (3, 2)])
def test_equals_the_hook_of_pytorch(ranks: int, approximation: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.distributed.powersgd_hook"]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(tmp_path), str(approximation), str(STEPS)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=HANG)
        assert process.returncode == 0, errors
    theirs = np.load(tmp_path / "result0.npy")
    assert (theirs == np.load(tmp_path / "result1.npy")).all()

    def work(comm: Any) -> np.ndarray:
        scheme, reduced = make(comm, rank=approximation), []
        scheme.samples, scheme.q = 5, dict(zip(["p0", "p2", "p3"], first_factors(approximation), strict=False))
        for step in range(STEPS):
            got = scheme.exchange_gradients(NAMES, gradients(comm.rank, step))
            reduced.append(np.concatenate([array.ravel() for array in got]))
        return np.stack(reduced)

    ours = Threads(ranks).run(work)[0]
    mean = sum(np.concatenate([g.ravel() for g in gradients(rank, 0)]) for rank in range(ranks)) / ranks
    deviation = np.abs(ours - theirs).max()
    print(f"PowerSGD rank {approximation} on {ranks}: {deviation:.1e} from PyTorch's hook after {STEPS} steps")
    assert deviation < 1e-12
    assert np.abs(theirs[0] - mean).max() > 0.1, "the hook compressed nothing"


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("ranks", [1, 3])
def test_exact_where_the_sum_has_the_rank(rank: int, ranks: int) -> None:
    matrix = RNG.normal(size=(12, rank)) @ RNG.normal(size=(rank, 16))
    parts = [RNG.normal(size=matrix.shape) for _ in range(ranks - 1)]
    parts.append(ranks * matrix - sum(parts))  # of full rank each; their mean is the matrix

    def work(comm: Any) -> np.ndarray:
        scheme = make(comm, rank=rank)
        scheme.samples = 3
        return scheme.exchange_gradients(["p"], [parts[comm.rank]])[0]

    deviation = max(np.abs(got - matrix).max() for got in Threads(ranks).run(work)) / np.abs(matrix).max()
    print(f"PowerSGD rank {rank} on {ranks}: exact to {deviation:.1e} of the largest element")
    assert deviation < 5e-15
    if rank > 1:
        lower = make(Serial(), rank=rank - 1)
        lower.samples = 1
        assert np.abs(lower.exchange_gradients(["p"], [matrix])[0] - matrix).max() > 1e-2


def test_what_a_rank_owes_is_missing_from_its_own_gradient() -> None:
    """Not from the mean: then its difference from the others would add up over the steps."""

    def work(comm: Any) -> tuple[np.ndarray, np.ndarray]:
        scheme = make(comm, rank=2)
        scheme.samples = 1
        got = scheme.exchange_gradients(["p"], [np.random.default_rng(comm.rank).normal(size=(12, 16))])[0]
        return np.linalg.svd(got)[0][:, :2], scheme.residuals["p"]

    for basis, owed in Threads(3).run(work):
        assert np.abs(basis.T @ owed).max() < 1e-14 < np.abs(owed).max()


def test_warm_start_finds_the_best_approximation() -> None:
    """Of a constant gradient without feedback, the subspace iteration converges to the singular vectors."""
    matrix = RNG.normal(size=(12, 16))
    u, s, v = np.linalg.svd(matrix)
    scheme = make(Serial(), rank=2)
    scheme.samples = 1
    for _ in range(300):
        scheme.residuals.clear()
        got = scheme.exchange_gradients(["p"], [matrix])[0]
    np.testing.assert_allclose(got, u[:, :2] * s[:2] @ v[:2], atol=1e-3)


def test_goes_on_after_a_gradient_of_zeros() -> None:
    scheme = make(Serial(), rank=1)
    scheme.samples = 1
    assert not scheme.exchange_gradients(["p"], [np.zeros((12, 16))])[0].any()
    outer = np.outer(np.arange(1.0, 13), np.arange(16.0))
    scheme.exchange_gradients(["p"], [outer])
    scheme.residuals.clear()
    np.testing.assert_allclose(scheme.exchange_gradients(["p"], [outer])[0], outer, atol=1e-12)


def test_payload_counts_factors_and_vectors() -> None:
    scheme = make(Serial(), rank=2)
    scheme.samples = 1
    scheme.exchange_gradients(NAMES, [g.astype("float32") for g in gradients(0, 0)])
    factors = sum(2 * (n + m) for n, m in compressed(2))
    assert scheme.comm.traffic.payload_bytes == 4 * (factors + 16 + 6 + 5)


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
def test_convolution_kernels_are_matrices(backend: str) -> None:
    """(8, 4, 3, 3) is 8 x 36: two factors of rank 1 are 44 elements."""
    net = Network("convolution")
    net.add_input("input", ("N", 4, 6, 6), "float32")
    net.add_parameter("k", np.random.default_rng(0).normal(size=(8, 4, 3, 3)).astype("float32"))
    net.add_node("Conv", ["input", "k"], ["y"])
    net.add_node("Mul", ["y", "y"], ["square"])
    net.add_node("ReduceMean", ["square"], ["loss"], keepdims=0)
    net.add_output("loss")
    module = load_backend(backend)
    scheme = PowerSGD(module.GradientDescent(module.from_model(net, "cpu"), "loss", lr=0.1), Serial(), rank=1)
    before = np.array(scheme.network.state()["k"])
    scheme.step({"input": np.random.default_rng(1).normal(size=(5, 4, 6, 6)).astype("float32")})
    moved = (before - scheme.network.state()["k"]).reshape(8, 36)
    assert scheme.comm.traffic.payload_bytes == 4 * 44
    values = np.linalg.svd(moved, compute_uv=False)
    assert values[0] > 1e-3 and values[1] < 1e-5 * values[0] + 1e-6
