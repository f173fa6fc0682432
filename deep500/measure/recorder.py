"""Timers for use inside other people's loops: `Recorder`, ``with region("forward")``, ``@measured``.

Nothing is recorded, at the cost of one look-up, until a :class:`Recording` is open. Times go into arrays that were
allocated before; a sample is two readings of the clock and three stores. Regions nest; what a region spends outside the
regions within it is its own share, so the shares add up to the time of the whole recording.
"""

from __future__ import annotations

import functools
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from deep500.errors import InputError

Function = TypeVar("Function", bound=Callable[..., Any])
_now, _ident = time.perf_counter_ns, threading.get_ident
OTHER = "other"


class Recorder:
    """One series of times, taken by hand where every nanosecond counts.

    Args:
        name: what is timed.
        capacity: most samples; later ones are counted in ``dropped``.

    Example:
        >>> recorder = Recorder("sum")
        >>> for _ in range(3):
        ...     begin = recorder.now()
        ...     total = sum(range(100))
        ...     recorder.stop(begin)
        >>> recorder.seconds().size
        3
    """

    __slots__ = ("_durations", "_starts", "capacity", "count", "dropped", "name", "now")

    def __init__(self, name: str, capacity: int = 1 << 16) -> None:
        if capacity < 1:
            raise InputError(f"got capacity {capacity}; expected at least 1")
        self.name, self.capacity, self.count, self.dropped = name, capacity, 0, 0
        self.now = _now
        self._starts = array("q", bytes(8 * capacity))
        self._durations = array("q", bytes(8 * capacity))

    def stop(self, begin: int) -> None:
        """Enter the time since ``begin``, which ``now()`` gave."""
        end = _now()
        count = self.count
        if count < self.capacity:
            self._starts[count] = begin
            self._durations[count] = end - begin
            self.count = count + 1
        else:
            self.dropped += 1

    def seconds(self) -> np.ndarray:
        """All times so far, in seconds and in order (a copy)."""
        return np.frombuffer(self._durations, np.int64, self.count) / 1e9

    def starts(self) -> np.ndarray:
        """Begin of each sample, in seconds of the monotonic clock (a copy)."""
        return np.frombuffer(self._starts, np.int64, self.count) / 1e9


class Recording:
    """Everything that regions record while it is open: ``with Recording() as recording: train()``.

    Regions count in the thread that opened the recording; those of other threads (data loaders) are left out.

    Example:
        >>> with Recording() as recording:
        ...     with region("step"):
        ...         with region("forward"):
        ...             total = sum(range(1000))
        >>> sorted(recording.names()), sorted(recording.breakdown())
        (['forward', 'step'], ['forward', 'other', 'step'])
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        self.capacity = capacity
        self.total = 0.0
        self._recorders: dict[str, Recorder] = {}
        self._own: dict[str, int] = {}
        self._stack: list[list[Any]] = []  # [name, begin, nanoseconds in inner regions]
        self._thread = 0
        self._begin = 0

    def __enter__(self) -> Recording:
        global _active  # noqa: PLW0603 - one recording at a time is the point
        if _active is not None:
            raise InputError("got a second recording; expected one at a time: close the first")
        self._thread, self._begin = _ident(), _now()
        _active = self
        return self

    def __exit__(self, *_: object) -> None:
        global _active  # noqa: PLW0603
        _active = None
        self.total += (_now() - self._begin) / 1e9
        self._stack.clear()

    def names(self) -> list[str]:
        """Regions that were entered."""
        return list(self._recorders)

    def __getitem__(self, name: str) -> Recorder:
        if name not in self._recorders:
            raise InputError(f"got region {name!r}; expected one of {self.names()}: was it entered?")
        return self._recorders[name]

    def breakdown(self) -> dict[str, float]:
        """Seconds that each region spent outside the regions within it, and ``"other"``; they add up to ``total``."""
        shares = {name: nanoseconds / 1e9 for name, nanoseconds in self._own.items()}
        return {**shares, OTHER: self.total - sum(shares.values())}

    def _close(self, end: int) -> None:
        name, begin, inner = self._stack.pop()
        recorder = self._recorders.get(name)
        if recorder is None:
            recorder = self._recorders[name] = Recorder(name, self.capacity)
            self._own[name] = 0
        duration = end - begin
        count = recorder.count
        if count < recorder.capacity:
            recorder._starts[count] = begin
            recorder._durations[count] = duration
            recorder.count = count + 1
        else:
            recorder.dropped += 1
        self._own[name] += duration - inner
        if self._stack:
            self._stack[-1][2] += duration


_active: Recording | None = None


class TimedRegion:
    """A named part of a program; made by :func:`region`, may be entered any number of times."""

    __slots__ = ("name", "synchronize")

    def __init__(self, name: str, synchronize: Callable[[], object] | None = None) -> None:
        self.name, self.synchronize = name, synchronize

    def __enter__(self) -> TimedRegion:
        recording = _active
        if recording is not None and recording._thread == _ident():
            entry = [self.name, 0, 0]
            recording._stack.append(entry)
            entry[1] = _now()  # last, so that the bookkeeping above is not part of the sample
        return self

    def __exit__(self, *_: object) -> None:
        recording = _active
        if recording is not None and recording._stack and recording._thread == _ident():
            if self.synchronize is not None:
                self.synchronize()
            recording._close(_now())


_regions: dict[str, TimedRegion] = {}


def region(name: str, synchronize: Callable[[], object] | None = None) -> TimedRegion:
    """A region for a ``with`` statement; costs next to nothing while nothing records.

    Args:
        name: several places may use the same one.
        synchronize: waits for the device at the end, so that what the region started is counted in it.

    Example:
        >>> with region("input"):
        ...     batch = list(range(10))
    """
    if synchronize is not None:
        return TimedRegion(name, synchronize)
    known = _regions.get(name)
    if known is None:
        known = _regions[name] = TimedRegion(name)
    return known


def measured(function: Function | None = None, *, name: str | None = None) -> Any:
    """Decorator: every call of a function is a region, under the function's name if no other is given.

    Example:
        >>> @measured
        ... def forward(x):
        ...     return x + 1
        >>> with Recording() as recording:
        ...     y = forward(1)
        >>> recording["forward"].count
        1
    """

    def wrap(wrapped: Function) -> Function:
        part = region(name or wrapped.__name__)

        @functools.wraps(wrapped)
        def call(*args: Any, **kwargs: Any) -> Any:
            with part:
                return wrapped(*args, **kwargs)

        return call  # type: ignore[return-value]

    return wrap if function is None else wrap(function)
