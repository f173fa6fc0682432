"""Ranks with clocks and steps whose truth is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from deep500.distributed import Communicator
from deep500.distributed.clocks import synchronise
from deep500.distributed.timing import parallel
from deep500.errors import InputError
from deep500.measure.plan import Budget, Plan, Target

SKEW = 200_000
"""Nanoseconds that the clock of the skewed rank is ahead, and that its steps take longer."""


class Virtual:
    """A clock that goes forward when it is read and when its rank works, whatever else the machine does."""

    def __init__(self, begin: int = 0) -> None:
        self.time = begin

    def now(self) -> int:
        """A reading takes a microsecond."""
        self.time += 1000
        return self.time

    def work(self, seconds: float) -> None:
        """A step that takes so long."""
        self.time += round(1e9 * seconds)


class Pretending:
    """The machine's clock, ahead by so much; steps take no time, but the reading after one says they did.

    With ``alone`` it is no machine's clock: a reading takes 50 ns, whatever else the machine does. Such clocks of
    several ranks know nothing of each other.
    """

    def __init__(self, ahead: int, seed: int, jitter: float = 0.01, alone: bool = False) -> None:
        self.ahead, self.extra, self.jitter, self.rng = ahead, 0, jitter, np.random.default_rng(seed)
        self.alone = 0 if alone else None

    def now(self) -> int:
        """The time, with what the step before has taken."""
        extra, self.extra = self.extra, 0
        if self.alone is None:
            return time.perf_counter_ns() + self.ahead + extra
        self.alone += 50 + extra
        return self.alone

    def work(self, seconds: float) -> None:
        """A step that takes so long, up to the jitter."""
        self.extra = round(1e9 * seconds * (1 + self.jitter * self.rng.standard_normal()))


def offsets(comm: Communicator, drift: float = 0.0) -> dict[str, Any]:
    """Every rank's clock is ahead by its rank times the skew, and gains ``drift`` nanoseconds per nanosecond."""
    zero = time.perf_counter_ns()

    def now() -> int:
        real = time.perf_counter_ns()
        return real + comm.rank * (SKEW + round(drift * (real - zero)))

    before = comm.traffic.payload_bytes
    clock = synchronise(comm, rounds=3, exchanges=50, pause=0.05 if drift else 0.0, now=now)
    payload, control = comm.traffic.payload_bytes - before, comm.traffic.kinds["control"].control_bytes
    return {"offset": clock.offset, "error": clock.error, "drift": clock.drift, "payload": payload, "control": control}


def skewed(
    comm: Communicator,
    base: float = 0.0008,
    slower: float = 0.0002,
    sync: str = "barrier",
    summary: str = "max",
    samples: int = 60,
    pretend: bool = True,
) -> dict[str, Any]:
    """The last rank's clock is ahead, and its steps take ``slower`` seconds longer; real steps sleep."""
    last = comm.rank == comm.size - 1
    length, ahead = base + (slower if last else 0.0), SKEW if last else 0
    clock = Pretending(ahead, comm.rank, alone=sync == "none")
    step: Callable[[], None] = (lambda: clock.work(length)) if pretend else (lambda: time.sleep(length))
    plan = Plan((Target(rel=0.5),), Budget(min_n=samples, max_n=samples, max_s=30.0))
    try:
        measured = parallel(step, plan, comm, sync, summary, clock.now)
    except InputError as error:
        return {"refused": str(error)}
    return {
        "offsets": [clock.offset for clock in measured.clocks],
        "errors": [clock.error for clock in measured.clocks],
        "imbalance": measured.imbalance.value,
        "rank_p": measured.rank_p,
        "seconds": measured.estimate.value,
        "steps": list(measured.seconds.shape),
        "text": str(measured),
        "payload": comm.traffic.payload_bytes,
    }


def exchanging(comm: Communicator) -> dict[str, Any]:
    """A step that does nothing but exchange 800 bytes, while rank 0 comes late."""

    def step() -> None:
        if comm.rank == 0:
            time.sleep(0.05)
        comm.all_reduce(np.ones(100))

    plan = Plan((Target(rel=0.5),), Budget(min_n=10, max_n=10, max_s=30.0))
    measured = parallel(step, plan, comm, "none")
    return {"communicating": measured.communicating, "sent": measured.sent_bytes}
