"""`Threads`: several ranks in one process, for trying and testing schemes anywhere.

Ranks take turns: one runs until it has to wait for another, then the next that can go on runs. So the outcome is a
function of the program and of ``seed``, also for schemes that serve in the order of arrival, and ranks that all wait
for each other are found at once and named, instead of hanging. Sums are formed in the order of the ranks.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from deep500.distributed.transports.communicator import ANY, Communicator, default_timeout
from deep500.distributed.transports.turns import Round, Turns
from deep500.errors import CommunicationError, InputError

T = TypeVar("T")


class Threads:
    """A world of ``size`` ranks in this process.

    Args:
        size: number of ranks.
        seed: decides whose turn is next where several could go on; None: the next in the order of ranks.
        timeout: seconds that a rank may compute while others wait for it.

    Example:
        >>> Threads(2).run(lambda comm: comm.broadcast(np.array([comm.rank + 5])).item())
        [5, 5]
    """

    def __init__(self, size: int, seed: int | None = None, timeout: float | None = None) -> None:
        if size < 1:
            raise InputError(f"got {size} ranks; expected at least 1: pass a positive number")
        self.size, self.seed = size, seed
        self.timeout = default_timeout() if timeout is None else timeout

    def run(self, function: Callable[..., T], *args: Any) -> list[T]:
        """Call ``function(communicator, *args)`` on every rank; returns the results in the order of ranks.

        Raises:
            the first exception of any rank, with a note that names the rank.
            CommunicationError: all ranks wait for each other, or one computes for longer than the time-out.
        """
        turns = Turns(self.size, self.seed, self.timeout)
        results: list[Any] = [None] * self.size

        def work(rank: int) -> None:
            try:
                turns.begin(rank)
                results[rank] = function(ThreadRank(rank, turns), *args)
            except BaseException as error:  # noqa: BLE001 - handed to the caller below
                turns.fail(rank, error)
            finally:
                turns.end(rank)

        threads = [
            threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(self.size)
        ]
        for thread in threads:
            thread.start()
        turns.watch(threads)
        return results


class ThreadRank(Communicator):
    """One rank of :class:`Threads`."""

    transport = "threads"

    def __init__(self, rank: int, turns: Turns) -> None:
        super().__init__(rank, turns.size, turns.timeout)
        self._turns = turns
        self._calls, self._place = itertools.count(), ""  # which part of all ranks this is of

    def _divide(self, whole: Communicator, colors: list[int]) -> None:
        self._calls, self._place = itertools.count(), f"{self._place}/{len(self.parts)}.{self.members[0]}"

    def _meet(self, kind: str, array: np.ndarray, root: int | None, combine: Callable[[list[np.ndarray]], Any]) -> Any:
        """Bring an array to the next collective call; the last rank to come combines all of them, in their order."""
        number, turns = next(self._calls), self._turns
        call = (kind, array.dtype.str, array.shape, root)
        meeting = turns.rounds.setdefault((self._place, number), Round(call, self.rank))
        if meeting.call != call:
            raise CommunicationError(
                f"got {call} on rank {self.rank}, {meeting.call} on rank {meeting.first} as collective call {number}; "
                "expected the same on every rank: make the calls in the same order with the same shapes"
            )
        meeting.brought[self.rank] = array
        if len(meeting.brought) == self.size:
            meeting.result = combine([meeting.brought[rank] for rank in range(self.size)])
        # Also the last rank to come gives its turn away: otherwise it would run ahead of ranks that waited for it.
        turns.wait(self.world.rank, self._described(kind), lambda: len(meeting.brought) == self.size)
        meeting.taken += 1
        if meeting.taken == self.size:
            del turns.rounds[self._place, number]
        return meeting.result

    def _all_reduce(self, array: np.ndarray) -> None:
        array[...] = self._meet("all_reduce", array, None, _sum)

    def _broadcast(self, array: np.ndarray, root: int) -> None:
        array[...] = self._meet("broadcast", array, root, lambda arrays: arrays[root].copy())

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        return self._meet("all_gather", array, None, np.stack).copy()

    def _barrier(self) -> None:
        self._meet("barrier", np.zeros(0), None, lambda arrays: None)

    def _send(self, array: np.ndarray, dest: int, tag: int) -> None:
        self._turns.mail.setdefault((self._place, self.rank, dest, tag), deque()).append(array.copy())
        self._turns.wait(self.world.rank, "send", lambda: True)

    def _receive(self, array: np.ndarray, source: int, tag: int) -> int:
        sources = range(self.size) if source == ANY else (source,)

        def arrived() -> list[int]:
            return [rank for rank in sources if self._turns.mail.get((self._place, rank, self.rank, tag))]

        whom = "any rank" if source == ANY else f"rank {self.members[source]}"
        self._turns.wait(self.world.rank, self._described(f"receive from {whom}, tag {tag}"), lambda: bool(arrived()))
        ready = arrived()
        sender = ready[0] if self._turns.rng is None else int(self._turns.rng.choice(ready))
        message = self._turns.mail[self._place, sender, self.rank, tag].popleft()
        if message.dtype != array.dtype or message.shape != array.shape:
            raise CommunicationError(
                f"rank {self.rank} got {message.dtype}{list(message.shape)} from rank {sender}; expected "
                f"{array.dtype}{list(array.shape)}, the array to fill: send and receive the same"
            )
        array[...] = message
        return sender

    def _exchange(self, outgoing: Mapping[int, np.ndarray], incoming: Mapping[int, np.ndarray]) -> None:
        for dest, array in outgoing.items():
            self._turns.mail.setdefault((self._place, self.rank, dest, _EXCHANGE), deque()).append(array.copy())
        for source, array in incoming.items():
            self._receive(array, source, _EXCHANGE)

    def _described(self, kind: str) -> str:
        return f"{kind} of {self.name}" if self.name else kind


_EXCHANGE = -2
"""The tag of neighbour exchanges, which no send can have by accident."""


def _sum(arrays: list[np.ndarray]) -> np.ndarray:
    """Add the ranks' arrays in the order of ranks, so that the bits are the same in every run."""
    total = arrays[0].copy()
    for array in arrays[1:]:
        np.add(total, array, out=total)
    return total
