"""Files out of wheels: pinned by version and SHA-256, got by pip from wherever pip is configured to look.

Nothing in a wheel is installed or run, and its own requirements do not enter the environment.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import Deep500Error

SECONDS = 1800
"""Longest download."""


class WheelError(Deep500Error):
    """A wheel that pip does not get, or another one than the pinned one."""

    exit_code = 3


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel.

    Attributes:
        distribution, version: what pip is asked for.
        sha256: of the file, in hex.
        tags: options of ``pip download`` that choose one of several files; none for wheels that run anywhere.
    """

    distribution: str
    version: str
    sha256: str
    tags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    def download(self, folder: Path) -> Path:
        """Get it into a folder and compare it; returns the file. Progress is shown on a terminal.

        Raises:
            WheelError: pip does not get it, or its SHA-256 is another.
        """
        shown = sys.stderr.isatty()
        quiet = [] if shown else ["--quiet"]
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *quiet, "--no-deps"]
        try:
            done = subprocess.run(
                [*command, *self.tags, f"--dest={folder}", f"{self.distribution}=={self.version}"],
                stdout=sys.stderr if shown else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise WheelError(f"got no answer from pip in {SECONDS} s; expected {self}: mend the network") from error
        folders = self._in(folder)
        if done.returncode or not folders:
            errors = [line for line in done.stderr.splitlines() if "ERROR" in line or "No module named" in line]
            raise WheelError(
                f"got no wheel of {self} from pip ({' '.join(errors) or done.stderr.strip()}); expected one: let pip "
                "reach a package index"
            )
        compare(folders[0], self.sha256)
        return folders[0]

    def stored(self, folders: Sequence[Path], download: bool = False) -> Path | None:
        """The file in the first folder that has it; fetched into the first one if asked for; else None.

        Raises:
            WheelError: as :meth:`download`, or a file of this name that is not the pinned one.
        """
        for folder in folders:
            for path in self._in(folder):
                compare(path, self.sha256)
                return path
        if not download:
            return None
        folders[0].mkdir(parents=True, exist_ok=True)
        return self.download(folders[0])

    def _in(self, folder: Path) -> list[Path]:
        start = f"{self.distribution.replace('-', '_')}-{self.version}-".lower()
        return sorted(path for path in folder.glob("*.whl") if path.name.lower().startswith(start))


def read_member(wheel: Path, name: str, most: int = 1 << 30) -> bytes:
    """The bytes of one file in a wheel.

    Raises:
        WheelError: there is none of that name, or it is larger than ``most`` bytes.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(name).file_size
            if size > most:
                raise WheelError(f"{wheel}: got {name!r} of {size} bytes; expected at most {most}")
            return archive.read(name)
    except (KeyError, zipfile.BadZipFile) as error:
        raise WheelError(
            f"{wheel}: got no file {name!r} ({error}); expected it: remove the wheel, fetch it again"
        ) from error


def compare(file: Path, sha256: str) -> None:
    """Raise WheelError unless a file is the pinned one."""
    with file.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != sha256:
        raise WheelError(
            f"got {file.name} with SHA-256 {digest.hexdigest()}; expected {sha256}: the package index does not serve "
            "the pinned file; use another"
        )
