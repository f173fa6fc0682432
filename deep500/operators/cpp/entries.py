"""The entries of the cache of compiled operators, its limit, and what goes beyond it.

Libraries of operators and bridges to frameworks count; the least recently used ones go first. What was used within the
last hour stays, since a process may be about to load it. The engine of Enzyme and measured prices stay too.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deep500.errors import CacheError, InputError
from deep500.operators.cpp.cache import SEAL, SEALED, cache_folder
from deep500.reading import read_json

FOLDERS = ("cpp", "bridges")
VARIABLE = "DEEP500_CACHE_LIMIT"
LIMIT = 2 << 30
"""Bytes, unless the variable says otherwise."""

IN_USE = 3600.0
"""Seconds since its last use in which a library is not removed to make room."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Entry:
    """A library in the cache.

    Attributes:
        place: its folder.
        key: what it was built for; empty where its seal cannot be read.
        file: its name.
        size: bytes of the folder.
        used: when it was last loaded, in seconds since 1970.
    """

    place: Path
    key: str
    file: str
    size: int
    used: float


def entries() -> list[Entry]:
    """All libraries in the cache, the least recently used one first."""
    places = [place for name in FOLDERS for place in (cache_folder() / name).glob("*") if _is_entry(place)]
    return sorted((_entry(place) for place in places), key=lambda entry: entry.used)


def _is_entry(place: Path) -> bool:
    return re.fullmatch("[0-9a-f]{32}", place.name) is not None and place.is_dir() and not place.is_symlink()


def _entry(place: Path) -> Entry:
    key, file, used = "", "", 0.0
    with suppress(CacheError, OSError):
        seal = read_json(place / SEAL, SEALED, error=CacheError)
        key, file, used = seal["key"], seal["file"], (place / SEAL).stat().st_mtime
    return Entry(place, key, file, size_of(place), used)


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; links are not followed."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += (Path(place) / name).lstat().st_size
    return total


def limit() -> int | None:
    """Return how many bytes libraries may take, None without limit: ``DEEP500_CACHE_LIMIT`` (``2G``, ``none``).

    Raises:
        InputError: the variable says neither.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return LIMIT
    if text.lower() == "none":
        return None
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text, re.IGNORECASE)
    if matched is None:
        raise InputError(f"got {VARIABLE}={text!r}; expected a size such as 500M or 2G, or none: correct it")
    return int(float(matched[1]) * _UNITS[matched[2].upper()])


def make_room() -> list[Entry]:
    """Remove libraries until the rest is within the limit; returns what was removed."""
    most, known = limit(), entries()
    total, removed = sum(entry.size for entry in known), []
    for entry in known:
        if most is None or total <= most or entry.used > time.time() - IN_USE:
            break
        remove(entry)
        removed.append(entry)
        total -= entry.size
    return removed


def remove(entry: Entry) -> None:
    """Take a library out of the cache in one step; whoever has loaded it keeps it."""
    gone = entry.place.with_name(f"removed-{entry.place.name}-{os.getpid()}")
    try:
        entry.place.rename(gone)
    except FileNotFoundError:  # another process did it
        return
    except OSError as error:
        raise CacheError(
            f"got {type(error).__name__} ({error.strerror or error}) for {str(entry.place)!r}; expected a cache that "
            "can be written: see its owner and mode"
        ) from error
    shutil.rmtree(gone, ignore_errors=True)
    if entry.key and not any(other.key == entry.key for other in entries()):
        (entry.place.parent / f"{entry.key}.json").unlink(missing_ok=True)
