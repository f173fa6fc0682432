"""One rank's failure ends the whole job: its traceback first, then all ranks end, with a code that is not 0.

Without this an uncaught exception hangs an MPI job for ever: mpi4py finalises MPI when the interpreter exits, and
finalising waits for the others, which wait for this rank.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from time import perf_counter
from types import TracebackType
from typing import Protocol


class Endable(Protocol):
    """What this module needs of a communicator."""

    rank: int
    timeout: float
    busy: tuple[str, float] | None
    at_rest: bool

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...

    def abort(self, code: int = 1) -> None: ...


def end_with_all(comm: Endable) -> None:
    """From now on an uncaught exception, or an exit before ``comm.close()``, ends all ranks."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if comm.closed:
            before(kind, error, trace)
            return
        report(comm.rank, "".join(traceback.format_exception(kind, error, trace)))
        comm.abort(1)

    sys.excepthook = hook
    atexit.register(_leave, comm)


def _leave(comm: Endable) -> None:
    if comm.at_rest and not comm.closed:
        comm.close()
    elif not comm.closed:
        report(comm.rank, "left before the others; all ranks end. A program that is done calls close() first")
        comm.abort(1)


def report(rank: int, text: str) -> None:
    """Write lines to stderr in one go, each with the rank in front."""
    lines = "".join(f"[rank {rank}] {line}\n" for line in text.rstrip().splitlines())
    sys.stdout.flush()
    # torch.distributed hooks in before us and collects what hooks write, which an abort would lose.
    stream = sys.__stderr__ or sys.stderr
    stream.write(lines)
    stream.flush()


class Watched(Endable, Protocol):
    """What a watchdog needs besides."""

    def missing(self) -> list[int]: ...


class Watchdog:
    """Ends all ranks when this one is inside one call for longer than its time-out, and names those that are not there.

    A thread of its own looks, because a rank inside a library call cannot.
    """

    def __init__(self, comm: Watched) -> None:
        self._comm, self._stopped = comm, threading.Event()
        self._period = min(1.0, comm.timeout / 4)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._period):
            busy = self._comm.busy
            if busy is not None and perf_counter() - busy[1] > self._comm.timeout:
                gone = ", ".join(map(str, self._comm.missing()))
                why = f"rank {gone} has ended, or never came" if gone else "one of them hangs or is slow"
                report(
                    self._comm.rank,
                    f"CommunicationError: got no end of {busy[0]} within {self._comm.timeout:g} s; expected the other "
                    f"ranks to take part: {why}; all ranks end. Raise DEEP500_COMM_TIMEOUT if it was only slow",
                )
                self._comm.abort(1)
                os._exit(1)
