"""Bytes of data files with what is known about them, from folders and from archives, which are never unpacked to disk.

Reading archives in place costs a second or two per run, but nothing in them can be written anywhere, and a data folder
may be read-only.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import DataError

_LARGEST_MEMBER = 400_000_000  # bytes; the largest file of any known set has 155 MB
_TAR_ERRORS = (tarfile.TarError, EOFError, OSError, zlib.error)


@dataclass(frozen=True)
class RawFile:
    """The content of one data file.

    Attributes:
        where: its path, or ``archive!member``.
        data: its bytes as stored.
        known: official digest, ``"md5:..."`` or ``"sha256:..."``, None where there is none.
    """

    where: str
    data: bytes
    known: str | None = None

    def digest(self) -> str:
        """Its digest, by the algorithm of the known one (SHA-256 where none is known)."""
        return digest(self.data, self.known)

    def error(self, got: str, expected: str) -> DataError:
        """The error to raise for this file, with size and both checksums."""
        return DataError(
            f"{self.where}: got {got} (file of {len(self.data)} bytes, {self.digest()}); expected {expected} (official "
            f"checksum {self.known or 'not known'}); the file is truncated, altered or of another format: replace it"
        )

    def verify(self) -> None:
        """Raise DataError unless the content is the official one, also where that cannot be known."""
        if self.known is None:
            raise self.error("a request to verify it", "a file whose checksum is known, as those of the archives are")
        if self.digest() != self.known:
            raise self.error("another checksum than the official one", "the official content")

    def gunzipped(self, size: int) -> bytes:
        """The content, decompressed where the name ends in .gz; reads at most one byte more than ``size``."""
        if not self.where.endswith(".gz"):
            return self.data
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(self.data)) as stream:
                return stream.read(size + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise self.error(f"a damaged gzip stream ({error})", f"{size} bytes once decompressed") from error


def digest(data: bytes, like: str | None = None) -> str:
    """``"algorithm:hex"`` of ``data``, by the algorithm that the digest ``like`` is written in (default SHA-256)."""
    algorithm = "sha256" if like is None else like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()}"


def read_folder(folder: Path, names: Iterable[str], known: Mapping[str, str]) -> dict[str, RawFile]:
    """Read files of ``folder``, each under its name or, failing that, with .gz appended.

    Raises:
        DataError: some are missing, all of which it names.
    """
    paths = {name: find(folder, name) for name in names}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        raise DataError(
            f"{folder}: got a folder without {', '.join(missing)}; expected {len(paths)} files; "
            "complete the copy or remove the folder"
        )
    return {name: RawFile(str(path), _bytes(path), known.get(path.name)) for name, path in paths.items() if path}


def find(folder: Path, name: str) -> Path | None:
    """The file ``name`` or ``name.gz`` in ``folder``, or None."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_archive(archive: Path, names: Iterable[str], known: Mapping[str, str]) -> dict[str, RawFile]:
    """Read members of a .tar.gz by the last part of their name, in one pass, in memory.

    Raises:
        DataError: the archive is damaged, lacks a member or holds an implausibly large one.
    """
    chosen, files = set(names), {}
    try:
        with tarfile.open(archive, "r|gz") as tar:  # a stream: seeking in gzip would decompress it again and again
            for member in tar:
                name = member.name.rpartition("/")[2]
                stream = tar.extractfile(member) if name in chosen and member.isreg() else None
                if stream is not None and member.size <= _LARGEST_MEMBER:
                    files[name] = RawFile(f"{archive}!{name}", stream.read(), known.get(name))
    except _TAR_ERRORS as error:
        raise _archive(archive, known).error(f"a damaged archive ({error})", "a complete .tar.gz") from error
    if chosen - set(files):
        missing = ", ".join(sorted(chosen - set(files)))
        raise _archive(archive, known).error(f"an archive without usable {missing}", f"{len(chosen)} files in it")
    return files


def verify_archive(archive: Path, known: Mapping[str, str]) -> None:
    """Raise DataError unless the archive has its official checksum."""
    _archive(archive, known).verify()


def _archive(archive: Path, known: Mapping[str, str]) -> RawFile:
    return RawFile(str(archive), _bytes(archive), known.get(archive.name))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: got {error}; expected a readable file; check its permissions and disk") from error
