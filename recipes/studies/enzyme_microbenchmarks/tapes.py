"""Tools that overload operators and record a tape: CppAD out of a pinned wheel, others from the user's own checkouts.

Nothing of them is installed or copied into this project: headers are unpacked into this user's cache, or used where
they are. The wheel of XAD on PyPI holds a Python module and no headers, so it is not among them.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import InputError
from deep500.operators.cpp.cache import building, enter_folder, private_folder
from deep500.wheels import Wheel

CPPAD = Wheel(
    "cmeel-cppad",
    "20250000.2",
    "63a0f397040797905bc782144544554adcb4f283703fe589bf78aebd84d16d2c",
    ("--only-binary=:all:", "--platform=manylinux_2_28_x86_64"),
)
HEADERS = "cmeel.prefix/include/"
ADEPT = ("Array", "Stack", "StackStorageOrig", "Storage", "index", "jacobian", "settings")


@dataclass(frozen=True)
class TapeTool:
    """A tool.

    Attributes:
        name: of the header in ``tapes/`` that wraps it.
        title: for people.
        version: a release, or a checkout's commit.
        include: folder of its headers.
        sources: what is compiled with them.
    """

    name: str
    title: str
    version: str
    include: Path
    sources: tuple[Path, ...] = ()


def cppad() -> TapeTool:
    """CppAD out of the wheel of cmeel-cppad, fetched if it is not in the cache.

    Raises:
        WheelError: pip does not get the pinned wheel.
    """
    folder = private_folder("wheels")
    target = folder / f"cppad-{CPPAD.sha256[:24]}"
    if not target.is_dir():
        with building(folder, target.name) as place, tempfile.TemporaryDirectory() as temporary:
            if not target.is_dir():
                with zipfile.ZipFile(CPPAD.download(Path(temporary))) as archive:
                    archive.extractall(place, [name for name in archive.namelist() if name.startswith(HEADERS)])
                enter_folder(place, target)
    return TapeTool("cppad", "CppAD", CPPAD.version, target / HEADERS)


def from_checkout(path: Path) -> TapeTool:
    """CoDiPack or Adept, by what is in a folder.

    Raises:
        InputError: it is neither.
    """
    root = path.resolve()
    if (root / "include/codi.hpp").is_file():
        return TapeTool("codipack", "CoDiPack", _commit(root), root / "include")
    if (root / "include/adept.h").is_file():
        return TapeTool(
            "adept", "Adept", _commit(root), root / "include", tuple(root / f"adept/{n}.cpp" for n in ADEPT)
        )
    raise InputError(
        f"got --source {path} without include/codi.hpp or include/adept.h; expected a checkout of CoDiPack or Adept: "
        "correct it"
    )


def _commit(root: Path) -> str:
    """The commit of a checkout; a hash of its headers where git knows none."""
    done = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    top = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False
    )
    if done.returncode == 0 and top.stdout.strip() == str(root):
        return done.stdout.strip()[:12]
    headers = [file for file in sorted((root / "include").rglob("*")) if file.is_file()]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in headers)).hexdigest()[:12]
