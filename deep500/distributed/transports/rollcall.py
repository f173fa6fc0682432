"""Which rank ended without a word: killed, or by ``os._exit``, whatever its exit code.

A rank that raises, or leaves early, says so itself (``failstop``). One that is killed cannot, and the processes around
it tell wrong things: MPICH's launcher names no rank, ends the others and returns 0 if the first one's code was 0;
torchrun names a rank whose call failed because of it. The kernel knows, because it lets go what an ended process held:
every rank holds a file (:class:`Presence`), open and locked, which it removes when it is done. Who looks:

* the process that launched the ranks, after their end: inotify keeps the order in which files were closed
  (:class:`RollCall`). Others end the ranks that are left within milliseconds, so looking at locks would be too late.
* a rank whose call failed, where others launched the ranks: whose lock is free (:meth:`Presence.silent`).
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

ROLL_CALL, HELD = "DEEP500_ROLL_CALL", "DEEP500_HELD"
"""Variables: the folder of those files, from our launcher; a rank's descriptor, from ``held.py`` in its process."""

SILENT = "ended before the others without a word: it was killed, or called os._exit"

_MODIFY, _CLOSE_WRITE, _CREATE, _DELETE = 0x2, 0x8, 0x100, 0x200  # from <sys/inotify.h>
_REPORTED = b"r"
_AT = "at-"
_LAUNCHER = "launcher"
"""A file that says whose the folder is: the last rank does not remove it then."""


class Presence:
    """A rank among others: a file that it holds open and locked, beside theirs.

    The lock is of a kind that belongs to the process alone, not to its forked children, and goes with it.

    Args:
        rank: this process's number.
        folder: of all ranks of this machine; None: there is none, and nothing happens.
        descriptor: of this rank's file, if the process holds it already (``held.py``).

    Example:
        >>> folder = Path(new_folder())
        >>> presence = Presence(0, folder)
        >>> presence.silent(seconds=0.0)
        []
        >>> presence.done()
        >>> folder.exists()
        False
    """

    def __init__(self, rank: int, folder: Path | None, descriptor: int | None = None) -> None:
        self._file: IO[bytes] | None = None
        if folder is None or sys.platform == "win32":
            return
        import fcntl

        self._folder, self._rank = folder, rank
        try:
            folder.mkdir(mode=0o700, exist_ok=True)  # the ranks of another machine have one there
            self._file = (
                (folder / str(rank)).open("xb", buffering=0) if descriptor is None else os.fdopen(descriptor, "wb", 0)
            )
        except OSError:  # the launcher is gone, or this machine lacks the folder above
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        # Or the file of a dead rank would stay open in its children: it closes when the last copy does. The child's
        # first instruction is soon enough, as what ends the other ranks takes milliseconds to notice.
        os.register_at_fork(after_in_child=self._let_go)

    def silent(self, seconds: float) -> list[int]:
        """Ranks of this machine that have ended without a word; looked for until there is one, or time is up."""
        until = time.monotonic() + seconds
        while True:
            ended = sorted(int(path.name) for path in self._others() if _free(path) and not _has_reported(path))
            if ended or time.monotonic() > until:
                return ended
            time.sleep(0.05)

    def missing(self, size: int) -> list[int]:
        """Ranks that have ended without a word, or never came, where all ``size`` of them are on this machine."""
        if self._file is None:
            return []
        there = {int(path.name) for path in _files(self._folder)}
        return sorted({*range(size)} - there | {*self.silent(0.0)})

    def note(self, place: str) -> None:
        """Write where this rank is, for those that wait for it."""
        if self._file is not None:
            try:
                (self._folder / f"{_AT}{self._rank}").write_text(place, encoding="ascii")
            except OSError:  # the launcher is gone
                pass

    def places(self) -> dict[int, str]:
        """Places of all ranks of this machine, this one too, as each wrote last where it is."""
        if self._file is None:
            return {}
        texts = {path.name.removeprefix(_AT): path for path in self._folder.glob(f"{_AT}*")}
        return {int(rank): _text(path) for rank, path in texts.items() if rank.isdigit()}

    def done(self) -> None:
        """This rank has nothing to do any more: as if it had never been there."""
        if self._file is not None:
            (self._folder / f"{_AT}{self._rank}").unlink(missing_ok=True)
            (self._folder / str(self._rank)).unlink(missing_ok=True)
            self._let_go()
            try:
                self._folder.rmdir()
            except OSError:  # others are still there
                pass

    def reported(self) -> None:
        """This rank has said why it ends; the last of a machine to say so clears up."""
        if self._file is not None:
            self._file.write(_REPORTED)
            if not (self._folder / _LAUNCHER).exists() and all(
                _has_reported(path) or _free(path) for path in self._others()
            ):
                shutil.rmtree(self._folder, ignore_errors=True)

    def _others(self) -> list[Path]:
        if self._file is None:
            return []
        # Never its own: a process that closes a file anywhere loses its lock on it.
        return [path for path in _files(self._folder) if path.name != str(self._rank)]

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def new_folder() -> str:
    """A new folder for the files of all ranks."""
    return tempfile.mkdtemp(prefix="deep500-ranks-")


