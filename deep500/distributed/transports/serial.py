"""`Serial`: one rank. Every scheme and every program runs on it, without any branch for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deep500.distributed.transports.communicator import Communicator
from deep500.errors import CommunicationError


class Serial(Communicator):
    """One rank: nothing to exchange, everything counted as on many.

    Example:
        >>> comm = Serial()
        >>> comm.all_reduce(np.ones(2)).tolist(), comm.traffic.payload_bytes
        ([1.0, 1.0], 16)
    """

    transport = "serial"

    def __init__(self, timeout: float | None = None) -> None:
        super().__init__(0, 1, timeout)

    def _all_reduce(self, array: np.ndarray) -> None:
        pass

    def _broadcast(self, array: np.ndarray, root: int) -> None:
        pass

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        return array[None].copy()

    def _barrier(self) -> None:
        pass

    def _send(self, array: np.ndarray, dest: int, tag: int) -> None:
        raise CommunicationError("got a message from the only rank to itself; expected another rank: there is one rank")

    def _receive(self, array: np.ndarray, source: int, tag: int) -> int:
        raise CommunicationError("got one rank that waits for a message; expected another to send it: there is none")

    def _exchange(self, outgoing: Mapping[int, np.ndarray], incoming: Mapping[int, np.ndarray]) -> None:
        for source, array in incoming.items():
            array[...] = outgoing[source]  # itself
