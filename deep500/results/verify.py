"""``deep500 verify DIR``: are these the bytes that were written, and do the figures follow from the samples?

A finished run is *sealed*: ``SHA256SUMS`` holds the checksum of every file (``sha256sum -c SHA256SUMS`` checks it too).
The seal shows accidents and careless edits; who rewrites the sums as well is not found out by them, only by a
signature that the project does not make.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from deep500.errors import ResultsError
from deep500.reading import open_regular, read_bytes
from deep500.results.files import largest, read_json, regular_files, to_json, write_atomic, writing
from deep500.results.record import MANIFEST
from deep500.results.samples import SampleStore
from deep500.results.stats import SCHEMA, STATS, compute

SUMS = "SHA256SUMS"


def write_stats(path: Path) -> None:
    """Compute ``stats.json`` from the samples and the manifest."""
    write_atomic(path / STATS, _stats(path))


def _stats(path: Path) -> str:
    return to_json(compute(SampleStore(path), read_json(path / MANIFEST).get("series", {}))) + "\n"


def seal(path: Path) -> None:
    """Write the checksum of every file below a results folder; raises ResultsError for a link, a pipe or a device."""
    lines = [f"{_digest(path / name)}  {name}\n" for name in _files(path)]
    write_atomic(path / SUMS, "".join(lines))


def _files(path: Path) -> list[str]:
    return [name for name in regular_files(path) if name != SUMS]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with writing(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > (most := largest(path)):
            raise ResultsError(f"{path}: got {size} bytes; expected at most {most}: restore the file, or remove it")
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def verify(path: Path) -> list[str]:
    """Everything that is wrong with a sealed results folder, in words; empty when nothing is.

    Raises:
        ResultsError: the folder is no results folder, or was never sealed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "manifest.json").write_text("{}")
        ...     write_stats(Path(folder)); seal(Path(folder))
        ...     verify(Path(folder))
        []
    """
    if not (path / MANIFEST).is_file() or not (path / SUMS).is_file():
        raise ResultsError(
            f"{path}: got no {MANIFEST} or no {SUMS}; expected the folder of a finished run: name one, or finish it "
            "with --resume"
        )
    listed: dict[str, str] = {}
    problems = []
    text = read_bytes(path / SUMS).decode("utf-8", errors="replace")
    for line in text.splitlines():
        digest, gap, name = line.partition("  ")
        if len(digest) != 64 or not gap or not name or name in listed:
            problems.append(f"{SUMS}: a line is not what was written: {line[:80]!r}")
        else:
            listed[name] = digest
    if text and not text.endswith("\n"):
        problems.append(f"{SUMS}: the last line is cut short")
    try:
        present = set(_files(path))
    except ResultsError as error:
        return [*problems, str(error)]
    problems += [f"{name}: missing" for name in sorted(listed.keys() - present)]
    problems += [f"{name}: not there when the run was sealed" for name in sorted(present - listed.keys())]
    problems += _altered(path, {name: listed[name] for name in sorted(present & listed.keys())})
    return problems or _recomputed(path)


def _altered(path: Path, listed: Mapping[str, str]) -> Iterator[str]:
    for name, digest in listed.items():
        try:
            if _digest(path / name) != digest:
                yield f"{name}: altered"
        except ResultsError as error:
            yield f"{name}: altered ({error})"


def _recomputed(path: Path) -> list[str]:
    """Whether ``stats.json`` is, byte for byte, what follows from the samples."""
    if not (path / STATS).is_file():
        return []
    try:
        fresh = _stats(path)
    except ResultsError as error:
        return [str(error)]
    same = fresh.encode("utf-8") == read_bytes(path / STATS)
    written = read_json(path / STATS).get("schema") if not same else SCHEMA
    if written != SCHEMA:
        return [f"{STATS}: got schema {written!r}; expected {SCHEMA!r}: use the version of Deep500 that wrote it"]
    return [] if same else [f"{STATS}: got figures that do not follow from the samples; expected {STATS} as computed"]
