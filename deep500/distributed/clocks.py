"""Clocks of several ranks brought together: what rank 0's clock shows, computed from this rank's own.

Each rank exchanges short messages with rank 0. When rank 0 sends at ``a``, the rank reads its clock at ``b`` and rank 0
has the answer at ``c``, then the rank's clock was ahead by ``b - (a + c) / 2``, and by at most ``(c - a) / 2`` more or
less than that: the answer cannot arrive before it was sent (Cristian 1989). Of many exchanges the one with the shortest
round trip has the tightest bound, so it alone counts (Hoefler, Schneider and Lumsdaine 2010, *Accurately measuring
overhead, communication time and progression of blocking and nonblocking collective operations*, section 3). Clocks
drift apart: the minima of several such rounds, apart in time, give a line (Hunold and Carpen-Amarie 2015, *On the
impact of synchronizing clocks and processes on benchmarking MPI collectives*), whose slope is used only where the
bounds of the first and the last round cannot both hold without one; between clocks of one machine it is 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from deep500.distributed.transports.communicator import Communicator
from deep500.distributed.transports.traffic import Traffic
from deep500.errors import CommunicationError, InputError

ClockReader = Callable[[], int]
"""Nanoseconds from any beginning: :func:`time.perf_counter_ns`."""

TAG = 32764  # away from the tags of users
DOZE = 0.0002
"""Seconds that a rank sleeps between looks whether it is needed: spinning would slow the ranks that are measured."""


@dataclass(frozen=True)
class Reading:
    """The tightest exchange of one round: at ``at`` of this rank's clock it was ahead by ``ahead``, give or take
    ``error``; all nanoseconds."""

    at: float
    ahead: float
    error: float


@dataclass(frozen=True)
class Clock:
    """This rank's clock against rank 0's: ``ahead(t) = offset + drift * (t - at)``.

    Attributes:
        offset: nanoseconds that this rank's clock shows more than rank 0's when it shows ``at``.
        drift: nanoseconds per nanosecond that it gains.
        error: bound of the offset at any reading, nanoseconds: half of its round trip, and what the line misses it by.
        at: nanoseconds of this rank's clock.
        readings: what it was made of.

    Example:
        >>> clock = Clock(offset=500.0, drift=0.0, error=20.0, at=0.0)
        >>> clock.to_global(1500), clock.to_local(1000)
        (1000.0, 1500.0)
    """

    offset: float
    drift: float
    error: float
    at: float
    readings: tuple[Reading, ...] = ()

    def to_global(self, local: float) -> float:
        """Time of rank 0's clock when this one shows ``local`` (nanoseconds; arrays too)."""
        return local - (self.offset + self.drift * (local - self.at))

    def to_local(self, at_root: float) -> float:
        """Time of this clock when rank 0's shows ``at_root`` (nanoseconds; arrays too)."""
        return (at_root + self.offset - self.drift * self.at) / (1 - self.drift)

    def __str__(self) -> str:
        return f"offset {self.offset / 1e3:.1f} us, at most {self.error / 1e3:.1f} us wrong, drift {self.drift:.1e}"


def fit_clock(readings: Sequence[Reading]) -> Clock:
    """The line through readings; level, through the tightest, unless their bounds exclude that.

    Args:
        readings: at least one, in the order of time.

    Example:
        >>> steady = fit_clock([Reading(0, 100, 30), Reading(1e9, 110, 10)])
        >>> steady.offset, steady.drift, steady.error
        (110, 0.0, 10)
        >>> round(fit_clock([Reading(0, 100, 30), Reading(1e9, 1100, 10)]).drift * 1e9)
        1000
    """
    if not readings:
        raise InputError("got no readings of a clock; expected at least one: exchange messages with rank 0 first")
    best = min(readings, key=_error)
    if all(abs(reading.ahead - best.ahead) <= reading.error + best.error for reading in readings):
        return Clock(best.ahead, 0.0, best.error, best.at, tuple(readings))
    at = np.array([reading.at for reading in readings]) - best.at
    ahead = np.array([reading.ahead for reading in readings])
    weights = 1 / np.maximum([reading.error for reading in readings], 1.0)
    drift, offset = np.polyfit(at, ahead, 1, w=weights)
    misses = np.abs(ahead - (offset + drift * at)) + [reading.error for reading in readings]
    return Clock(float(offset), float(drift), float(misses.max()), best.at, tuple(readings))


