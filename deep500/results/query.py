"""``deep500 query SQL``: one SQLite base in memory over many runs, for questions that read, and that end.

The question is somebody's text. SQLite asks an authorizer about everything it is about to do: only what reads tables
and computes is allowed, so that no file is made or opened. A handler that it calls as it goes ends what takes too long.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.errors import InputError
from deep500.results.export import COLUMNS, flattened, tables
from deep500.results.finished import read_finished
from deep500.results.record import SUMMARY

_TABLES = ("runs", "metrics", "over_seeds", "curve", "estimates")
MOST_STEPS, MOST_SECONDS = 50_000_000, 30
"""Of SQLite's machine, a few seconds; and where single steps take long."""

MOST_ROWS, MOST_TEXT = 1_000_000, 2**24
"""Rows of an answer, and bytes of one value of it."""

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REFUSED = {"load_extension", "fts3_tokenizer"}
_LARGE = {"zeroblob", "randomblob", "printf", "format"}
"""Functions whose value may be as large as the question says: refused where Python cannot limit them (before 3.11)."""
_EVERY = 1000


def query(folder: Path, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Ask a question in SQL over all finished runs below a folder.

    Tables: ``runs`` (path, name, tags, recipe, verdict, started, backend, division, environment, and a column for each
    key that a recipe sets, such as batch_size and optimizer_kwargs_lr), ``metrics`` (path, metric, unit,
    data, seed, value, target, verdict, verdict_over_seeds), ``over_seeds`` (path, metric, unit, data, value, low, high,
    standing, basis, target, verdict, reason), ``curve`` (path, and the numbers of every epoch, its seed among them),
    ``estimates`` (path, series, q, value, low, high, n_eff, ...). All have the run's labels.

    Returns:
        column names and rows.

    Raises:
        InputError: there are no runs, or the question is no SQL that reads.
    """
    paths = sorted(path.parent for path in folder.rglob(SUMMARY))
    if not paths:
        raise InputError(f"got no finished run below {folder}; expected one: run a recipe first, or name its folder")
    rows_of: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
    for path in paths:
        _collect(path, rows_of)
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        try:
            for name, rows in rows_of.items():
                _fill(base, name, rows)
            _only_read(base)
            cursor = base.execute(sql)
            answer = cursor.fetchmany(MOST_ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError, OverflowError) as error:
            why = f"ended after {MOST_STEPS} steps or {MOST_SECONDS} s" if "interrupted" in str(error) else error
            raise InputError(
                f"got {sql!r}, which SQLite refuses ({why}); expected a SELECT over the tables {', '.join(_TABLES)}"
            ) from error
    if cursor.description is None:
        raise InputError(f"got {sql!r}, which asks nothing; expected a SELECT over the tables {', '.join(_TABLES)}")
    if len(answer) > MOST_ROWS:
        raise InputError(f"got {sql!r} with more than {MOST_ROWS} rows; expected fewer: add LIMIT {MOST_ROWS}")
    return [column[0] for column in cursor.description], answer


def _only_read(base: sqlite3.Connection) -> None:
    """From now on the base answers questions: no other statement, and none without end."""
    refused = _REFUSED | (set() if hasattr(base, "setlimit") else _LARGE)

    def allowed(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        known = action in _READING and not (action == sqlite3.SQLITE_FUNCTION and second in refused)
        return sqlite3.SQLITE_OK if known else sqlite3.SQLITE_DENY

    begin, steps = time.monotonic(), _counting()

    def over() -> bool:
        return next(steps) > MOST_STEPS or time.monotonic() - begin > MOST_SECONDS

    base.execute("PRAGMA temp_store = MEMORY")  # or large sorts go through files
    if hasattr(base, "setlimit"):
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_TEXT)
    base.set_authorizer(allowed)
    base.set_progress_handler(over, _EVERY)


def _counting() -> Iterator[int]:
    steps = 0
    while True:
        steps += _EVERY
        yield steps


def _collect(path: Path, rows_of: dict[str, list[dict[str, Any]]]) -> None:
    run, at = read_finished(path), {"path": str(path)}
    manifest = run.manifest
    facts = {**at, "tags": " ".join(manifest.get("tags", [])), "verdict": run.summary.get("verdict")}
    facts |= {key: manifest.get(key) for key in ("name", "recipe", "started", "backend", "division")}
    facts["environment"] = manifest.get("environment_sha256")
    settings = {k: v for k, v in _configuration(manifest).items() if k not in (*facts, "labels")}
    curve = [{k: v for k, v in line.items() if not isinstance(v, (dict, list))} for line in run.curve]
    for name, rows in tables(run, runs=[{**facts, **settings}], curve=curve).items():
        rows_of[name] += [{**at, **row} for row in rows]


def _configuration(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the recipe, a column each: ``optimizer_kwargs.lr`` as ``optimizer_kwargs_lr``, objects by names.

    Example:
        >>> _configuration({"resolved": {"recipe": {"optimizer": "a.b:Adam", "optimizer_kwargs": {"lr": 0.1}}}})
        {'optimizer': 'Adam', 'optimizer_kwargs_lr': 0.1}
    """
    settings: dict[str, Any] = {}
    for name, value in flattened(manifest.get("resolved", {}).get("recipe", {})):
        if value is not None:
            short = re.sub(r"^[\w.]+:(\w+)$", r"\1", value) if isinstance(value, str) else value
            settings[re.sub(r"\W", "_", name).lower()] = short
    return settings


def _fill(base: sqlite3.Connection, name: str, rows: Sequence[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys([*("path", *COLUMNS.get(name, ())), *(key for row in rows for key in row)]))
    quoted = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    base.execute(f"CREATE TABLE {name} ({quoted})")
    marks = ", ".join("?" * len(columns))
    base.executemany(f"INSERT INTO {name} VALUES ({marks})", [[row.get(c) for c in columns] for row in rows])
