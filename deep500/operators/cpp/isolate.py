"""An operator's library in a process of its own: a crash or an endless loop in it becomes an error here.

Arrays go through shared memory. The worker sees inputs through a mapping that cannot be written; what it writes lies
between guards, so that a store outside of an array is found although it hits nothing that crashes.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import OperatorError
from deep500.operators.cpp.binding import WRITTEN, failure

ALIGN = 64
GUARD = 4096
"""Bytes before and after every array that must not change."""

MARK = 0xA5


class SharedFile:
    """A file in memory that holds arrays one after another, each between guards of ``guard`` bytes."""

    def __init__(self, guard: int) -> None:
        self.guard, self.size = guard, 0
        self.file = os.memfd_create("deep500")
        self._memory: mmap.mmap | None = None
        self._placed: list[tuple[int, np.ndarray]] = []
        self._end = 0

    def clear(self) -> None:
        """Begin a new call."""
        self._placed.clear()
        self._end = self.guard

    def place(self, array: np.ndarray) -> int:
        """Offset at which an array will lie."""
        offset = -(-self._end // ALIGN) * ALIGN
        self._placed.append((offset, array))
        self._end = offset + array.nbytes + self.guard
        return offset

    def fill(self) -> None:
        """Copy the arrays in, with marks around them."""
        if self._end > self.size:
            self.size = -(-max(self._end, 2 * self.size) // mmap.PAGESIZE) * mmap.PAGESIZE
            os.ftruncate(self.file, self.size)
            if self._memory is not None:
                self._memory.close()
            self._memory = mmap.mmap(self.file, self.size)
        if self._memory is None:
            return
        memory = np.frombuffer(self._memory, np.uint8)
        if self.guard:
            memory[: self._end] = MARK
        for offset, array in self._placed:
            memory[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)

    def fetch(self) -> int | None:
        """Copy the arrays out; returns the number of one beside which something was written, None if there is none."""
        if self._memory is None:
            return None
        memory = np.frombuffer(self._memory, np.uint8)
        start, beyond = 0, None
        for number, (offset, array) in enumerate(self._placed):
            end = offset + array.nbytes
            if not ((memory[start:offset] == MARK).all() and (memory[end : end + self.guard] == MARK).all()):
                beyond = number if beyond is None else beyond
            array.reshape(-1).view(np.uint8)[:] = memory[offset:end]
            start = end + self.guard
        return beyond

    def close(self) -> None:
        """Give the memory back."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        os.close(self.file)


WORKER = Path(__file__).with_name("worker.py")
START_SECONDS = 60.0
Arrays = Sequence["np.ndarray | None"]


