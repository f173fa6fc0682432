"""The per-user cache of compiled operators, safe when several processes build the same one.

A library lies in ``<cache>/cpp/<key>/`` and is moved there in one step when it is complete, so a build that is killed
leaves nothing that could be taken for a library. Who builds holds a lock on the key, which the system takes from a
process that dies; who waits for it finds the finished library.

What is loaded runs with all the rights of its user, so the cache is that user's alone: folders are made for nobody else
(mode 0700), those that others own or can write to are refused, and links in them are not followed. A library is loaded
only if its size and hash are those of its seal: mapping one that was cut short would kill the process.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from deep500.errors import CacheError
from deep500.reading import declare, open_regular, read_json

SEAL = "seal.json"
SEALED = declare({"key": str, "file": str, "bytes": int, "sha256": str})
"""Format of the seal file beside a library: key it was built for, file name, size and SHA-256."""


def cache_folder() -> Path:
    """``DEEP500_CACHE``, else ``$XDG_CACHE_HOME/deep500``, else ``~/.cache/deep500``."""
    chosen = os.environ.get("DEEP500_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    general = os.environ.get("XDG_CACHE_HOME")
    return (Path(general).expanduser() if general else Path.home() / ".cache").absolute() / "deep500"


def private_folder(name: str) -> Path:
    """A folder inside the cache that only its user can write to; created if it does not exist.

    Raises:
        CacheError: others own the cache or can write to it, something in its path is a link within the cache, or it
            cannot be made.
    """
    root = Path(os.path.realpath(cache_folder()))  # a user's own link to another disk is followed, once
    folder = root / name
    with _writing(root):
        for place in reversed((folder, *folder.parents)):
            if not os.path.lexists(place):
                place.mkdir(mode=0o700, exist_ok=True)
    for place in (root, folder):
        against = suspect(place)
        if against:
            raise CacheError(
                f"got the cache folder {str(place)!r}, which is {against}; expected one that only you can write to, as "
                "what lies in it is run: look at what is in it, then chown it and chmod go-w, or set DEEP500_CACHE to "
                "another folder"
            )
    for above in root.parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise CacheError(
                f"got the cache folder {str(root)!r} within {str(above)!r}, where everybody can rename it; expected a "
                "folder that only you can exchange: set DEEP500_CACHE to another one"
            )
    return folder


def suspect(place: Path) -> str:
    """Return why something in the cache cannot be trusted; empty if it can. The system's owner, root, is trusted."""
    about = os.lstat(place)
    if stat.S_ISLNK(about.st_mode):
        return "a link"
    if about.st_uid not in (os.geteuid(), 0):
        return f"owned by the user with number {about.st_uid}"
    return "writable by others" if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


@contextmanager
def building(folder: Path, key: str) -> Iterator[Path]:
    """Hold the key's lock and give a new folder to build in; what is left of builds that were killed is removed.

    Raises:
        CacheError: the folder cannot be written.
    """
    with _writing(folder):
        (folder / "locks").mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / "locks" / key, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            from deep500.progress import stage  # where something is built

            stage("waiting for another process that builds it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob(f"building-{key}-*"):
            shutil.rmtree(left, ignore_errors=True)
        with _writing(folder):
            place = Path(tempfile.mkdtemp(prefix=f"building-{key}-", dir=folder))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(lock)


def enter(library: Path, target: Path, key: str) -> None:
    """Seal a finished library and move its folder to where it is looked for, in one step.

    If another process was faster, its folder stays; one that is damaged is replaced.

    Args:
        library: the library, alone in its folder.
        target: where that folder goes.
        key: what it was built for.
    """
    place, content = library.parent, library.read_bytes()
    seal = {"key": key, "file": library.name, "bytes": len(content), "sha256": sha256(content).hexdigest()}
    with _writing(target.parent):
        library.chmod(0o700)
        place.chmod(0o700)
        (place / SEAL).write_text(json.dumps(seal), encoding="utf-8")
        try:
            place.rename(target)
        except OSError:
            if sound_library(target, library.name) is not None:
                return
            if target.is_symlink() or not target.is_dir():
                target.unlink(missing_ok=True)
            else:
                shutil.rmtree(target)
            place.rename(target)


def enter_folder(place: Path, target: Path) -> None:
    """Move a finished folder of several files to its place in the cache, unless another process put one there first."""
    with _writing(target.parent):
        place.chmod(0o700)
        try:
            place.rename(target)
        except OSError:
            if not target.is_dir():
                raise


def sound_library(place: Path, name: str) -> Path | None:
    """The library in a cache folder if it matches its seal and belongs to this user, else None; notes its use."""
    library = place / name
    try:
        if suspect(place) or suspect(library):
            return None
        seal = read_json(place / SEAL, SEALED, error=CacheError)
        with open_regular(library) as file:
            content = file.read(seal["bytes"] + 1)
    except (OSError, CacheError):
        return None
    if (name, len(content), sha256(content).hexdigest()) != (seal["file"], seal["bytes"], seal["sha256"]):
        return None
    with suppress(OSError):  # a cache that can only be read has no use for it
        os.utime(place / SEAL)
    return library


def write_text(path: Path, text: str) -> None:
    """Write a file in one step."""
    with _writing(path.parent):
        handle, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except OSError:
            with suppress(OSError):
                Path(name).unlink()
            raise


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"got {type(error).__name__} ({error.strerror or error}) for the cache folder {str(folder)!r}; expected "
            "one that can be written: set the environment variable DEEP500_CACHE to another folder"
        ) from error
