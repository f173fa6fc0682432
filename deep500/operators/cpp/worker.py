"""The worker process of an isolated operator: nothing but the standard library and the operator's library.

Started with the paths of the library and the numbers of three files: replies go to the first; the second holds what
the operator may only read, the third what it may write. Requests come as lines of JSON on standard input.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import select
import sys
import threading
from typing import Any

MAP_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A shared file in memory; grows when a request needs more of it."""

    def __init__(self, libc: Any, file: int, protection: int) -> None:
        self.libc, self.file, self.protection = libc, file, protection
        self.address, self.size = 0, 0

    def at_least(self, size: int) -> int:
        """Address of the file's first byte."""
        if size > self.size:
            if self.size:
                self.libc.munmap(ctypes.c_void_p(self.address), ctypes.c_size_t(self.size))
            self.address = self.libc.mmap(None, size, self.protection, mmap.MAP_SHARED, self.file, 0)
            if self.address == MAP_FAILED:
                raise MemoryError(f"cannot map {size} bytes")
            self.size = size
        return self.address


def main(path: str, replies: int, readable: int, writable: int) -> None:
    """Load the library, send its signature, answer requests until standard input ends."""
    libc = ctypes.CDLL(None)
    threading.Thread(target=follow, daemon=True).start()
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shared = (Mapping(libc, readable, mmap.PROT_READ), Mapping(libc, writable, mmap.PROT_READ | mmap.PROT_WRITE))
    library = ctypes.CDLL(path)
    library.d500_signature.restype = library.d500_error.restype = ctypes.c_char_p
    library.d500_instance.restype, library.d500_instance.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    library.d500_report.restype, library.d500_report.argtypes = ctypes.c_int64, [ctypes.c_void_p] * 2
    send(replies, {"signature": library.d500_signature().decode()})
    for line in sys.stdin:
        send(replies, answer(library, json.loads(line), shared))


def follow() -> None:
    """End with the process that started this one, also in the middle of an endless loop.

    Not with PR_SET_PDEATHSIG: that follows the thread that started this process, which may end long before.
    """
    waiting = select.poll()
    waiting.register(0, 0)  # no event but the end of the pipe's other side
    waiting.poll()
    os._exit(0)


def answer(library: Any, request: dict[str, Any], shared: tuple[Mapping, Mapping]) -> dict[str, Any]:
    """Run what a request asks for."""
    instance = library.d500_instance((ctypes.c_int64 * len(request["sizes"]))(*request["sizes"]))
    if not instance:
        return {"failed": "create_new_op", "error": library.d500_error().decode(errors="replace")}
    if request["kind"] in ("instance", "report"):
        return {"value": library.d500_report(instance, None) if request["kind"] == "report" else 0}
    bases = [mapping.at_least(size) for mapping, size in zip(shared, request["bytes"], strict=True)]
    groups = []
    for places in request["groups"]:
        addresses = [None if place is None else bases[place[0]] + place[1] for place in places]
        groups.append((ctypes.c_void_p * len(addresses))(*addresses))
    if getattr(library, f"d500_{request['kind']}")(ctypes.c_void_p(instance), *groups):
        return {"failed": request["kind"], "error": library.d500_error().decode(errors="replace")}
    return {"value": 0}


def send(replies: int, reply: dict[str, Any]) -> None:
    """Send one line."""
    os.write(replies, json.dumps(reply).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
