"""The compressions by themselves: conservation over many steps, unbiasedness, variance, packing, bad input."""

from __future__ import annotations

import math
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from deep500.distributed import Serial, Threads
from deep500.distributed.compression.base import Compression
from deep500.distributed.compression.qsgd import bits_of, pack, quantize, unpack
from deep500.distributed.compression.topk import largest
from deep500.distributed.schemes import QSGD, PowerSGD, SignSGD, SparseAllreduce, TopK
from deep500.errors import InputError
from deep500.training.optimizers import GradientDescent
from tests.training.linear import FakeExecutor, linear_network

RNG = np.random.default_rng(0)
NAMES = ["w", "b"]  # (4, 3) and (3,)
FEEDBACK = {
    "TopK": (TopK, {"k": 2}),
    "TopK-sparse": (TopK, {"k": 2, "sparse": True}),
    "SignSGD": (SignSGD, {}),
    "PowerSGD": (PowerSGD, {"rank": 1}),
}


def make(kind: Any, comm: Any = None, dtype: str = "float64", **options: Any) -> Any:
    base = GradientDescent(FakeExecutor(linear_network(dtype=dtype)))
    return kind(base, Serial() if comm is None else comm, **options)


def random_gradients(rng: np.random.Generator, dtype: str = "float64") -> list[np.ndarray]:
    return [rng.normal(size=(4, 3)).astype(dtype), rng.normal(size=3).astype(dtype)]


