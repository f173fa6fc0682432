"""What every transport promises, as cases for any of them; see ``communicator.py`` for the promises."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from typing import Any

import numpy as np

from deep500.distributed import ANY, Communicator
from deep500.errors import CommunicationError

DTYPES = ("float32", "float64", "float16", "int32", "int64", "uint8")


def collectives(comm: Communicator) -> dict[str, Any]:
    """Every collective call on every dtype, and on shapes with one, no and many elements."""
    results: dict[str, Any] = {}
    for dtype in DTYPES:
        base = np.arange(6, dtype=dtype).reshape(2, 3)
        mine = (base + comm.rank).astype(dtype)
        # fmt: off
        results[dtype] = [
            comm.all_reduce(mine.copy()).tolist(), comm.reduce(mine.copy(), root=comm.size - 1).tolist(),
            comm.broadcast(mine.copy(), root=comm.size - 1).tolist(), comm.all_gather(mine).tolist(),
            comm.reduce_scatter(np.repeat(mine, comm.size, axis=0)).tolist(),
        ]
        # fmt: on
    scalar = comm.all_reduce(np.array(1.5 + comm.rank))
    results["scalar"] = [list(scalar.shape), scalar.item()]
    empty = np.zeros((0, 2))
    results["empty"] = [
        list(comm.all_reduce(empty).shape),
        list(comm.broadcast(empty).shape),
        list(comm.all_gather(empty).shape),
    ]
    ragged = comm.all_gather_ragged(np.arange(comm.rank, dtype=np.float32))
    results["ragged"] = [array.tolist() for array in ragged]
    comm.barrier()
    return results


def expected_collectives(rank: int, size: int) -> dict[str, Any]:
    """The same by NumPy in one process."""
    results: dict[str, Any] = {}
    for dtype in DTYPES:
        base = np.arange(6, dtype=dtype).reshape(2, 3)
        all_of = [(base + peer).astype(dtype) for peer in range(size)]
        total = np.sum(all_of, axis=0, dtype=dtype)
        rows = np.repeat(total, size, axis=0)[2 * rank : 2 * rank + 2]
        # fmt: off
        results[dtype] = [
            total.tolist(), (total if rank == size - 1 else all_of[rank]).tolist(), all_of[-1].tolist(),
            np.stack(all_of).tolist(), rows.tolist(),
        ]
        # fmt: on
    results["scalar"] = [[], sum(1.5 + peer for peer in range(size))]
    results["empty"] = [[0, 2], [0, 2], [size, 0, 2]]
    results["ragged"] = [list(map(float, range(peer))) for peer in range(size)]
    return results


def bits(comm: Communicator, lengths: list[int]) -> list[str]:
    """Hashes of sums whose rounding depends on the order; started together, waited for in turn."""
    hashes = []
    for dtype in ("float32", "float64"):
        rng = np.random.default_rng(comm.rank)
        arrays = [(rng.standard_normal(n) * 10.0 ** rng.integers(-6, 6, n)).astype(dtype) for n in lengths]
        pending = [comm.start_all_reduce(array) for array in arrays]
        for request in pending:
            request.wait()
        hashes += [hashlib.sha256(array.tobytes()).hexdigest() for array in arrays]
    return hashes


def messages(comm: Communicator) -> dict[str, Any]:
    """One to one: in order, from any rank, to both neighbours at once, to oneself, empty ones, read-only ones."""
    rank, size = comm.rank, comm.size
    after, before = (rank + 1) % size, (rank - 1) % size
    ordered = []
    if rank == 0:
        for value in range(4):
            comm.send(np.array([value], np.int64), 1, tag=5)
    if rank == 1:
        for _ in range(4):
            box = np.zeros(1, np.int64)
            comm.receive(box, 0, tag=5)
            ordered.append(int(box[0]))
    sources: dict[int, list[Any]] = {}
    if rank == 0:
        for _ in range(size - 1):
            box = np.zeros(2)
            source = comm.receive(box, ANY, tag=6)
            sources[source] = box.tolist()
    else:
        fixed = np.full(2, rank, np.float64)
        fixed.flags.writeable = False
        comm.send(fixed, 0, tag=6)
        if rank == size - 1:
            comm.send(np.zeros(0), 0, tag=7)
    if rank == 0:
        sources[comm.receive(np.zeros(0), ANY, tag=7)].append("and nothing")
    mine = np.full(3, rank, np.float32)
    boxes = {peer: np.zeros(3, np.float32) for peer in {before, rank, after}}
    comm.exchange(dict.fromkeys(boxes, mine), boxes)
    empty = {peer: np.zeros(0, np.float32) for peer in {before, after}}
    comm.exchange(empty, {peer: np.zeros(0, np.float32) for peer in empty})
    return {
        "ordered": ordered,
        "sources": sorted(sources.items()),
        "neighbours": {str(peer): box.tolist() for peer, box in sorted(boxes.items())},
    }


def expected_messages(rank: int, size: int) -> dict[str, Any]:
    """What every rank gets."""
    return {
        "ordered": [0, 1, 2, 3] if rank == 1 else [],
        "sources": [
            [source, [source, source] + ["and nothing"] * (source == size - 1)]
            for source in range(1, size)
            if rank == 0
        ],
        "neighbours": {
            str(neighbour): [neighbour] * 3 for neighbour in sorted({(rank - 1) % size, rank, (rank + 1) % size})
        },
    }


def overlapping(comm: Communicator) -> bool:
    """Whether a reduction that was started is done some time later, when nothing but ``poll`` was called."""
    array = np.ones(1_000_000, np.float32)
    pending = comm.start_all_reduce(array)
    end = time.perf_counter() + 3600
    while not (done := pending.poll()) and time.perf_counter() < end:
        pass
    pending.wait()
    return done and bool((array == comm.size).all())


def counted(comm: Communicator) -> dict[str, Any]:
    """What the counters hold after a few calls, times left out."""
    comm.traffic.reset()
    array = np.zeros(10, np.float32)
    comm.all_reduce(array, control=4)
    comm.start_all_reduce(array).wait()
    comm.broadcast(array)
    comm.exchange({(comm.rank + 1) % comm.size: array}, {(comm.rank - 1) % comm.size: array.copy()})
    counts = comm.traffic.as_dict()
    waited = all(count.pop("seconds") > 0 for count in counts.values())
    return {"waited": waited, **counts}


_COUNT = {"calls": 1, "messages": 1, "payload_bytes": 40, "control_bytes": 0}
COUNTED = {
    "waited": True,
    "all_reduce": {"calls": 2, "messages": 2, "payload_bytes": 76, "control_bytes": 4},
    "broadcast": _COUNT,
    "exchange": _COUNT,
}
"""What :func:`counted` returns on every transport."""


def everything(comm: Communicator, lengths: list[int]) -> dict[str, Any]:
    """All of the above, since starting ranks takes most of the time."""
    return {
        "collectives": collectives(comm),
        "messages": messages(comm),
        "counted": counted(comm),
        "overlapping": overlapping(comm),
        "bits": bits(comm, lengths),
    }


def fails(comm: Communicator, how: str) -> None:
    """Rank 1 ends in some way while the others wait for it; all are there by then, however slowly they start."""
    with comm.patience(3600.0):
        comm.barrier()
    if comm.rank == 1:
        if how == "raise":
            raise ValueError("this rank fails")
        if how == "leave":
            sys.exit(0)
        if how == "exit":
            os._exit(0)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3600)  # "hang": until the launcher ends it
    comm.barrier()


def fails_beside_torch(comm: Communicator, store: str) -> None:
    """Rank 0 raises in a program that uses MPI and torch.distributed, which hooks into uncaught exceptions too."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=comm.rank, world_size=comm.size)
    if comm.rank == 0:
        raise ValueError("this rank fails")
    comm.barrier()