def _error(reading: Reading) -> float:
    return reading.error


def synchronise(
    comm: Communicator,
    rounds: int = 3,
    exchanges: int = 50,
    pause: float = 0.01,
    now: ClockReader = time.perf_counter_ns,
    before: Clock | None = None,
) -> Clock:
    """Compare this rank's clock with rank 0's; all ranks call it together.

    Args:
        comm: all ranks.
        rounds: readings per rank.
        exchanges: messages there and back per reading, of which the quickest counts.
        pause: seconds between rounds.
        now: this rank's clock.
        before: what an earlier call returned; its readings count too, and a drift shows better over a longer time.

    Raises:
        InputError: no rounds or exchanges.

    Example:
        >>> from deep500.distributed import Threads
        >>> def work(comm):
        ...     return synchronise(comm, now=lambda: time.perf_counter_ns() + 200_000 * comm.rank)
        >>> [round(clock.offset / 200_000) for clock in Threads(3).run(work)]
        [0, 1, 2]
    """
    if rounds < 1 or exchanges < 1:
        raise InputError(f"got {rounds} rounds of {exchanges} exchanges; expected at least one of one: pass more")
    readings = list(before.readings) if before is not None else []
    with as_control(comm):
        for number in range(rounds):
            if number:
                time.sleep(pause)
            for rank in range(1, comm.size):
                gather_quietly(comm)
                if comm.rank == 0:
                    _serve(comm, rank, exchanges, now)
                elif comm.rank == rank:
                    readings.append(_read(comm, exchanges, now))
            if comm.rank == 0:
                readings.append(Reading(float(now()), 0.0, 0.0))
        gather_quietly(comm)
    return fit_clock(readings)


def _serve(comm: Communicator, rank: int, exchanges: int, now: ClockReader) -> None:
    """Rank 0: send, take the answer, and tell in the next message when both happened."""
    message, answer = np.zeros(2, np.int64), np.zeros(1, np.int64)
    for _ in range(exchanges + 1):
        sent = now()
        comm.send(message, rank, TAG)
        comm.receive(answer, rank, TAG)
        message[:] = sent, now()


def _read(comm: Communicator, exchanges: int, now: ClockReader) -> Reading:
    """The other rank: the tightest exchange, whose times at rank 0 come with the next message."""
    message, answer, best = np.zeros(2, np.int64), np.zeros(1, np.int64), None
    for number in range(exchanges + 1):
        comm.receive(message, 0, TAG)
        here, mine = now(), int(answer[0])
        answer[0] = here
        comm.send(answer, 0, TAG)
        sent, back = (int(value) for value in message)
        if number and (best is None or (back - sent) / 2 < best.error):
            best = Reading(float(mine), mine - (sent + back) / 2, (back - sent) / 2)
    assert best is not None
    return best


def gather_quietly(comm: Communicator) -> None:
    """Wait until every rank is here, asleep: ranks that spin take cores from those that still work.

    Raises:
        CommunicationError: another rank does not come within the time-out.
    """
    pending, begin = comm.start_all_reduce(np.zeros(1), control=8), time.perf_counter()
    while not pending.poll():
        if time.perf_counter() - begin > comm.timeout:
            raise CommunicationError(
                f"got no sign of some rank for {comm.timeout:g} s; expected all of them to measure: one hangs or ended"
            )
        time.sleep(DOZE)
    pending.wait()


@contextmanager
def as_control(comm: Communicator) -> Iterator[None]:
    """Count what is exchanged within as control bytes, and not as the program's messages: it is bookkeeping."""
    program, comm.traffic = comm.traffic, Traffic()
    try:
        yield
    finally:
        control, comm.traffic = comm.traffic, program
        bytes_ = control.payload_bytes + sum(count.control_bytes for count in control.kinds.values())
        program.add("control", 0, bytes_)
        program.wait("control", control.seconds)