def _files(folder: Path) -> list[Path]:
    """Those of ranks."""
    try:
        return [path for path in folder.iterdir() if path.name.isdigit()]
    except FileNotFoundError:  # the last one has cleared up
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:  # that rank is done by now
        return ""


def _has_reported(path: Path) -> bool:
    """Whether a rank has said why it ends, or that it is done."""
    try:
        return bool(path.read_bytes())
    except OSError:  # it has removed the file
        return True


def _free(path: Path) -> bool:
    """Whether the process that held the file has ended."""
    import fcntl

    try:
        with path.open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held; or removed by now, since that rank is done
        return False
    return True


class RollCall:
    """The launcher's side, around the life of its ranks.

    Args:
        ranks: how many.

    Example:
        >>> with RollCall(2) as call:
        ...     ranks = [Presence(rank, call.folder) for rank in range(2)]
        ...     ranks[1]._let_go()             # what the kernel does when a process ends
        ...     ranks[0].done()
        ...     print(call.verdict())
        [rank 1] ended before the others without a word: it was killed, or called os._exit; all ranks end
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self.folder = Path(new_folder())
        (self.folder / _LAUNCHER).touch()
        self._watch = _watch(self.folder)
        self._events: list[tuple[int, int]] = []

    def variables(self) -> dict[str, str]:
        """Variables that the environment of every rank needs."""
        return {ROLL_CALL: str(self.folder)}

    def wait(self, process: subprocess.Popen[bytes], patience: float = 20.0) -> int:
        """The exit code of what started the ranks, which is told to end if it goes on for ``patience`` seconds after a
        rank has failed: MPICH's has been seen to go on with the others once."""
        if self._watch is None or not hasattr(os, "pidfd_open"):
            return process.wait()
        ended = os.pidfd_open(process.pid)
        try:
            while process.poll() is None:
                failed = self._first() is not None
                ready, _, _ = select.select([ended, self._watch], [], [], patience if failed else None)
                if failed and not ready:
                    process.terminate()
                    try:
                        return process.wait(patience)
                    except subprocess.TimeoutExpired:
                        process.kill()
            return process.wait()
        finally:
            os.close(ended)

    def _first(self) -> tuple[int, bool] | None:
        """The first rank that failed, and whether it has said so; None: none has so far."""
        self._events += _read(self._watch)
        done = set[int]()
        for mask, rank in self._events:
            if mask & _DELETE:
                done.add(rank)
            elif mask & _MODIFY:
                return rank, True
            elif mask & _CLOSE_WRITE and rank not in done:
                return rank, False
        return None

    def verdict(self) -> str | None:
        """After the end of all ranks: who ended first, if that was without a word; else None."""
        first = self._first()
        if first is not None:
            absent = sorted(set(range(self._ranks)) - {rank for _, rank in self._events})
            more = f" (never in the world of all ranks: {', '.join(map(str, absent))})" if absent else ""
            return None if first[1] else f"[rank {first[0]}] {SILENT}; all ranks end{more}"
        # Where nothing keeps the order, all that have ended without a word are as good as each other.
        left = _files(self.folder)
        if any(map(_has_reported, left)) or not left:
            return None
        return f"[rank {' or '.join(sorted(path.name for path in left))}] {SILENT}; all ranks end"

    def __enter__(self) -> RollCall:
        return self

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            os.close(self._watch)
        shutil.rmtree(self.folder, ignore_errors=True)


def _watch(folder: Path) -> int | None:
    """A descriptor from which what happens to the files of a folder is read, in order; None: the system has none."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if watch < 0:  # a user may have 128 of them
        return None
    mask = _MODIFY | _CLOSE_WRITE | _CREATE | _DELETE
    if libc.inotify_add_watch(watch, os.fsencode(folder), ctypes.c_uint32(mask)) < 0:
        os.close(watch)
        return None
    return int(watch)


def _read(watch: int | None) -> list[tuple[int, int]]:
    """Events that have happened, in order: (mask, rank)."""
    events: list[tuple[int, int]] = []
    while watch is not None:
        try:
            data = os.read(watch, 65536)
        except BlockingIOError:  # that was all
            break
        place = 0
        while place < len(data):
            _, mask, _, length = struct.unpack_from("iIII", data, place)
            name = data[place + 16 : place + 16 + length].rstrip(b"\0")
            place += 16 + length
            if name.isdigit():
                events.append((mask, int(name)))
    return events