class IsolatedBinding:
    """The same as :class:`~deep500.operators.cpp.binding.Binding`, in a worker process.

    A worker that died is started again at the next call.
    """

    isolated = True

    def __init__(self, name: str, path: Path, timeout: float) -> None:
        self.name, self.path, self.timeout = name, path, timeout
        self._lock = threading.Lock()
        self._sizes: list[list[int]] = []
        self._worker: IsolatedWorker | None = None
        with self._lock:
            self.signature: dict[str, Any] = self._started().signature

    def instance(self, sizes: np.ndarray) -> int:
        """A handle for these sizes; the worker makes the operator once, here, so that a refusal shows early."""
        numbers = [int(n) for n in sizes]
        self._ask({"kind": "instance", "sizes": numbers})
        with self._lock:
            self._sizes.append(numbers)
            return len(self._sizes) - 1

    def call(self, kind: str, instance: int, *groups: Arrays) -> None:
        """Run a computation on groups of arrays.

        Raises:
            OperatorError: it fails, crashes, takes too long, or writes outside of its arrays.
        """
        with self._lock:
            worker = self._started()
            first_written = len(groups) - WRITTEN[kind]
            shared = (worker.readable, worker.writable)
            for file in shared:
                file.clear()
            places = []
            for g, group in enumerate(groups):
                which = int(g >= first_written)
                places.append([None if x is None else [which, shared[which].place(x)] for x in group])
            for file in shared:
                file.fill()
            request = {"kind": kind, "sizes": self._sizes[instance], "groups": places}
            self._exchange(worker, request | {"bytes": [file.size for file in shared]})
            beyond = worker.writable.fetch()
        if beyond is not None:
            raise OperatorError(
                f"C++ operator {self.name!r}: got a write outside of its arrays from {kind} (beside array {beyond} of "
                "those it may write); expected indices within them: see its loops"
            )

    def report(self, instance: int, data: int | None) -> int:
        """Return what the operator's ``report`` returns; data cannot be passed to another process."""
        if data is not None:
            raise OperatorError(f"C++ operator {self.name!r}: got report data under isolate; expected None")
        return int(self._ask({"kind": "report", "sizes": self._sizes[instance]}))

    def _ask(self, request: dict[str, Any]) -> int:
        with self._lock:
            return self._exchange(self._started(), request)

    def _started(self) -> IsolatedWorker:
        """The worker; a new one if there is none, it has ended, or this process is a fork of the one it belongs to."""
        worker = self._worker
        if worker is None or worker.process.poll() is not None or worker.owner != os.getpid():
            worker = self._worker = IsolatedWorker(self.path)
            worker.signature = json.loads(self._reply(worker, "start", START_SECONDS)["signature"])
            weakref.finalize(self, worker.end)
        return worker

    def _exchange(self, worker: IsolatedWorker, request: dict[str, Any]) -> int:
        try:
            worker.send(request)
        except BrokenPipeError:
            pass  # it has ended: the reply says how
        reply = self._reply(worker, request["kind"], self.timeout)
        if "failed" in reply:
            raise failure(self.name, reply["failed"], reply["error"])
        return int(reply["value"])

    def _reply(self, worker: IsolatedWorker, kind: str, seconds: float) -> dict[str, Any]:
        try:
            line = worker.receive(seconds)
        except BaseException:
            worker.end()
            raise
        if line is None:
            worker.end()
            raise OperatorError(
                f"C++ operator {self.name!r}: got no end of {kind} in {seconds:g} s; expected one (the worker was "
                "stopped): look for an endless loop, or pass a longer timeout"
            )
        if not line:
            code = worker.end()
            death = f"signal {signal.Signals(-code).name} ({signal.strsignal(-code)})" if code < 0 else ""
            how = death or f"exit code {code}"
            raise OperatorError(
                f"C++ operator {self.name!r}: got a crash of its worker process in {kind}: {how}; expected it to "
                "return: look for null pointers and indices out of bounds"
            )
        reply: dict[str, Any] = json.loads(line)
        return reply


class IsolatedWorker:
    """A worker process with its pipes and shared files."""

    def __init__(self, library: Path) -> None:
        self.owner = os.getpid()
        self.readable, self.writable = SharedFile(0), SharedFile(GUARD)
        self.signature: dict[str, Any] = {}
        self._replies, replies = os.pipe()
        files = (replies, self.readable.file, self.writable.file)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(WORKER), str(library), *map(str, files)],
                stdin=subprocess.PIPE,
                pass_fds=files,
                start_new_session=True,
            )
        finally:
            os.close(replies)
        self._rest = b""
        self._ended = False

    def send(self, request: dict[str, Any]) -> None:
        """Send a request."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, seconds: float) -> bytes | None:
        """The next line; empty if the worker has ended, None if nothing came in time."""
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if not select.select([self._replies], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            more = os.read(self._replies, 65536)
            if not more:
                return b""
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def end(self) -> int:
        """Stop the process if this one started it, and release everything; returns its exit code."""
        if self._ended:
            return self.process.returncode or 0
        self._ended = True
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
        os.close(self._replies)
        self.readable.close()
        self.writable.close()
        return self.process.returncode or 0
