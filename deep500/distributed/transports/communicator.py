"""`Communicator`: how ranks exchange arrays. The seam of level 3; a scheme knows nothing else of the other processes.

Requirements of the seam, for the author of a transport:

* Public methods are here, once: they check, count and time. A transport writes the methods that begin with ``_``.
* Arrays are NumPy's, C-contiguous, of a fixed-size number type, and equal in shape and dtype on all ranks, except
  where a method says otherwise. Collectives work in place and return the same array.
* Every rank calls the same collectives in the same order. Sums are the same bits on every rank.
* One rank is the serial case of the same code (``Serial``): ``if comm is None`` does not occur.
* Nothing waits longer than ``timeout`` seconds: a transport raises :class:`CommunicationError` where it can, and ends
  the whole job where it cannot (a process that is inside a library call).
* What is counted is what was handed in: ``payload_bytes`` are tensors, ``control_bytes`` is bookkeeping beside them.
"""

from __future__ import annotations

import abc
import copy
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from deep500.distributed.transports.traffic import Traffic
from deep500.errors import CommunicationError, InputError

ANY = -1
"""As a source: whichever rank sends first."""


def default_timeout() -> float:
    """Seconds that nothing may wait longer than: ``DEEP500_COMM_TIMEOUT``, or 60.

    Raises:
        InputError: the variable holds no positive number.
    """
    text = os.environ.get("DEEP500_COMM_TIMEOUT", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise InputError(f"got DEEP500_COMM_TIMEOUT={text!r}; expected seconds > 0: correct or unset it")
    return seconds


class Pending:
    """A reduction on its way; :meth:`wait` until the array holds the result."""

    def __init__(self, wait: Callable[[], None] | None = None, poll: Callable[[], bool] | None = None) -> None:
        self._wait, self._poll = wait, poll

    def wait(self) -> None:
        """Return when it is done."""
        if self._wait is not None:
            self._wait()
            self._wait = self._poll = None

    def poll(self) -> bool:
        """Whether it is done; the call may make progress."""
        return self._poll is None or self._poll()


class Communicator(abc.ABC):
    """Rank ``rank`` of ``size``; see the top of this file for what every transport promises.

    Attributes:
        rank, size: this process's number, and how many there are.
        world: the communicator of all ranks that this one is a part of (:meth:`split`); itself if it is of all.
        members: of a part, the ranks of ``world`` in it, in order; else all.
        name: of a part; else empty.
        transport: what moves the bytes, for the record.
        timeout: seconds that nothing may wait longer than.
        traffic: what was exchanged so far, per kind of call.

    Example:
        >>> from deep500.distributed import Threads
        >>> def mean(comm):
        ...     return comm.all_reduce(np.array([float(comm.rank)])) / comm.size
        >>> [float(array[0]) for array in Threads(3).run(mean)]
        [1.0, 1.0, 1.0]
    """

    transport = "?"

    def __init__(self, rank: int, size: int, timeout: float | None = None) -> None:
        self.rank, self.size = rank, size
        self.timeout = default_timeout() if timeout is None else timeout
        self.traffic = Traffic()
        self.at_rest = False  # a rank that ends while others may need it is a failure
        self.busy: tuple[str, float] | None = None  # what this rank waits for and since when; read by watchdogs
        self.entered = 0  # calls that all ranks make together; the same number is the same call on every rank
        self.world: Communicator = self
        self.name, self.members = "", tuple(range(size))
        self.colors: list[int] = []
        self.parts: list[Communicator] = []  # of the world: what was split off
        self.inside: Communicator = self  # of the world: the part whose call ``busy`` tells of

    # -- all ranks together -----------------------------------------------------------------------------------------
    def all_reduce(self, array: np.ndarray, control: int = 0) -> np.ndarray:
        """Replace the array by the sum over all ranks; ``control`` of its bytes are bookkeeping."""
        with self._counted("all_reduce", self._checked(array), control):
            self._all_reduce(array)
        return array

    def start_all_reduce(self, array: np.ndarray, control: int = 0) -> Pending:
        """Begin :meth:`all_reduce`; the array is the transport's until ``wait()`` of what is returned."""
        with self._counted("all_reduce", self._checked(array), control):
            pending = self._start_all_reduce(array)

        def wait() -> None:
            with self._timed("all_reduce", entering=False):
                pending.wait()

        return Pending(wait, pending.poll)

    def reduce(self, array: np.ndarray, root: int = 0, control: int = 0) -> np.ndarray:
        """Replace the array of ``root`` by the sum over all ranks; the others' stays as it is."""
        with self._counted("reduce", self._checked(array), control):
            self._reduce(array, self._peer(root))
        return array

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        """Replace the array by that of ``root``."""
        with self._counted("broadcast", self._checked(array)):
            self._broadcast(array, self._peer(root))
        return array

    def all_gather(self, array: np.ndarray, control: int = 0) -> np.ndarray:
        """The arrays of all ranks, stacked: shape ``(size, *shape)``."""
        with self._counted("all_gather", self._checked(array, written=False), control):
            return self._all_gather(array)

    def all_gather_ragged(self, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of all ranks, which have one dimension and may differ in length (their lengths go first)."""
        with self._counted("all_gather", self._checked(array, written=False)):
            lengths = self._all_gather(np.array([array.shape[0]], np.int64)).ravel()
            padded = np.zeros(int(lengths.max()), array.dtype)
            padded[: array.shape[0]] = array
            return [row[:length] for row, length in zip(self._all_gather(padded), lengths.tolist(), strict=True)]

    def reduce_scatter(self, array: np.ndarray) -> np.ndarray:
        """This rank's part of the sum: the array has ``size`` equal parts along its first axis.

        Raises:
            InputError: the first axis does not divide by ``size``.
        """
        if array.shape[0] % self.size:
            raise InputError(f"got {array.shape[0]} rows for {self.size} ranks; expected equal parts: pad the array")
        with self._counted("reduce_scatter", self._checked(array)):
            return self._reduce_scatter(array)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        with self._timed("barrier"):
            self.traffic.add("barrier", 0, 0)
            self._barrier()

    # -- one to one -------------------------------------------------------------------------------------------------
    def send(self, array: np.ndarray, dest: int, tag: int = 0, control: int = 0) -> None:
        """Send to one rank; returns when the array may be used again. ``control`` of its bytes are bookkeeping."""
        self.traffic.add("send", self._checked(array, written=False).nbytes - control, control)
        with self._timed("send", entering=False):
            self._send(array, self._peer(dest), tag)

    def receive(self, array: np.ndarray, source: int = ANY, tag: int = 0) -> int:
        """Fill the array with what ``source`` sends under ``tag``; returns the rank that it came from."""
        with self._timed("receive", entering=False):
            return self._receive(self._checked(array), source if source == ANY else self._peer(source), tag)

    def exchange(
        self, outgoing: Mapping[int, np.ndarray], incoming: Mapping[int, np.ndarray], control: int = 0
    ) -> None:
        """Send to several ranks and receive from several at once, in whichever order they come.

        Args:
            outgoing: array by destination.
            incoming: array to fill by source; every rank must be sent what it expects.
            control: how many of the bytes sent are bookkeeping.
        """
        count = sum(self._checked(array, written=False).nbytes for array in outgoing.values())
        with self._timed("exchange", entering=False):
            self.traffic.add("exchange", count - control, control, len(outgoing))
            self._exchange(
                {self._peer(rank): array for rank, array in outgoing.items()},
                {self._peer(rank): self._checked(array) for rank, array in incoming.items()},
            )

    # -- bookkeeping ------------------------------------------------------------------------------------------------
    def gather_facts(self, facts: Any) -> list[Any]:
        """Give every rank the facts of all, which JSON can hold; small, and counted as control."""
        data = np.frombuffer(json.dumps(facts).encode("utf-8"), np.uint8)
        with self._timed("control"):
            lengths = self._all_gather(np.array([data.size], np.int64)).ravel()
            padded = np.zeros(int(lengths.max()), np.uint8)
            padded[: data.size] = data
            rows = self._all_gather(padded)
        self.traffic.add("control", 0, data.size)
        return [json.loads(row[:n].tobytes()) for row, n in zip(rows, lengths.tolist(), strict=True)]

    def split(self, name: str, color: int) -> Communicator:
        """The part of the ranks that bring the same color, in the same order: a communicator like this one, whose calls
        only they make together, and count here too. It goes on as long as the whole, which is what is closed.

        Args:
            name: of all parts together, for messages: letters, digits and underscores.
            color: any number; all ranks call this together, each with its own.

        Raises:
            InputError: a name of other characters, or a transport whose ranks have no parts.

        Example:
            >>> from deep500.distributed import Threads
            >>> def work(comm):
            ...     part = comm.split("parity", comm.rank % 2)
            ...     return part.rank, part.size, int(part.all_reduce(np.array([comm.rank]))[0])
            >>> Threads(3).run(work)                        # ranks 0 and 2, and rank 1
            [(0, 2, 2), (0, 1, 1), (1, 2, 2)]
        """
        if not name.isidentifier():
            raise InputError(f"got {name!r} for parts of ranks; expected letters, digits and underscores: rename it")
        colors = self.gather_facts(color)
        for part in self.world.parts:
            if (part.name, part.colors) == (name, colors):  # another network trains on the same mesh
                return part
        part = copy.copy(self)
        part.colors = colors
        ranks = [rank for rank, other in enumerate(colors) if other == color]
        part.name, part.members = name, tuple(self.members[rank] for rank in ranks)
        part.rank, part.size, part.entered = ranks.index(self.rank), len(ranks), 0
        part.traffic = Traffic(self.traffic)
        part._divide(self, colors)
        self.world.parts.append(part)
        return part

    @contextmanager
    def patience(self, seconds: float) -> Iterator[None]:
        """Within it nothing waits longer than this, if that is more than the time-out."""
        before = self.timeout
        self.timeout = max(before, seconds)
        try:
            yield
        finally:
            self.timeout = before

    def close(self) -> None:  # noqa: B027 - optional
        """Shut down cleanly; what this rank sent has arrived. The process may end afterwards."""

    def all_ended(self) -> bool:
        """Wait until every rank's program has ended, at most for the time-out; whether they have."""
        return self.size == 1

    def abort(self, code: int = 1) -> None:
        """End all ranks at once, with this exit code; here: nothing to end but this process."""
        raise SystemExit(code)

    @contextmanager
    def _counted(self, kind: str, array: np.ndarray, control: int = 0) -> Iterator[None]:
        self.traffic.add(kind, array.nbytes - control, control)
        with self._timed(kind):
            yield

    @contextmanager
    def _timed(self, kind: str, entering: bool = True) -> Iterator[None]:
        """Note what this rank waits for; ``entering`` a call of all ranks, which is numbered."""
        begin = perf_counter()
        self.entered += entering
        self.world.busy, self.world.inside = (kind, begin), self
        try:
            yield
        finally:
            self.world.busy = None
            self.traffic.wait(kind, perf_counter() - begin)

    def _checked(self, array: np.ndarray, written: bool = True) -> np.ndarray:
        fits = isinstance(array, np.ndarray) and array.flags.c_contiguous and array.dtype.kind in "biufc"
        if not fits or (written and not array.flags.writeable):
            what = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
            raise InputError(
                f"got {what} to communicate; expected a contiguous{', writeable' * written} NumPy array of numbers: "
                "pass np.array(x, order='C')"
            )
        return array

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise CommunicationError(f"got rank {rank}; expected 0 to {self.size - 1}: there are {self.size} ranks")
        return rank

    # -- what a transport writes ------------------------------------------------------------------------------------
    @abc.abstractmethod
    def _all_reduce(self, array: np.ndarray) -> None: ...

    @abc.abstractmethod
    def _broadcast(self, array: np.ndarray, root: int) -> None: ...

    @abc.abstractmethod
    def _all_gather(self, array: np.ndarray) -> np.ndarray: ...

    @abc.abstractmethod
    def _barrier(self) -> None: ...

    @abc.abstractmethod
    def _send(self, array: np.ndarray, dest: int, tag: int) -> None: ...

    @abc.abstractmethod
    def _receive(self, array: np.ndarray, source: int, tag: int) -> int: ...

    @abc.abstractmethod
    def _exchange(self, outgoing: Mapping[int, np.ndarray], incoming: Mapping[int, np.ndarray]) -> None: ...

    def _divide(self, whole: Communicator, colors: list[int]) -> None:
        """Make this copy of ``whole`` a part of it: of the ranks whose color is that of this one."""
        if whole.size > 1:
            raise InputError(f"got parts of ranks on {self.transport!r}; expected threads, MPI or torch: use those")

    def _start_all_reduce(self, array: np.ndarray) -> Pending:
        return Pending(lambda: self._all_reduce(array))

    def _reduce(self, array: np.ndarray, root: int) -> None:
        total = array.copy()
        self._all_reduce(total)
        if self.rank == root:
            array[...] = total

    def _reduce_scatter(self, array: np.ndarray) -> np.ndarray:
        self._all_reduce(array)
        part = array.shape[0] // self.size
        return array[self.rank * part : (self.rank + 1) * part].copy()
