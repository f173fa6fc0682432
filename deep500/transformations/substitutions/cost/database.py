"""`Database`: what units were measured to take, in one SQLite file that processes share.

Rows hold for one `Place` only: another machine, version or number of threads finds none and measures anew. What was
stored first stays, so that every search on a machine sees the same prices and takes the same decisions, unless its
spread says that the machine was busy, or a user asks for fresh ones.
"""

from __future__ import annotations

import functools
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from deep500.errors import CacheError
from deep500.measure.environment import describe
from deep500.measure.fingerprint import fingerprint
from deep500.measure.machine import hardware
from deep500.operators.cpp.cache import cache_folder
from deep500.reading import declare, number, validate
from deep500.registry import BACKENDS, load_backend

MEMORY = ":memory:"
APPLICATION = 0x44354355  # "D5CU" in SQLite's header: this file is a cost database
LAYOUT = 1
ANEW = (
    "delete the file (prices are measured anew), name another with database=..., or measure without one by "
    "database=':memory:'"
)
WAIT = 30.0
"""Seconds to wait for another process that writes."""

_TABLE = """CREATE TABLE costs (
    backend TEXT NOT NULL, version TEXT NOT NULL, machine TEXT NOT NULL, device TEXT NOT NULL,
    threads INTEGER NOT NULL, unit TEXT NOT NULL, seconds REAL NOT NULL CHECK (seconds >= 0), mad REAL NOT NULL,
    repeats INTEGER NOT NULL, date TEXT NOT NULL,
    PRIMARY KEY (backend, version, machine, device, threads, unit))"""
ROW = declare([str, number(0, 1e9), number(0, 1e9), number(0, 2**31, whole=True), str])
"""A unit and its :class:`PriceRow`, as a file may hold them: SQLite stores anything in any column."""

_PLACE = "backend = ? AND version = ? AND machine = ? AND device = ? AND threads = ?"


class Place(NamedTuple):
    """Circumstances of prices: backend, its version, the machine's fingerprint, device and number of threads."""

    backend: str
    version: str
    machine: str
    device: str
    threads: int


class PriceRow(NamedTuple):
    """A price: seconds, median absolute deviation of the single rounds (seconds), rounds, and when (ISO 8601, UTC)."""

    seconds: float
    mad: float
    repeats: int
    date: str


def now() -> str:
    """The time in UTC, as rows hold it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@functools.cache
def machine_hash() -> str:
    """A machine's identity: CPU, caches, clock switches, cores of this process (16 hex digits)."""
    known = describe()
    identity = {name: known[name] for name in ("cpu", "usable_cores", "machine")}
    return fingerprint({**identity, "hardware": hardware()})[:16]


def backend_version(backend: str) -> str:
    """Version of the framework behind a backend, and of Deep500, whose dispatch is part of every price.

    Example:
        >>> backend_version("reference").startswith("numpy ")
        True
    """
    module = load_backend(backend)
    framework = import_module(BACKENDS[backend][0]) if backend in BACKENDS else module
    version = getattr(framework, "__version__", None)
    return f"{framework.__name__} {version}, deep500 {describe()['versions']['deep500']}"


def default_path() -> Path:
    """``substitution_costs.sqlite`` in the user's cache folder (``DEEP500_CACHE``, else ``~/.cache/deep500``)."""
    return cache_folder() / "substitution_costs.sqlite"


class Database:
    """Prices by place and unit.

    Args:
        path: a file, made if there is none; the user's own if None; ``":memory:"`` for one that ends with this object.

    Raises:
        CacheError: the file is none of ours, is damaged, of another layout, locked, or cannot be written.

    Example:
        >>> database, place = Database(":memory:"), Place("reference", "1", "m", "cpu", 1)
        >>> database.add(place, "relu", PriceRow(2e-6, 1e-8, 30, "2026-01-01T00:00:00+00:00")).seconds
        2e-06
        >>> sorted(database.load(place)), sorted(database.load(place._replace(machine="other")))
        (['relu'], [])
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = MEMORY if str(path) == MEMORY else str(Path(path).expanduser() if path else default_path())
        self._kept = sqlite3.connect(MEMORY, check_same_thread=False) if self.path == MEMORY else None
        if self._kept is None:
            self._folder()
        with self._open() as connection:
            self._check(connection)

    def load(self, place: Place) -> dict[str, PriceRow]:
        """All prices of a place, by unit."""
        with self._open() as connection:
            rows = connection.execute(f"SELECT unit, seconds, mad, repeats, date FROM costs WHERE {_PLACE}", place)
            return {unit: PriceRow(*rest) for unit, *rest in map(self._checked, rows)}

    def add(self, place: Place, unit: str, row: PriceRow, replace: bool = False) -> PriceRow:
        """Store a price unless there is one, or with ``replace`` instead of it; the one that is stored."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            instead = "REPLACE" if replace else "IGNORE"
            connection.execute(f"INSERT OR {instead} INTO costs VALUES (?,?,?,?,?,?,?,?,?,?)", (*place, unit, *row))
            query = f"SELECT unit, seconds, mad, repeats, date FROM costs WHERE {_PLACE} AND unit = ?"
            (stored,) = map(self._checked, connection.execute(query, (*place, unit)))
            connection.execute("COMMIT")
        return PriceRow(*stored[1:])

    def _checked(self, row: tuple[Any, ...]) -> list[Any]:
        validate(list(row), ROW, f"cost database {self.path!r}", error=CacheError, do=ANEW)
        return list(row)

    # -- the file ---------------------------------------------------------------------------------------------------
    def _folder(self) -> None:
        try:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._error(f"{type(error).__name__} ({error.strerror})", "a folder that can be written") from error
        if Path(self.path).is_symlink():  # an empty file behind it would become a database
            raise self._error("a link", "the file itself")
        if Path(self.path).exists() and not Path(self.path).is_file():  # SQLite would wait for a pipe
            raise self._error("no regular file", "a cost database")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for each use: one must not outlive a fork."""
        try:
            if self._kept is not None:
                self._kept.isolation_level = None
                yield self._kept
                return
            with closing(sqlite3.connect(self.path, timeout=WAIT, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise self._error(f"{type(error).__name__} ({error})", "a cost database that can be read") from error

    def _check(self, connection: sqlite3.Connection) -> None:
        """Make the table in a new file; refuse files of others, and older or newer ones of ours."""
        connection.execute("BEGIN IMMEDIATE")
        (application,), (layout,) = (
            connection.execute(query).fetchone() for query in ("PRAGMA application_id", "PRAGMA user_version")
        )
        tables = connection.execute("SELECT type, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        if (application, tables) == (0, []):
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {LAYOUT}")
        elif application != APPLICATION:
            raise self._error(
                f"application id {application} and {len(tables)} tables", f"{APPLICATION}, a cost database"
            )
        elif layout != LAYOUT:
            raise self._error(f"layout {layout}", f"layout {LAYOUT}, of this version")
        elif tables != [("table", _TABLE)]:
            raise self._error(f"{len(tables)} tables and views", "the table of prices alone")
        connection.execute("COMMIT")

    def _error(self, got: str, expected: str) -> CacheError:
        return CacheError(f"cost database {self.path!r}: got {got}; expected {expected}: {ANEW}")
