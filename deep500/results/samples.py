"""Samples on disk: what was measured, block by block, so that a crash loses at most the block being written.

``samples/<series>.<launch>.i64`` holds pairs of little-endian 64-bit integers, start and duration in nanoseconds. After
each block is on the disk, ``journal.jsonl`` gets one line with its length and checksum; bytes beyond the last line that
is whole do not count. Series are declared in the manifest; a *launch* is one process, or one seed, of a series.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import ResultsError
from deep500.results.files import append_line, read_lines, to_json, write_atomic, writing

FOLDER, JOURNAL = "samples", "journal.jsonl"
PAIR = np.dtype([("start_ns", "<i8"), ("duration_ns", "<i8")])


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
                _sync(handle.fileno())
        line = {"series": series, "launch": launch, "from": before, "n": block.size, "crc32": zlib.crc32(data)}
        append_line(self.path / JOURNAL, line)

    def trim(self) -> None:
        """After a crash: forget a journal line that was cut short, so that the next one starts on a line of its own."""
        journal = self.path / JOURNAL
        if journal.exists() and not journal.read_bytes().endswith(b"\n"):
            self._rewrite(read_lines(journal))

    def keep_blocks(self, launch: int, blocks: int) -> None:
        """Forget all but the first blocks of every series of a launch: what will be measured again."""
        seen: dict[str, int] = {}
        lines = read_lines(self.path / JOURNAL)
        kept = []
        for line in lines:
            number = seen.get(line["series"], 0)
            if line["launch"] == launch:
                seen[line["series"]] = number + 1
            if line["launch"] != launch or number < blocks:
                kept.append(line)
        if len(kept) != len(lines):
            self._rewrite(kept)

    def _rewrite(self, lines: Sequence[Mapping[str, Any]]) -> None:
        write_atomic(self.path / JOURNAL, "".join(to_json(line, indent=None) + "\n" for line in lines))

    def names(self) -> list[tuple[str, int]]:
        """(series, launch) of everything that was recorded, in order of first appearance."""
        return list(dict.fromkeys((line["series"], line["launch"]) for line in read_lines(self.path / JOURNAL)))

    def load(self, series: str, launch: int) -> np.ndarray:
        """All whole blocks, as records ``start_ns``, ``duration_ns``; raises ResultsError where one was altered."""
        file = self._file(series, launch)
        blocks = [b for b in read_lines(self.path / JOURNAL) if (b["series"], b["launch"]) == (series, launch)]
        with writing(file):
            data = file.read_bytes() if file.exists() else b""
        for block in blocks:
            piece = data[block["from"] * PAIR.itemsize : (block["from"] + block["n"]) * PAIR.itemsize]
            if len(piece) != block["n"] * PAIR.itemsize or zlib.crc32(piece) != block["crc32"]:
                raise ResultsError(
                    f"{file}: got other bytes than were written in samples {block['from']} to "
                    f"{block['from'] + block['n']}; expected those of the journal: restore the file, or measure again"
                )
        count = sum(block["n"] for block in blocks)
        return np.frombuffer(data[: count * PAIR.itemsize], PAIR)

    def durations(self, series: str, launch: int) -> np.ndarray:
        """Seconds, in the order in which they were taken."""
        return self.load(series, launch)["duration_ns"] / 1e9

    def _file(self, series: str, launch: int) -> Path:
        return self.path / FOLDER / f"{series}.{launch}.i64"

    def _counted(self, series: str, launch: int) -> int:
        lines = read_lines(self.path / JOURNAL)
        return sum(line["n"] for line in lines if (line["series"], line["launch"]) == (series, launch))


def _sync(descriptor: int) -> None:
    import os

    os.fsync(descriptor)
