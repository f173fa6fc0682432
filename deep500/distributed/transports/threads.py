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

from deep500.distributed.transports.communicator import ANY, Communicator, Pending, default_timeout
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
        turns = _Turns(self.size, self.seed, self.timeout)
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


class _Turns:
    """Whose turn it is, what the others wait for, and what they hand to each other."""

    def __init__(self, size: int, seed: int | None, timeout: float) -> None:
        self.size, self.timeout = size, timeout
        self.rng = None if seed is None else np.random.default_rng(seed)
        self.wake = [threading.Event() for _ in range(size)]
        self.waiting: dict[int, tuple[str, Callable[[], bool]]] = {
            rank: ("start", lambda: True) for rank in range(size)
        }
        self.failure: tuple[int, BaseException] | None = None
        self.mail: dict[tuple[int, int, int], deque[np.ndarray]] = {}  # (source, destination, tag)
        self.rounds: dict[int, _Round] = {}
        self.running = 0
        self.progress = 0
        self.wake[0].set()

    def begin(self, rank: int) -> None:
        """Wait for the first turn."""
        self._sleep(rank)
        del self.waiting[rank]

    def wait(self, rank: int, what: str, ready: Callable[[], bool]) -> None:
        """Let others run until ``ready()``, and at least once if they can."""
        self.waiting[rank] = (what, ready)
        self._next(rank)
        self._sleep(rank)
        del self.waiting[rank]

    def _sleep(self, rank: int) -> None:
        while not self.wake[rank].wait(1.0):
            if self.failure is not None:
                break
        if self.failure is not None:
            raise _OtherFailed
        self.wake[rank].clear()
        self.running = rank
        self.progress += 1

    def _next(self, rank: int) -> None:
        """Give the turn to a rank that can go on."""
        # Round robin from the next rank on: without a seed the schedule is fixed, and every rank gets its turn.
        order = [(rank + step) % self.size for step in range(1, self.size + 1)]
        able = [other for other in order if other in self.waiting and self.waiting[other][1]()]
        if able:
            self.wake[able[0] if self.rng is None else int(self.rng.choice(able))].set()
        elif self.waiting:
            stuck = ", ".join(f"rank {other} in {what}" for other, (what, _) in sorted(self.waiting.items()))
            gone = [other for other in range(self.size) if other not in self.waiting]
            ended = f" (ended: {', '.join(map(str, gone))})" if gone else ""
            raise CommunicationError(
                f"got ranks that all wait: {stuck}{ended}; expected one rank to send: every rank must make the same "
                "collective calls, and every receive needs a send"
            )

    def end(self, rank: int) -> None:
        """The rank is finished."""
        self.waiting.pop(rank, None)
        try:
            if self.failure is None:
                self._next(rank)
        except CommunicationError as error:
            self.fail(rank, error)

    def fail(self, rank: int, error: BaseException) -> None:
        """End everything; the first failure is the one that counts."""
        if self.failure is None and not isinstance(error, _OtherFailed):
            self.failure = (rank, error)
        for event in self.wake:
            event.set()

    def watch(self, threads: list[threading.Thread]) -> None:
        """Return when all ranks have ended; raise what the first failed one raised."""
        # A rank hangs if no turn has changed hands during a whole time-out while others wait.
        seen = -1
        for thread in threads:
            while thread.is_alive() and self.failure is None:
                thread.join(self.timeout)
                if thread.is_alive() and self.progress == seen and self.waiting and self.failure is None:
                    stuck = ", ".join(f"rank {other} in {what}" for other, (what, _) in sorted(self.waiting.items()))
                    self.fail(
                        self.running,
                        CommunicationError(
                            f"got rank {self.running} computing for more than {self.timeout:g} s while others wait "
                            f"({stuck}); expected it to communicate: it hangs, or the time-out is too short"
                        ),
                    )
                seen = self.progress
        if self.failure is not None:
            rank, error = self.failure
            error.add_note(f"[rank {rank}]") if hasattr(error, "add_note") else None
            raise error


class _OtherFailed(BaseException):
    """Another rank failed: end without a traceback."""


