"""The view of a communicator that schemes hold: tensors in, tensors out, also under the historical names."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.distributed import Threads
from deep500.distributed.tensors import TensorCommunicator
from deep500.errors import InputError
from deep500.networks import add_loss, create
from tests.conftest import load_backend


def on(ranks, backend, work):
    def start(comm):
        executor = load_backend(backend).from_model(add_loss(create("mlp", shape=(2,), classes=2)))
        mine = executor.network.to_tensor(np.array([1.0, 10.0], np.float32) * (comm.rank + 1))
        tensors = work(TensorCommunicator(comm, executor.network), mine)
        return [
            None if tensor is None else np.asarray(executor.network.to_numpy(tensor)).tolist() for tensor in tensors
        ]

    return Threads(ranks).run(start)


@pytest.mark.parametrize("backend", ["reference", pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))])
def test_sums_means_and_neighbours(backend):
    results = on(
        3,
        backend,
        lambda comm, x: [
            comm.sync_all(x),
            comm.mean(x),
            comm.sync_all_with_root(x),
            x,
            comm.reduce_from_neighbors(x),
            *comm.all_gather(x),
        ],
    )
    for rank, (total, mean, root, mine, around, *gathered) in enumerate(results):
        assert total == around == [6.0, 60.0] and mean == [2.0, 20.0] and root == [1.0, 10.0]
        assert mine == [rank + 1.0, 10.0 * (rank + 1)], "what was passed must stay as it is"
        assert gathered == [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]


def test_what_reaches_the_root():
    def work(comm, x):
        gathered = comm.gather_at_root(x)
        return [comm.sync_all_at_root(x), comm.sync_all_at_root(x, max_of), None if gathered is None else gathered[2]]

    def max_of(arrays):
        return np.max(arrays, axis=0)

    first, second, _ = on(3, "reference", work)
    assert first == [[6.0, 60.0], [3.0, 30.0], [3.0, 30.0]]
    assert second == [[2.0, 20.0], [2.0, 20.0], None]


def test_messages_to_and_from_the_root():
    def work(comm, x):
        if comm.rank:
            comm.send_to_root(x, tag=3)
            return [comm.wait_for_root(x, tag=4)]
        came = [comm.wait_for_any_rank(x, tag=3) for _ in range(comm.size - 1)]
        for tensor, rank in came:
            assert tensor.tolist() == [rank + 1.0, 10.0 * (rank + 1)]
            comm.send_to_rank(tensor * 2, rank, tag=4)
        return [x]

    assert on(3, "reference", work) == [[[1.0, 10.0]], [[4.0, 40.0]], [[6.0, 60.0]]]


def test_integers_have_no_mean():
    with pytest.raises(InputError, match="expected floating point"):
        on(2, "reference", lambda comm, x: [comm.mean(np.array([1, 2]))])
