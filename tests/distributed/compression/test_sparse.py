"""Sparse sums over ranks against dense ones, and what they send."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from deep500.distributed import Serial, Threads
from deep500.distributed.compression.sparse import sparse_all_reduce
from deep500.errors import InputError


def dense(indices: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    full = np.zeros(size, values.dtype)
    full[indices] = values
    return full


@st.composite
def problems(draw: Any) -> tuple[int, list[list[int]], str, int]:
    size, ranks = draw(st.integers(1, 40)), draw(st.integers(1, 9))
    chosen = st.lists(st.integers(0, size - 1), unique=True, max_size=size).map(sorted)
    dtype, seed = draw(st.sampled_from(["float32", "float64"])), draw(st.integers(0, 99))
    return size, [draw(chosen) for _ in range(ranks)], dtype, seed


@hypothesis.given(problems())
def test_equals_the_sum_of_the_dense_vectors(problem: tuple[int, list[list[int]], str, int]) -> None:
    size, chosen, dtype, seed = problem
    rng = np.random.default_rng(seed)
    lists = [(np.array(indices, np.int64), rng.integers(-50, 50, len(indices)).astype(dtype)) for indices in chosen]
    want = sum(dense(*pair, size) for pair in lists)  # whole numbers: exact in any order

    def work(comm: Any) -> np.ndarray:
        return sparse_all_reduce(comm, *lists[comm.rank], size)

    for got in Threads(len(chosen), seed).run(work):
        assert got.dtype == dtype and (got == want).all()


@pytest.mark.parametrize("ranks", range(1, 10))
def test_every_rank_has_the_same_bits(ranks: int) -> None:
    def work(comm: Any) -> np.ndarray:
        rng = np.random.default_rng(comm.rank)
        indices = np.sort(rng.choice(300, 60, replace=False))
        return sparse_all_reduce(comm, indices, rng.normal(size=60).astype("float32"), 300)

    sums = Threads(ranks).run(work)
    assert len({total.tobytes() for total in sums}) == 1
    rngs = [np.random.default_rng(rank) for rank in range(ranks)]
    want = sum(dense(np.sort(r.choice(300, 60, replace=False)), r.normal(size=60).astype("f4"), 300) for r in rngs)
    np.testing.assert_allclose(sums[0], want, rtol=1e-5, atol=1e-6)


COUNT, PAIR = 10, 4 + 4


@pytest.mark.parametrize(
    ("ranks", "overlap", "size", "want"),
    [  # payload of every rank
        (4, "all", 1000, [2 * COUNT * PAIR] * 4),  # log2 P rounds of the same list
        (8, "all", 1000, [3 * COUNT * PAIR] * 8),
        (4, "none", 1000, [3 * COUNT * PAIR] * 4),  # P - 1 lists' worth: 1 + 2
        (8, "none", 1000, [7 * COUNT * PAIR] * 8),
        (3, "none", 1000, [COUNT * PAIR * (2 + 3), COUNT * PAIR, COUNT * PAIR]),  # 2 gives to 0, gets the sum
        (4, "none", 40, [COUNT * PAIR + 2 * COUNT * PAIR] * 4),  # 20 pairs are as long as 40 elements: still a list
        (4, "all", 15, [2 * 15 * 4] * 4),  # 10 pairs are longer than 15 elements: dense from the start
        (8, "none", 80, [COUNT * PAIR * (1 + 2 + 4)] * 8),
        (8, "none", 79, [COUNT * PAIR * (1 + 2) + 79 * 4] * 8),  # 40 pairs are longer than 79 elements: dense now
        (16, "none", 161, [COUNT * PAIR * (1 + 2 + 4 + 8)] * 16),
        (16, "none", 159, [COUNT * PAIR * (1 + 2 + 4) + 159 * 4] * 16),
        (6, "none", 30, [360, 360, 200, 200, 80, 80]),  # 4 and 5 give 80 bytes; with them 0 and 1 are dense
        (1, "none", 1000, [0]),
    ],
)
def test_payload(ranks: int, overlap: str, size: int, want: list[int]) -> None:
    def work(comm: Any) -> tuple[int, int, float]:
        begin = 0 if overlap == "all" else comm.rank * COUNT
        indices = np.arange(begin, begin + COUNT) % size
        total = sparse_all_reduce(comm, np.sort(indices), np.ones(COUNT, "f4"), size)
        counted = comm.traffic.kinds.get("exchange")
        return comm.traffic.payload_bytes, 0 if counted is None else counted.control_bytes, float(total.sum())

    results = Threads(ranks).run(work)
    assert [result[0] for result in results] == want
    assert [result[2] for result in results] == [ranks * COUNT] * ranks
    rounds = {1: [0], 3: [2, 1, 1], 4: [2] * 4, 6: [3, 3, 2, 2, 1, 1], 8: [3] * 8, 16: [4] * 16}[ranks]
    assert [result[1] for result in results] == [8 * count for count in rounds]


@pytest.mark.parametrize(
    ("indices", "values"),
    [([2, 1], [1.0, 1.0]), ([1, 1], [1.0, 1.0]), ([-1, 1], [1.0, 1.0]), ([1, 5], [1.0, 1.0]), ([1], [1.0, 1.0])],
)
def test_bad_indices_are_refused(indices: list[int], values: list[float]) -> None:
    with pytest.raises(InputError, match="expected one ascending index below the size per value"):
        sparse_all_reduce(Serial(), np.array(indices), np.array(values), 5)