class _Round:
    """One collective call: the ranks' inputs and the result."""

    def __init__(self, call: tuple[Any, ...], rank: int) -> None:
        self.call, self.first = call, rank
        self.brought: dict[int, np.ndarray] = {}
        self.result: Any = None
        self.taken = 0


class ThreadRank(Communicator):
    """One rank of :class:`Threads`."""

    transport = "threads"

    def __init__(self, rank: int, turns: _Turns) -> None:
        super().__init__(rank, turns.size, turns.timeout)
        self._turns = turns
        self._calls = itertools.count()

    def _meet(self, kind: str, array: np.ndarray, root: int | None, combine: Callable[[list[np.ndarray]], Any]) -> Any:
        """Bring an array to the next collective call; the last rank to come combines all of them, in their order."""
        number, turns = next(self._calls), self._turns
        call = (kind, array.dtype.str, array.shape, root)
        meeting = turns.rounds.setdefault(number, _Round(call, self.rank))
        if meeting.call != call:
            raise CommunicationError(
                f"got {call} on rank {self.rank}, {meeting.call} on rank {meeting.first} as collective call {number}; "
                "expected the same on every rank: make the calls in the same order with the same shapes"
            )
        meeting.brought[self.rank] = array
        if len(meeting.brought) == self.size:
            meeting.result = combine([meeting.brought[rank] for rank in range(self.size)])
        # Also the last rank to come gives its turn away: otherwise it would run ahead of ranks that waited for it.
        turns.wait(self.rank, kind, lambda: len(meeting.brought) == self.size)
        meeting.taken += 1
        if meeting.taken == self.size:
            del turns.rounds[number]
        return meeting.result

    def _all_reduce(self, array: np.ndarray) -> None:
        array[...] = self._meet("all_reduce", array, None, _sum)

    def _start_all_reduce(self, array: np.ndarray) -> Pending:
        return Pending(lambda: self._all_reduce(array))

    def _broadcast(self, array: np.ndarray, root: int) -> None:
        array[...] = self._meet("broadcast", array, root, lambda arrays: arrays[root].copy())

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        return self._meet("all_gather", array, None, np.stack).copy()

    def _barrier(self) -> None:
        self._meet("barrier", np.zeros(0), None, lambda arrays: None)

    def _send(self, array: np.ndarray, dest: int, tag: int) -> None:
        self._turns.mail.setdefault((self.rank, dest, tag), deque()).append(array.copy())
        self._turns.wait(self.rank, "send", lambda: True)

    def _receive(self, array: np.ndarray, source: int, tag: int) -> int:
        sources = range(self.size) if source == ANY else (source,)

        def arrived() -> list[int]:
            return [rank for rank in sources if self._turns.mail.get((rank, self.rank, tag))]

        whom = "any rank" if source == ANY else f"rank {source}"
        self._turns.wait(self.rank, f"receive from {whom}, tag {tag}", lambda: bool(arrived()))
        ready = arrived()
        sender = ready[0] if self._turns.rng is None else int(self._turns.rng.choice(ready))
        message = self._turns.mail[(sender, self.rank, tag)].popleft()
        if message.dtype != array.dtype or message.shape != array.shape:
            raise CommunicationError(
                f"rank {self.rank} got {message.dtype}{list(message.shape)} from rank {sender}; expected "
                f"{array.dtype}{list(array.shape)}, the array to fill: send and receive the same"
            )
        array[...] = message
        return sender

    def _exchange(self, outgoing: Mapping[int, np.ndarray], incoming: Mapping[int, np.ndarray]) -> None:
        for dest, array in outgoing.items():
            self._turns.mail.setdefault((self.rank, dest, _EXCHANGE), deque()).append(array.copy())
        for source, array in incoming.items():
            self._receive(array, source, _EXCHANGE)


_EXCHANGE = -2
"""The tag of neighbour exchanges, which no send can have by accident."""


def _sum(arrays: list[np.ndarray]) -> np.ndarray:
    total = arrays[0].copy()
    for array in arrays[1:]:
        np.add(total, array, out=total)
    return total
