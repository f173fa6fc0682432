"""Collectives on arrays split along any axis, in pieces that may differ by one: kernels of the nodes of parallel plans.

The nodes (``AllReduce``, ``AllGather``, ``ReduceScatter``, ``AllToAll``, ``Broadcast`` of domain ``deep500``) have
their shapes and gradients in the plugin ``custom_ops/collectives``; :func:`run_collective` is the kernel of them all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np

from deep500.distributed.transports.communicator import Communicator
from deep500.distributed.world import world
from deep500.errors import CommunicationError, InputError

_COMBINE: Mapping[str, Callable[..., np.ndarray]] = {"max": np.max, "min": np.min}
_present = threading.local()


@contextmanager
def communicating_by(comm: Communicator) -> Iterator[None]:
    """Within it the collective nodes that this thread runs communicate by this communicator.

    Example:
        >>> from deep500.distributed import Serial
        >>> with communicating_by(serial := Serial()):
        ...     present_communicator() is serial
        True
    """
    before = getattr(_present, "comm", None)
    _present.comm = comm
    try:
        yield
    finally:
        _present.comm = before


def present_communicator() -> Communicator:
    """The communicator of :func:`communicating_by`, else that of this process."""
    comm = getattr(_present, "comm", None)
    return world() if comm is None else comm


def run_collective(op_type: str, array: np.ndarray, attributes: Mapping[str, Any], comm: Communicator) -> np.ndarray:
    """Run a collective node.

    Args:
        op_type: ``"AllReduce"``, ``"AllGather"``, ``"ReduceScatter"``, ``"AllToAll"`` or ``"Broadcast"``.
        array: this rank's part.
        attributes: the node's.
        comm: all ranks call it together.

    Raises:
        CommunicationError: sizes for another number of ranks, or a node that was made for another rank.
        InputError: a dtype without sums, or another group than ``"ranks"``.

    Example:
        >>> from deep500.distributed import Threads
        >>> def gather(comm):
        ...     part = np.full((1, 2 - comm.rank), comm.rank)
        ...     return run_collective("AllGather", part, {"axis": 1, "sizes": (2, 1)}, comm).tolist()
        >>> Threads(2).run(gather)
        [[[0, 0, 1]], [[0, 0, 1]]]
    """
    if attributes.get("group", "ranks") != "ranks":
        raise InputError(f"{op_type}: got group {attributes['group']!r}; expected 'ranks', the only group: name it")
    for name in ("sizes", "gather_sizes"):
        sizes = attributes.get(name)
        if sizes is not None and len(sizes) != comm.size:
            raise CommunicationError(
                f"{op_type}: got {name}={tuple(sizes)} on {comm.size} ranks; expected one size a rank: start "
                f"{len(sizes)} ranks, or plan for {comm.size}"
            )
    if attributes.get("rank", comm.rank) != comm.rank:
        raise CommunicationError(
            f"{op_type}: got the network of rank {attributes['rank']} on rank {comm.rank}; expected this rank's: run "
            "each rank's own network"
        )
    return _KERNELS[op_type](np.asarray(array, order="C"), attributes, comm)


def sum_together(arrays: Sequence[np.ndarray], attributes: Mapping[str, Any], comm: Communicator) -> list[np.ndarray]:
    """The sums over ranks of several arrays of one dtype, by one message.

    Example:
        >>> from deep500.distributed import Threads
        >>> def work(comm):
        ...     return [a.tolist() for a in sum_together([np.ones(2), np.array([[float(comm.rank)]])], {}, comm)]
        >>> Threads(2).run(work)[1]
        [[2.0, 2.0], [[1.0]]]
    """
    whole = np.concatenate([array.reshape(-1) for array in arrays]) if len(arrays) > 1 else arrays[0].reshape(-1)
    parts = np.split(run_collective("AllReduce", whole, attributes, comm), np.cumsum([a.size for a in arrays])[:-1])
    return [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]


def _all_reduce(array: np.ndarray, attributes: Mapping[str, Any], comm: Communicator) -> np.ndarray:
    reduction = attributes.get("reduction", "sum")
    if array.dtype.kind not in "iufc":
        raise InputError(f"AllReduce: got {array.dtype}; expected numbers: Cast them")
    if reduction == "sum":
        return comm.all_reduce(array.copy())
    if reduction not in _COMBINE:
        raise InputError(f"AllReduce: got reduction {reduction!r}; expected sum, max or min: choose such a reduction")
    return np.asarray(_COMBINE[reduction](comm.all_gather(array), axis=0))


def _all_gather(array: np.ndarray, attributes: Mapping[str, Any], comm: Communicator) -> np.ndarray:
    axis, sizes = attributes["axis"], attributes["sizes"]
    rows = comm.all_gather(_filled(_front(array, axis), max(sizes)))
    if min(sizes) == max(sizes):
        return _back(rows.reshape(sum(sizes), *rows.shape[2:]), axis)
    return _back(np.concatenate([part[:n] for part, n in zip(rows, sizes, strict=True)]), axis)


def _reduce_scatter(array: np.ndarray, attributes: Mapping[str, Any], comm: Communicator) -> np.ndarray:
    axis, sizes = attributes["axis"], attributes["sizes"]
    if attributes.get("reduction", "sum") != "sum":
        raise InputError(f"ReduceScatter: got reduction {attributes['reduction']!r}; expected 'sum', the only one here")
    parts = front = _front(array, axis)
    if min(sizes) < max(sizes):
        parts = np.concatenate([_filled(front[begin:end], max(sizes)) for begin, end in _bounds(sizes)])
    elif np.shares_memory(front, array):
        parts = front.copy()  # communicators may write into what they are given
    return _back(comm.reduce_scatter(parts)[: sizes[comm.rank]], axis)


def _all_to_all(array: np.ndarray, attributes: Mapping[str, Any], comm: Communicator) -> np.ndarray:
    axis, sizes = attributes["axis"], attributes["sizes"]
    gather_axis, gather_sizes = attributes["gather_axis"], attributes["gather_sizes"]
    parts = [np.take(array, range(begin, end), axis) for begin, end in _bounds(sizes)]
    received = {comm.rank: parts[comm.rank]}
    for source in range(comm.size):
        if source != comm.rank:
            shape = list(parts[comm.rank].shape)
            shape[gather_axis] = gather_sizes[source]
            received[source] = np.empty(shape, array.dtype)
    outgoing = {rank: np.ascontiguousarray(part) for rank, part in enumerate(parts) if rank != comm.rank}
    comm.exchange(outgoing, {rank: part for rank, part in received.items() if rank != comm.rank})
    return np.ascontiguousarray(np.concatenate([received[rank] for rank in range(comm.size)], gather_axis))


def _broadcast(array: np.ndarray, attributes: Mapping[str, Any], comm: Communicator) -> np.ndarray:
    return comm.broadcast(array.copy(), attributes.get("root", 0))


def _front(array: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, axis, 0) if axis else array)


def _back(array: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, 0, axis) if axis else array)


def _filled(array: np.ndarray, rows: int) -> np.ndarray:
    """An array with zeros below it, up to this number of rows."""
    if len(array) == rows:
        return np.ascontiguousarray(array)
    filled = np.zeros((rows, *array.shape[1:]), array.dtype)
    filled[: len(array)] = array
    return filled


def _bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    ends = list(accumulate(sizes))
    return list(zip([0, *ends[:-1]], ends, strict=True))


_KERNELS: Mapping[str, Callable[..., np.ndarray]] = {
    "AllReduce": _all_reduce,
    "AllGather": _all_gather,
    "ReduceScatter": _reduce_scatter,
    "AllToAll": _all_to_all,
    "Broadcast": _broadcast,
}

COLLECTIVES = frozenset(_KERNELS)
"""Types of the nodes that communicate."""
