"""The per-user cache of compiled operators, safe when several processes build the same one.

A library lies in ``<cache>/cpp/<key>/`` and is moved there in one step when it is complete, so a build that is killed
leaves nothing that could be taken for a library. Who builds holds a lock on the key, which the system takes from a
process that dies; who waits for it finds the finished library.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from deep500.errors import CacheError


def cache_folder() -> Path:
    """``DEEP500_CACHE``, else ``$XDG_CACHE_HOME/deep500``, else ``~/.cache/deep500``."""
    own = os.environ.get("DEEP500_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    general = os.environ.get("XDG_CACHE_HOME")
    return (Path(general).expanduser() if general else Path.home() / ".cache").absolute() / "deep500"


@contextmanager
def building(folder: Path, key: str) -> Iterator[Path]:
    """Hold the key's lock and give a new folder to build in; what is left of builds that were killed is removed.

    Raises:
        CacheError: the folder cannot be written.
    """
    with _writing(folder):
        (folder / "locks").mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "locks" / key, os.O_RDWR | os.O_CREAT, 0o666)
    try:
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


def enter(place: Path, target: Path) -> None:
    """Move a complete folder to where it is looked for; if another process was faster, its folder stays."""
    with _writing(target.parent):
        try:
            place.rename(target)
        except OSError:
            if not target.is_dir():
                raise


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
