"""`Pretend`: one rank of an imagined many, to see which messages a scheme sends, and what else it takes.

Collectives return what this rank brought, at once; messages that it waits for are zeros. So a step takes the time of
everything but the network, and the communicator's ``traffic`` holds what a network would have to carry. What is
computed is of no use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.scaling.model import COLLECTIVES, Interconnect

ROWS = 8
"""Most ranks whose contribution is handed out; a scheme that decodes those of all takes so much longer with more."""


class Pretend(Communicator):
    """Rank 1 (rank 0 may be a server) of ``size``.

    Example:
        >>> comm = Pretend(4096)
        >>> comm.all_reduce(np.ones(2)).tolist(), comm.traffic.payload_bytes
        ([1.0, 1.0], 16)
    """

    transport = "pretend"

    def __init__(self, size: int) -> None:
        super().__init__(min(1, size - 1), size)

    def _all_reduce(self, array: np.ndarray) -> None:
        pass

    def _broadcast(self, array: np.ndarray, root: int) -> None:
        pass

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        return np.stack([array] * min(self.size, ROWS))

    def _barrier(self) -> None:
        pass

    def _send(self, array: np.ndarray, dest: int, tag: int) -> None:
        pass

    def _receive(self, array: np.ndarray, source: int, tag: int) -> int:
        array[...] = 0
        return max(0, source)

    def _exchange(self, outgoing: Mapping[int, np.ndarray], incoming: Mapping[int, np.ndarray]) -> None:
        mine = list(outgoing.values())
        for array in incoming.values():
            same = next((sent for sent in mine if sent.shape == array.shape and sent.dtype == array.dtype), None)
            array[...] = 0 if same is None else same


@dataclass(frozen=True)
class Calls:
    """Calls of one kind per step: how many messages or collectives, and bytes of each, bookkeeping included."""

    kind: str
    count: float
    size: float


@dataclass(frozen=True)
class Demand:
    """The calls and work that a scheme asks for per step on ``ranks`` ranks.

    Attributes:
        calls: of the network.
        payload: bytes of tensors that a rank hands in.
    """

    ranks: int
    calls: tuple[Calls, ...]
    payload: float

    def network_seconds(self, net: Interconnect) -> float:
        """Return what the calls cost, one after the other."""
        return sum(calls.count * COLLECTIVES[calls.kind](net, self.ranks, calls.size) for calls in self.calls)


def demand(make: Callable[[Communicator], Callable[[], object]], ranks: int, steps: int) -> Demand:
    """Make steps on imagined ranks and record what they send.

    Args:
        make: makes a step for a communicator.
        ranks: how many to pretend.
        steps: how many to make: a multiple of the scheme's period. One more is made before them.

    Raises:
        InputError: no steps.

    Example:
        >>> def make(comm):
        ...     return lambda: comm.all_reduce(np.ones(100))
        >>> asked = demand(make, ranks=16, steps=2)
        >>> asked.calls, asked.payload, asked.network_seconds(Interconnect(1.0, 0.0))
        ((Calls(kind='all_reduce', count=1.0, size=800.0),), 800.0, 4.0)
    """
    if steps < 1:
        raise InputError(f"got {steps} steps; expected at least one: pass a multiple of the scheme's period")
    comm = Pretend(ranks)
    step = make(comm)
    step()
    comm.traffic.reset()
    for _ in range(steps):
        step()
    calls = [
        Calls(kind, count.messages / steps, (count.payload_bytes + count.control_bytes) / count.messages)
        for kind, count in comm.traffic.kinds.items()
        if count.messages and kind in COLLECTIVES
    ]
    return Demand(ranks, tuple(calls), comm.traffic.payload_bytes / steps)
