"""Samples on disk: what was measured, block by block, so that a crash loses at most the block being written.

``samples/<series>.<launch>.i64`` holds pairs of little-endian 64-bit integers, start and duration in nanoseconds. After
each block is on the disk, ``journal.jsonl`` gets one line with its length and checksum; bytes beyond the last line that
is whole do not count, and are not read. Series are declared in the manifest; a *launch* is one process, or one seed, of
a series.
"""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import ResultsError
from deep500.reading import open_regular, read_bytes
from deep500.results.files import MOST_BYTES_OF_LINES, append_line, read_lines, to_json, write_atomic, writing

FOLDER, JOURNAL = "samples", "journal.jsonl"
PAIR = np.dtype([("start_ns", "<i8"), ("duration_ns", "<i8")])
MOST_SAMPLES = 2**26
"""Samples of one launch of a series: a GiB."""

LONGEST, LATEST = 10**17, 2**62
"""Nanoseconds of a duration (three years), and of a clock: no sum of them is too large for 64 bits."""


class SampleStore:
    """Reads and appends the samples of one results folder.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = SampleStore(Path(folder))
        ...     store.append("step", 0, [0, 100], [90, 95])
        ...     store.durations("step", 0).tolist()
        [9e-08, 9.5e-08]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[Any, list[dict[str, Any]]] = None, []

    def _journal(self) -> list[dict[str, Any]]:
        """Its lines, read again when the file has changed."""
        journal = self.path / JOURNAL
        facts = journal.stat() if journal.exists() else None
        now = facts and (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if now is None or now != self._known[0]:
            self._known = now, read_lines(journal)
        return self._known[1]

    def append(self, series: str, launch: int, starts_ns: Any, durations_ns: Any) -> None:
        """Write one block; it is on the disk when this returns.

        Raises:
            ResultsError: the name is not made of letters, digits, ``_`` and ``-``, a duration is negative, or the disk
                refuses.
        """
        block = np.empty(len(starts_ns), PAIR)
        block["start_ns"], block["duration_ns"] = starts_ns, durations_ns
        if not re.fullmatch(r"[A-Za-z0-9_-]+", series) or (block["duration_ns"] < 0).any():
            raise ResultsError(
                f"got series {series!r} with durations from {block['duration_ns'].min(initial=0)} ns; expected a name "
                "of letters, digits, _ and -, and no negative durations: rename it, use a monotonic clock"
            )
        file, before = self._file(series, launch), self._counted(series, launch)
        data = block.tobytes()
        with writing(file):
            file.parent.mkdir(exist_ok=True)
            with file.open("r+b" if file.exists() else "w+b") as handle:
                handle.truncate(before * PAIR.itemsize)  # what a crash left behind the last whole block
                handle.seek(0, 2)
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
        line = {"series": series, "launch": launch, "from": before, "n": block.size, "crc32": zlib.crc32(data)}
        append_line(self.path / JOURNAL, line)

    def trim(self) -> None:
        """After a crash: forget a journal line that was cut short, so that the next one starts on a line of its own."""
        journal = self.path / JOURNAL
        if journal.exists() and not read_bytes(journal, MOST_BYTES_OF_LINES).endswith(b"\n"):
            self._rewrite(read_lines(journal))

    def keep_blocks(self, launch: int, blocks: Callable[[str], int]) -> None:
        """Forget all but the first blocks of every series of a launch, as many as its name is given: what comes after
        will be measured again."""
        seen: dict[str, int] = {}
        lines = read_lines(self.path / JOURNAL)
        remaining = []
        for line in lines:
            number = seen.get(line["series"], 0)
            if line["launch"] == launch:
                seen[line["series"]] = number + 1
            if line["launch"] != launch or number < blocks(line["series"]):
                remaining.append(line)
        if len(remaining) != len(lines):
            self._rewrite(remaining)

    def _rewrite(self, lines: Sequence[Mapping[str, Any]]) -> None:
        write_atomic(self.path / JOURNAL, "".join(to_json(line, indent=None) + "\n" for line in lines))

    def names(self) -> list[tuple[str, int]]:
        """(series, launch) of everything that was recorded, in order of first appearance."""
        return list(dict.fromkeys((line["series"], line["launch"]) for line in self._journal()))

    def load(self, series: str, launch: int) -> np.ndarray:
        """All whole blocks, as records ``start_ns``, ``duration_ns``; raises ResultsError where one was altered."""
        file = self._file(series, launch)
        blocks = [b for b in self._journal() if (b["series"], b["launch"]) == (series, launch)]
        counted = 0
        for block in blocks:
            if block["from"] != counted or counted + block["n"] > MOST_SAMPLES:
                raise ResultsError(
                    f"{self.path / JOURNAL}: got a block of {series}.{launch} with {block['n']} samples from "
                    f"{block['from']}; expected it from {counted}, and {MOST_SAMPLES} samples at most: restore the "
                    "file, or measure again"
                )
            counted += block["n"]
        if not counted:
            return np.empty(0, PAIR)
        try:
            data = self._read(file, counted * PAIR.itemsize)
        except OSError as error:
            raise ResultsError(
                f"{file}: got '{error.strerror or error}'; expected samples 0 to {counted}, which the journal counts: "
                "restore the file, or measure again"
            ) from error
        for block in blocks:
            piece = data[block["from"] * PAIR.itemsize : (block["from"] + block["n"]) * PAIR.itemsize]
            if len(piece) != block["n"] * PAIR.itemsize or zlib.crc32(piece) != block["crc32"]:
                raise ResultsError(
                    f"{file}: got other bytes than were written in samples {block['from']} to "
                    f"{block['from'] + block['n']}; expected those of the journal: restore the file, or measure again"
                )
        samples = np.frombuffer(data, PAIR)
        durations, starts = samples["duration_ns"], samples["start_ns"]
        if durations.min() < 0 or durations.max() > LONGEST or starts.min() < -LATEST or starts.max() > LATEST:
            raise ResultsError(
                f"{file}: got durations from {durations.min()} to {durations.max()} ns; expected 0 to {LONGEST}, from "
                f"starts below {LATEST}: restore the file, or measure again"
            )
        return samples

    def _read(self, file: Path, size: int) -> bytes:
        """Read as many bytes as the journal counts, fewer where the file is cut short: what lies beyond is not read."""
        if file.parent.is_symlink():
            raise OSError(errno.ELOOP, "a folder that is a link")
        with open_regular(file) as handle:
            there = os.fstat(handle.fileno()).st_size
            return handle.read(size) if there >= size else b""

    def durations(self, series: str, launch: int) -> np.ndarray:
        """Seconds, in the order in which they were taken."""
        return self.load(series, launch)["duration_ns"] / 1e9

    def _file(self, series: str, launch: int) -> Path:
        return self.path / FOLDER / f"{series}.{launch}.i64"

    def _counted(self, series: str, launch: int) -> int:
        return sum(line["n"] for line in self._journal() if (line["series"], line["launch"]) == (series, launch))
