"""Sums of sparse vectors over ranks, and `SparseAllreduce`: gradients that are sparse by themselves, without loss."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from deep500.distributed.compression.base import Compression, Flat, as_bytes
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError

Pairs: TypeAlias = tuple[np.ndarray, np.ndarray] | np.ndarray
"""A vector: ascending indices with their values, or (once that is less) all its elements."""


def index_type(size: int) -> np.dtype:
    """In which the indices of ``size`` elements travel.

    Example:
        >>> index_type(10**6), index_type(2**31 + 1)
        (dtype('int32'), dtype('int64'))
    """
    return np.dtype(np.int32 if size <= 2**31 else np.int64)


def sparse_all_reduce(comm: Communicator, indices: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """The sum over all ranks of sparse vectors, dense, the same bits on every rank.

    Recursive doubling (Renggli et al. 2019, arXiv 1802.08021, section 5.3.1, SSAR_Recursive_double): in round ``t``
    rank ``p`` swaps what it has with rank ``p xor 2^t``, so that ``log2 P`` rounds do. A list whose bytes exceed those
    of the dense vector goes on as the dense vector (section 5.1). Where P is not a power of two, the ranks past the
    largest power of two below first give theirs to a rank that takes part, and get the sum from it in the end.

    Payload per rank: of a list ``count (4 + itemsize)`` bytes, of a dense vector ``size itemsize``, summed over what it
    sends: one message per round. Each has a header of 8 bytes besides, counted as control.

    Args:
        comm: the ranks.
        indices: (count,) integers, ascending and different from each other, 0 <= index < ``size``.
        values: (count,) of a floating-point dtype that is the same on all ranks; ``count`` may differ between ranks.
        size: number of elements of the dense vector.

    Returns:
        (size,) array of the values' dtype.

    Raises:
        InputError: indices that are not ascending or outside the vector, or not as many as values.

    Example:
        >>> from deep500.distributed import Threads
        >>> def work(comm):
        ...     return sparse_all_reduce(comm, np.array([0, comm.rank + 1]), np.array([1.0, 5.0]), 5).tolist()
        >>> Threads(3).run(work)[2]
        [3.0, 5.0, 5.0, 5.0, 0.0]
    """
    inside = indices.size == 0 or (0 <= indices[0] and indices[-1] < size and bool((np.diff(indices) > 0).all()))
    if indices.shape != values.shape or indices.ndim != 1 or not inside:
        raise InputError(
            f"got indices {indices.shape} and values {values.shape} of a vector of {size}; expected one ascending "
            "index below the size per value: sort them and add up repeated ones"
        )
    mine = _shorter(indices.astype(index_type(size)), values, size)
    full = 1 << (comm.size.bit_length() - 1)  # the largest power of two that is not above P
    if comm.rank >= full:
        _send(comm, mine, comm.rank - full)
        return _dense(_receive(comm, comm.rank - full, size, values.dtype), size)
    if comm.rank + full < comm.size:
        mine = _merge(mine, _receive(comm, comm.rank + full, size, values.dtype), size)
    distance = 1
    while distance < full:
        mine = _merge(mine, _swap(comm, mine, comm.rank ^ distance, size), size)
        distance *= 2
    if comm.rank + full < comm.size:
        _send(comm, mine, comm.rank + full)
    return _dense(mine, size)


def _shorter(indices: np.ndarray, values: np.ndarray, size: int) -> Pairs:
    pairs = (indices, values)
    return _dense(pairs, size) if indices.nbytes + values.nbytes > size * values.itemsize else pairs


def _dense(vector: Pairs, size: int) -> np.ndarray:
    if isinstance(vector, np.ndarray):
        return vector
    full = np.zeros(size, vector[1].dtype)
    full[vector[0]] = vector[1]
    return full


def _merge(left: Pairs, right: Pairs, size: int) -> Pairs:
    """The sum, the same bits in either order."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left + right
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        full, pairs = (left, right) if isinstance(left, np.ndarray) else (right, left)
        total = np.array(full)
        total[pairs[0]] += pairs[1]
        return total
    indices, places = np.unique(np.concatenate([left[0], right[0]]), return_inverse=True)
    values = np.zeros(indices.size, left[1].dtype)
    values[places[: left[0].size]] = left[1]
    values[places[left[0].size :]] += right[1]
    return _shorter(indices, values, size)


def _header(vector: Pairs) -> np.ndarray:
    return np.array([-1 if isinstance(vector, np.ndarray) else vector[0].size], np.int64)


def _body(vector: Pairs) -> np.ndarray:
    return as_bytes(vector) if isinstance(vector, np.ndarray) else as_bytes(*vector)


def _room(header: np.ndarray, size: int, dtype: np.dtype) -> np.ndarray:
    count = int(header[0])
    return np.empty(size * dtype.itemsize if count < 0 else count * (index_type(size).itemsize + dtype.itemsize), "u1")


def _read(header: np.ndarray, body: np.ndarray, size: int, dtype: np.dtype) -> Pairs:
    count = int(header[0])
    if count < 0:
        return body.view(dtype)
    border = count * index_type(size).itemsize
    return body[:border].view(index_type(size)), body[border:].view(dtype)


def _send(comm: Communicator, vector: Pairs, rank: int) -> None:
    comm.exchange({rank: _header(vector)}, {}, control=8)
    comm.exchange({rank: _body(vector)}, {})


def _receive(comm: Communicator, rank: int, size: int, dtype: np.dtype) -> Pairs:
    header = np.empty(1, np.int64)
    comm.exchange({}, {rank: header})
    body = _room(header, size, dtype)
    comm.exchange({}, {rank: body})
    return _read(header, body, size, dtype)


def _swap(comm: Communicator, vector: Pairs, rank: int, size: int) -> Pairs:
    dtype = vector.dtype if isinstance(vector, np.ndarray) else vector[1].dtype
    header = np.empty(1, np.int64)
    comm.exchange({rank: _header(vector)}, {rank: header}, control=8)
    body = _room(header, size, dtype)
    comm.exchange({rank: _body(vector)}, {rank: body})
    return _read(header, body, size, dtype)


class SparseAllreduce(Compression):
    """The mean of gradients that are sparse by themselves (embeddings, rectified layers): only what is not 0 travels,
    as lists of indices and values that ranks merge on the way (SparCML, Renggli et al. 2019, arXiv 1802.08021).

    Nothing is left out: equal to :class:`~deep500.distributed.schemes.synchronous.ConsistentDecentralized` up to the
    order of sums. For SparCML's own training, which sends the largest elements, see
    :class:`~deep500.distributed.compression.topk.TopK` with ``sparse=True``.

    Payload per step and rank: that of :func:`sparse_all_reduce`, between ``count (4 + 4) log2 P`` bytes in float32,
    where all ranks have the same elements, and ``count (4 + 4) (P - 1)``, where they have none in common; never more
    than a dense vector per message.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`; native ones work too.
    """

    error_feedback = False  # there is no error

    def combine(self, flat: Flat) -> tuple[np.ndarray, np.ndarray]:
        """Sum what is not 0."""
        chosen = np.flatnonzero(flat.values)
        return sparse_all_reduce(self.comm, chosen, flat.values[chosen], flat.values.size), flat.values.copy()
