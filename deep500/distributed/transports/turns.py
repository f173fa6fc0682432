"""`Turns`: which of several threads runs, while the others wait for what it brings.

One runs until it has to wait for another, then the next that can go on. Ranks that all wait for each other, and one
that computes for longer than the time-out while others wait, are errors that name them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from deep500.errors import CommunicationError


class Turns:
    """Whose turn it is, what the others wait for, and what they hand to each other."""

    def __init__(self, size: int, seed: int | None, timeout: float) -> None:
        self.size, self.timeout = size, timeout
        self.rng = None if seed is None else np.random.default_rng(seed)
        self.wake = [threading.Event() for _ in range(size)]
        self.waiting: dict[int, tuple[str, Callable[[], bool]]] = {
            rank: ("start", lambda: True) for rank in range(size)
        }
        self.failure: tuple[int, BaseException] | None = None
        self.mail: dict[tuple[str, int, int, int], deque[np.ndarray]] = {}  # (part, source, destination, tag)
        self.rounds: dict[tuple[str, int], Round] = {}  # (part, number)
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


class Round:
    """One collective call: the ranks' inputs and the result."""

    def __init__(self, call: tuple[Any, ...], rank: int) -> None:
        self.call, self.first = call, rank
        self.brought: dict[int, np.ndarray] = {}
        self.result: Any = None
        self.taken = 0
