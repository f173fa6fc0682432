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
from typing import Any, Protocol


class Endable(Protocol):
    """Communicator as this module needs it."""

    rank: int
    timeout: float
    busy: tuple[str, float] | None
    at_rest: bool

    entered: int
    parts: list[Any]
    inside: Any

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...

    def all_ended(self) -> bool: ...

    def places(self) -> dict[int, str]: ...

    def abort(self, code: int = 1) -> None: ...


def end_with_all(comm: Endable) -> None:
    """From now on an uncaught exception ends all ranks, and so does an exit while others go on.

    A program that ends on every rank ends well without ``comm.close()``: whoever is first waits for the others, and one
    that waits for a rank which has ended says so (:class:`Watchdog`).
    """
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
    if comm.closed:
        return
    if comm.at_rest or comm.all_ended():
        comm.close()
        return
    there = [f"rank {rank} is {where(text)}" for rank, text in sorted(comm.places().items()) if text != ENDED]
    rest = f" ({'; '.join(there)})" if there else ""
    report(
        comm.rank,
        f"CommunicationError: ended, and others went on for more than {comm.timeout:g} s{rest}; expected every rank to "
        "end: call close() where a rank is done earlier, or raise DEEP500_COMM_TIMEOUT; all ranks end",
    )
    comm.abort(1)


ENDED = "ended"
"""Where a rank is whose program has ended."""


def where(place: str) -> str:
    """Where a rank is, in words, by what it has noted: a number of calls of all ranks, and the kind if it is in one.

    Example:
        >>> where("17 all_reduce"), where("16"), where("ended")
        ('in all_reduce 17', 'behind call 16 of all ranks', 'at its end')
    """
    number, _, kind = place.partition("\n")[0].partition(" ")
    return "at its end" if place == ENDED else f"in {kind} {number}" if kind else f"behind call {number} of all ranks"


def place_of(comm: Endable, together: bool) -> str:
    """Where a rank is: a line for all ranks, and one for each part of them that it belongs to, which begins with the
    part; ``together``: in a call, for which others are needed."""
    lines = []
    for part in (comm, *comm.parts):
        kind = f" {comm.busy[0]}" if together and comm.busy is not None and comm.inside is part else ""
        lines.append(f"{_label(part)}{part.entered}{kind}")
    return "\n".join(lines)


def _label(part: Any) -> str:
    return f"{part.name}.{part.members[0]} " if getattr(part, "name", "") else ""


def lateness(comm: Endable) -> str:
    """Which ranks have not entered the call of all ranks, or of a part, that this one is in; empty where that is not
    known."""
    if comm.busy is None:
        return ""
    late, inside = [], comm.inside
    label, call = _label(inside), f"{comm.busy[0]} {inside.entered}{' of ' * bool(inside.name)}{inside.name}"
    for rank, place in sorted(comm.places().items()):
        lines = place.splitlines()
        noted = next((line.removeprefix(label) for line in lines if line.startswith(label)), "0")
        number = noted.partition(" ")[0]
        behind = place == ENDED or (number.isdigit() and int(number) < inside.entered)
        if rank != comm.rank and rank in inside.members and behind:
            late.append(f"rank {rank} has not entered {call}: it is {where(place)}")
    return "; ".join(late)


def report(rank: int, text: str) -> None:
    """Write lines to stderr in one go, each with the rank in front."""
    lines = "".join(f"[rank {rank}] {line}\n" for line in text.rstrip().splitlines())
    sys.stdout.flush()
    # torch.distributed hooks in before us and collects what hooks write, which an abort would lose.
    stream = sys.__stderr__ or sys.stderr
    stream.write(lines)
    stream.flush()


class Watched(Endable, Protocol):
    """Communicator as a watchdog needs it."""

    def missing(self) -> list[int]: ...

    def note(self, place: str) -> None: ...


ONE_TO_ONE = ("send", "receive", "exchange")
"""Calls that need some ranks only."""


class Watchdog:
    """Ends all ranks when this one is inside one call for longer than its time-out, and names those that are not there.

    A thread of its own looks, because a rank inside a library call cannot. It also notes where this rank is, once a
    second at most, and ends all ranks when one has ended that this one waits for.

    Args:
        comm: the communicator.
        times_out: whether it ends calls that take too long; False where the transport does so itself.
    """

    def __init__(self, comm: Watched, times_out: bool = True) -> None:
        self._comm, self._stopped, self._times_out = comm, threading.Event(), times_out
        self._period = min(1.0, comm.timeout / 4)
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, and noting."""
        self._stopped.set()
        self._thread.join(2 * self._period)

    def _watch(self) -> None:
        noted, before = "", None
        while not self._stopped.wait(self._period):
            busy, members = self._comm.busy, self._comm.inside.members
            together = busy is not None and busy[0] not in ONE_TO_ONE
            place = place_of(self._comm, together)
            if place != noted and not self._stopped.is_set():
                self._comm.note(place)
                noted = place
            ended = together and busy == before and ENDED in map(self._comm.places().get, members)
            if ended:
                report(self._comm.rank, f"CommunicationError: {lateness(self._comm)}; all ranks end")
                self._comm.abort(1)
                os._exit(1)
            before = busy
            if self._times_out and busy is not None and perf_counter() - busy[1] > self._comm.timeout:
                gone = ", ".join(map(str, self._comm.missing()))
                why = f"rank {gone} has ended, or never came" if gone else lateness(self._comm) if together else ""
                why = why or "one of them hangs or is slow"
                report(
                    self._comm.rank,
                    f"CommunicationError: got no end of {busy[0]} within {self._comm.timeout:g} s; expected the other "
                    f"ranks to take part: {why}; all ranks end. Raise DEEP500_COMM_TIMEOUT if it was only slow",
                )
                self._comm.abort(1)
                os._exit(1)