@pytest.mark.parametrize("name", FEEDBACK)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_nothing_is_lost_over_200_steps(name: str, ranks: int) -> None:
    kind, options = FEEDBACK[name]

    def work(comm: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        scheme, rng = make(kind, comm, **options), np.random.default_rng(comm.rank)
        scheme.samples = comm.rank + 1
        brought, applied = np.zeros(15), np.zeros(15)
        for _ in range(200):
            gradients = random_gradients(rng)
            brought += np.concatenate([g.ravel() for g in gradients]) * scheme.samples / (ranks * (ranks + 1) / 2)
            applied += np.concatenate([g.ravel() for g in scheme.exchange_gradients(NAMES, gradients)])
        return brought, applied, np.concatenate([scheme.residuals[n].ravel() for n in NAMES])

    results = Threads(ranks).run(work)
    brought, owed = (sum(result[i] for result in results) for i in (0, 2))
    deviation = np.abs(results[0][1] + owed - brought).max()
    print(f"{name} on {ranks}: conserved to {deviation:.1e}, residual up to {np.abs(owed).max():.1f}")
    assert deviation < 4.6e-14
    assert np.abs(owed).max() > 0.1, "nothing was held back"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_topk_sends_the_largest(dtype: str) -> None:
    scheme, gradients = make(TopK, dtype=dtype, k=2), random_gradients(RNG, dtype)
    scheme.samples, size = 4, np.dtype(dtype).itemsize
    everything = np.concatenate([g.ravel() for g in gradients])
    got = np.concatenate([g.ravel() for g in scheme.exchange_gradients(NAMES, gradients)])
    kept = np.flatnonzero(got)
    assert set(kept) == set(np.argsort(-np.abs(everything))[:2]) and (got[kept] == everything[kept]).all()
    assert scheme.comm.traffic.payload_bytes == 2 * (4 + size) and got.dtype == dtype


def test_largest_takes_nan_and_ties() -> None:
    assert largest(np.array([1.0, np.nan, 5.0]), 1).tolist() == [1]
    assert largest(np.ones(5), 3).size == 3 and largest(np.ones(2), 2).tolist() == [0, 1]


def test_gradients_that_are_not_finite_arrive_as_such() -> None:
    """A diverged run must be seen as one, not be rounded away."""
    for kind in (TopK, SignSGD, PowerSGD, QSGD, SparseAllreduce):
        for bad in (np.nan, np.inf):
            scheme, gradients = make(kind), random_gradients(RNG)
            scheme.samples, gradients[0][1, 1] = 1, bad
            got = np.concatenate([g.ravel() for g in scheme.exchange_gradients(NAMES, gradients)])
            assert not np.isfinite(got).all(), (kind.__name__, bad)


@pytest.mark.parametrize("levels", [1, 2, 4, 15])
def test_qsgd_is_unbiased_and_varies_no_more_than_proven(levels: int) -> None:
    draws, n = 40_000, 64
    vector = RNG.normal(size=n)
    norm2, sums, squares = vector @ vector, np.zeros(n), np.zeros(n)
    for _ in range(10):
        codes, norms = quantize(np.broadcast_to(vector, (draws // 10, n)), levels, RNG)
        error = norms[:, None] * codes / levels - vector
        sums, squares = sums + error.sum(0), squares + (error**2).sum(0)
    variance = squares / draws
    z = np.abs(sums / draws / np.sqrt(variance / draws)).max()
    bound = min(n / levels**2, math.sqrt(n) / levels)
    print(f"QSGD s={levels}: max |z| {z:.2f} over {n}, variance/norm^2 {variance.sum() / norm2:.3f} <= {bound:.3f}")
    assert z < 4.5  # exceeded by one of 64 normal variables with probability 4e-4
    assert 0.02 * bound < variance.sum() / norm2 <= bound
    assert np.abs(codes).max() <= levels


def test_qsgd_draws_are_a_function_of_seed_rank_and_step() -> None:
    def work(comm: Any, seed: int, steps: int) -> list[np.ndarray]:
        scheme, gradients = make(QSGD, comm, levels=1, seed=seed), random_gradients(np.random.default_rng(1))
        scheme.samples, scheme.steps = 1, steps
        return [*scheme.exchange_gradients(NAMES, gradients), scheme.comm.rank]

    first, again = (Threads(2).run(work, 3, 0) for _ in range(2))
    other_seed, other_step = Threads(2).run(work, 4, 0), Threads(2).run(work, 3, 1)
    assert (first[0][0] == again[0][0]).all() and (first[0][0] == first[1][0]).all()
    assert (first[0][0] != other_seed[0][0]).any() and (first[0][0] != other_step[0][0]).any()


def test_ranks_draw_for_themselves() -> None:
    """The same draws on all ranks would not average out."""
    sent = Threads(2).run(lambda comm: make(QSGD, comm, levels=1, seed=0).encode(_flat()))
    assert (sent[0] != sent[1]).any()


def _flat() -> Any:
    from deep500.distributed.compression.base import Flat

    values = np.random.default_rng(2).normal(size=200)
    return Flat(0, values, {"w": values})


@hypothesis.given(st.integers(1, 300), st.lists(st.integers(0, 10**6), max_size=70))
def test_packing_is_exact_and_as_small_as_the_levels_allow(levels: int, numbers: list[int]) -> None:
    codes = np.array(numbers, np.int64) % (2 * levels + 1)
    bits = bits_of(levels)
    assert bits == math.ceil(math.log2(2 * levels + 1))
    packed = pack(codes, bits)
    assert packed.size == bits * math.ceil(codes.size / 8)
    assert unpack(packed, bits, codes.size).tolist() == codes.tolist()


def test_signs_and_scales() -> None:
    scheme, gradients = make(SignSGD), random_gradients(RNG)
    scheme.samples = 1
    for got, g in zip(scheme.exchange_gradients(NAMES, gradients), gradients, strict=True):
        np.testing.assert_allclose(got, np.abs(g).mean() * np.sign(g), rtol=1e-14)
    assert scheme.comm.traffic.payload_bytes == 2 + 2 * 8  # 15 bits, two scales


@pytest.mark.parametrize("kind", [TopK, SignSGD, PowerSGD, QSGD, SparseAllreduce])
def test_integer_gradients_and_gradients_of_nothing(kind: Any) -> None:
    scheme = make(kind)
    scheme.samples = 1
    with pytest.raises(InputError, match="got a gradient of dtype int64; expected floating point"):
        scheme.exchange_gradients(["w"], [np.ones(3, np.int64)])
    assert scheme.exchange_gradients(["w"], [np.zeros((0, 3))])[0].shape == (0, 3)


def test_narrow_gradients_are_summed_and_owed_in_float32() -> None:
    scheme = make(TopK, k=1)
    scheme.samples = 1
    got = scheme.exchange_gradients(["w"], [np.array([1.0, 2.0], np.float16)])[0]
    assert got.dtype == np.float16 and got.tolist() == [0.0, 2.0] and scheme.residuals["w"].dtype == np.float32


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (TopK, {"ratio": 0.1, "k": 3}, "got ratio=0.1 and k=3; expected one of them"),
        (TopK, {"ratio": 0.0}, "got ratio=0.0; expected a number > 0 and <= 1"),
        (TopK, {"ratio": 1.5}, "got ratio=1.5"),
        (TopK, {"k": 0}, "got k 0; expected an integer of at least 1"),
        (QSGD, {"levels": 0}, "got levels 0"),
        (QSGD, {"seed": -1}, "got seed -1"),
        (QSGD, {"chunk": 1.5}, "got chunk 1.5"),
        (PowerSGD, {"rank": 0}, "got rank 0"),
    ],
)
def test_bad_options_are_refused(kind: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make(kind, **options)


def test_k_above_the_number_of_elements_is_refused() -> None:
    scheme = make(TopK, k=16)
    scheme.samples = 1
    with pytest.raises(InputError, match="got k=16 for 15 elements; expected at most 15"):
        scheme.exchange_gradients(NAMES, random_gradients(RNG))


def test_exchange_outside_of_a_step_is_refused() -> None:
    """Every share would be 0, and every gradient gone."""
    with pytest.raises(InputError, match="got no samples on any rank; expected a batch"):
        make(SignSGD).exchange_gradients(NAMES, random_gradients(RNG))


def test_state_of_another_network_is_refused() -> None:
    scheme = make(SignSGD)
    with pytest.raises(InputError, match="got residual of 'x'; expected a parameter"):
        scheme.load_own_state({"residual/x": np.zeros(3)})
    with pytest.raises(InputError, match=r"got residual of 'b' with shape \(4,\); expected \(3,\)"):
        scheme.load_own_state({"residual/b": np.zeros(4)})


def test_residuals_of_parameters_that_are_gone_are_dropped() -> None:
    scheme: Compression = make(TopK, k=1)
    scheme.samples = 1
    scheme.exchange_gradients(NAMES, random_gradients(RNG))
    owed = scheme.residuals["b"].copy()
    scheme.exchange_gradients(["b"], [np.zeros(3)])
    assert set(scheme.residuals) == {"b"} and np.abs(owed).max() > 0
