"""Memory that two processes share, with arrays placed in it."""

from __future__ import annotations

import mmap
import os

import numpy as np

ALIGN = 64
GUARD = 4096
"""Bytes before and after every array that must not change."""

MARK = 0xA5


class SharedFile:
    """A file in memory that holds arrays one after another, each between guards of so many bytes."""

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
