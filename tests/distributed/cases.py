"""Cases that try the driver itself."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from deep500.distributed import Communicator


def who(comm: Communicator) -> dict[str, Any]:
    """Every rank names itself and adds up all ranks."""
    return {
        "rank": comm.rank,
        "size": comm.size,
        "transport": comm.transport,
        "sum": comm.all_reduce(np.array([comm.rank])).tolist(),
    }


def fail(comm: Communicator, rank: int) -> None:
    """One rank raises while the others wait for it."""
    if comm.rank == rank:
        raise ValueError("this rank fails")
    comm.barrier()


def hang(comm: Communicator) -> None:
    """Rank 0 waits for a message that no rank sends."""
    if comm.rank == 0:
        comm.receive(np.zeros(1), 1)
    comm.barrier()


def sleep(comm: Communicator, seconds: float) -> None:
    """Rank 1 does nothing for a while, outside any call of the communicator."""
    if comm.rank == 1:
        time.sleep(seconds)
