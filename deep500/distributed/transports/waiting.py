"""How a rank waits inside MPI: it spins while its core is its own, and sleeps in between where others need the core.

MPI libraries spin: a rank that waits uses its core fully, because the answer then comes some microseconds sooner. Where
ranks share cores, with each other or with other programs, the one that spins keeps the one that it waits for from
computing. The kernel tells: it takes the core away from a process (an involuntary switch) only if another one wants it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

SPIN, NAP = 100e-6, 50e-6
"""Seconds of asking without a pause, and of each pause afterwards (Linux adds about as much again)."""
PERIOD, CROWDED = 0.25, 40.0
"""Seconds between two looks, and involuntary switches per second of CPU time from which on a core is shared. A
rank that spun on a core with several other processes saw 700 to 800 (Linux 6.18); one with a core of its own has none
but for the kernel's own threads, which was not measured."""


class Waiting:
    """Decides anew now and then, each rank for itself.

    Args:
        ranks, cores: of this machine, as far as this process may use it; more ranks than cores never spin.

    Attributes:
        shared: whether a wait pauses.
        always: set it to True or False to decide otherwise.

    Example:
        >>> Waiting(ranks=4, cores=2).shared, Waiting(ranks=2, cores=2).shared
        (True, False)
    """

    def __init__(self, ranks: int, cores: int) -> None:
        self._crowd = ranks > cores
        self.shared = self._crowd
        self.always: bool | None = None
        self._seen = self._counts()

    def until(self, wait: Callable[[], object], test: Callable[[], bool]) -> None:
        """Return when a request is done: by ``wait``, which may spin, or by asking ``test`` with pauses."""
        self._look()
        if not (self.shared if self.always is None else self.always):
            wait()
            return
        end = time.perf_counter() + SPIN
        while not test():
            if time.perf_counter() > end:
                time.sleep(NAP)

    def _look(self) -> None:
        if self._crowd or self._seen is None or time.perf_counter() - self._seen[0] < PERIOD:
            return
        now = self._counts()
        if now is not None:
            busy = now[1] - self._seen[1]
            if busy > PERIOD / 10:  # a rank that slept all the time has learnt nothing
                self.shared = (now[2] - self._seen[2]) / busy > CROWDED
            self._seen = now

    def _counts(self) -> tuple[float, float, int] | None:
        """Time, CPU time of this process, and how often its core was taken away."""
        if sys.platform == "win32":
            return None
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        return time.perf_counter(), used.ru_utime + used.ru_stime, used.ru_nivcsw
