"""Files out of packages of Debian: pinned by version and SHA-256, got by apt-get, opened without being installed.

Nothing needs root: ``apt-get download`` writes the package into a folder, and the library unpacks the archive itself
(ar, then tar). Nothing in it is run.
"""

from __future__ import annotations

import io
import lzma
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import DataError, MissingDataset
from deep500.wheels import WheelError, compare

SECONDS = 600
"""Longest download."""


@dataclass(frozen=True)
class DebianPackage:
    """A pinned package.

    Attributes:
        package, version: what apt-get is asked for.
        sha256: of the file, in hex.
        architecture: last part of its name.
    """

    package: str
    version: str
    sha256: str
    architecture: str = "all"

    @property
    def file(self) -> str:
        """Its name."""
        return f"{self.package}_{self.version}_{self.architecture}.deb"

    def stored(self, folders: Sequence[Path], download: bool = False) -> Path:
        """The file in the first folder that has it, fetched into the first one if asked for.

        Raises:
            DataError: there is none, and how to get one; or it is not the pinned one.
        """
        file = next((folder / self.file for folder in folders if (folder / self.file).is_file()), None)
        if file is None:
            if not download:
                raise MissingDataset(
                    f"got no {self.file} in {', '.join(map(str, folders))}; expected it: add --download "
                    f"(download=True), or put the file there ('apt-get download {self.package}={self.version}')"
                )
            file = self._download(folders[0])
        try:
            compare(file, self.sha256)
        except WheelError as error:
            raise DataError(f"{file}: {error}") from error
        return file

    def _download(self, folder: Path) -> Path:
        cure = f"put {self.file} (SHA-256 {self.sha256}) of Debian's pool into {folder} by hand"
        if shutil.which("apt-get") is None:
            raise DataError(f"got no apt-get on this system; expected it to fetch {self.file}: {cure}")
        folder.mkdir(parents=True, exist_ok=True)
        command = ["apt-get", "-qq", "download", f"{self.package}={self.version}"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise DataError(f"got no answer from apt-get in {SECONDS} s; expected {self.file}: {cure}") from error
        if done.returncode or not (folder / self.file).is_file():
            answer = " ".join(done.stderr.split())
            raise DataError(f"got no {self.file} from apt-get ({answer}); expected it: run 'apt-get update', or {cure}")
        return folder / self.file


def read_package(file: Path, member: str, most: int = 1 << 28) -> bytes:
    """The bytes of a file in a package, such as ``./usr/lib/bible.data``.

    Raises:
        DataError: it is no package, has no such file, or one above ``most`` bytes.
    """
    content = file.read_bytes()
    place = 8
    try:
        if content[:8] != b"!<arch>\n":
            raise ValueError("no ar archive")
        while place + 60 <= len(content):
            name, size = content[place : place + 16].decode("ascii").strip(), int(content[place + 48 : place + 58])
            if name.startswith("data.tar"):
                with tarfile.open(fileobj=io.BytesIO(content[place + 60 : place + 60 + size])) as archive:
                    entry = archive.getmember(member)
                    stream = archive.extractfile(entry)
                    if stream is None or entry.size > most:
                        raise ValueError(f"{member} is no file of at most {most} bytes")
                    return stream.read()
            place += 60 + size + size % 2
        raise ValueError("no data in it")
    except (ValueError, KeyError, OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
        raise DataError(f"{file}: got {error}; expected a package with {member}: fetch it again") from error
