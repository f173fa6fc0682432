"""Arrays whose shapes only the sender knows, from one rank to another: a header of fixed length, then all bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deep500.distributed.transports.communicator import Communicator
from deep500.tensors import numpy_dtype

_AXES = 8
_NONE = np.zeros(0, np.uint8)

Contents = Sequence[tuple[str, str]]
"""Names and dtypes, which both sides know."""


def swap(
    comm: Communicator, dest: int | None, outgoing: Mapping[str, np.ndarray], source: int | None, incoming: Contents
) -> dict[str, np.ndarray]:
    """Send arrays to one rank, or receive some from one, or both with the same rank at once.

    Args:
        comm: moves the bytes; the headers are counted as control.
        dest, source: ranks; None: nothing to send, nothing to receive. If both are given they are the same rank, which
            swaps at the same time: so neither waits for the other.
        outgoing: what to send, in the order that the other side expects; contiguous copies are made where needed.
        incoming: what comes.

    Example:
        >>> from deep500.distributed import Threads
        >>> def work(comm):
        ...     other, mine = 1 - comm.rank, np.full((1 + comm.rank,), 7.0)
        ...     return swap(comm, other, {"a": mine}, other, [("a", "float64")])
        >>> [result["a"].shape for result in Threads(2).run(work)]
        [(2,), (1,)]
    """
    header, data = _packed(outgoing)
    want = np.zeros(len(incoming) * (_AXES + 1), np.int64)
    if dest is not None and source is not None:
        comm.exchange({dest: header}, {source: want}, control=header.nbytes)
        got = np.empty(_length(want, incoming), np.uint8)
        comm.exchange({dest: data}, {source: got})
        return _unpacked(want, got, incoming)
    if dest is not None:
        comm.send(header, dest, _TAG, control=header.nbytes)
        comm.send(data, dest, _TAG)
    if source is None:
        return {}
    comm.receive(want, source, _TAG)
    got = np.empty(_length(want, incoming), np.uint8)
    comm.receive(got, source, _TAG)
    return _unpacked(want, got, incoming)


def _packed(arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    header = np.zeros((len(arrays), _AXES + 1), np.int64)
    for row, array in zip(header, arrays.values(), strict=True):
        row[0], row[1 : 1 + array.ndim] = array.ndim, array.shape
    parts = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values()]
    return header.reshape(-1), parts[0] if len(parts) == 1 else np.concatenate([_NONE, *parts])


def _places(header: np.ndarray, contents: Contents) -> list[tuple[tuple[int, ...], np.dtype]]:
    rows = header.reshape(len(contents), _AXES + 1).tolist()
    return [(tuple(row[1 : 1 + row[0]]), numpy_dtype(dtype)) for row, (_, dtype) in zip(rows, contents, strict=True)]


def _length(header: np.ndarray, contents: Contents) -> int:
    return sum(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape, dtype in _places(header, contents))


def _unpacked(header: np.ndarray, data: np.ndarray, contents: Contents) -> dict[str, np.ndarray]:
    arrays, begin = {}, 0
    for (name, _), (shape, dtype) in zip(contents, _places(header, contents), strict=True):
        end = begin + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        arrays[name] = data[begin:end].view(dtype).reshape(shape)
        begin = end
    return arrays


_TAG = 32764  # away from the tags of users