def times_out(comm: Communicator) -> dict[str, list[Any]]:
    """What unanswered calls raise on rank 0, and after how many seconds; each on a communicator of its own."""
    outcomes: dict[str, list[Any]] = {}
    for name in ("receive", "any", "sum", "pending"):
        other = type(comm)(timeout=1.0)
        with other.patience(3600.0):
            if comm.rank > 0:
                time.sleep(2.0)
            other.barrier()
        begin = time.perf_counter()
        try:
            if comm.rank == 0:
                _wait_for_nobody(other, name)
                outcomes[name] = ["nothing was raised", 0.0]
        except CommunicationError as raised:
            outcomes[name] = [str(raised), time.perf_counter() - begin]
        comm.barrier()
        other.closed = True  # it can no longer be closed cleanly
    return outcomes


def _wait_for_nobody(comm: Communicator, call: str) -> None:
    array = np.zeros(3)
    if call in ("receive", "any"):
        comm.receive(array, 1 if call == "receive" else ANY)
    elif call == "sum":
        comm.all_reduce(array)
    else:
        comm.start_all_reduce(array).wait()


def pauses(comm: Any) -> dict[str, float]:
    """What share of a wait for rank 1 rank 0 spent computing, over MPI, told to pause; results are checked."""
    comm.waiting.always = True
    shares, total = {}, np.zeros(4)
    for name in ("all_reduce", "start_all_reduce", "barrier", "receive"):
        comm.barrier()
        begin, burnt = time.perf_counter(), time.process_time()
        if comm.rank == 1:
            time.sleep(0.5)
        total[...] = comm.rank + 1
        if name == "all_reduce":
            assert comm.all_reduce(total)[0] == 3
        elif name == "start_all_reduce":
            comm.start_all_reduce(total).wait()
            assert total[0] == 3
        elif name == "barrier":
            comm.barrier()
        elif comm.rank == 1:
            comm.send(total, 0)
        else:
            assert comm.receive(total, 1) == 1 and total[0] == 2
        shares[name] = (time.process_time() - burnt) / (time.perf_counter() - begin)
    return shares
