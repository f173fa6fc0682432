"""A folder in which many runs are made one after the other, and from which that goes on after any end."""

from __future__ import annotations

import datetime
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from deep500.reading import declare, read_json, word
from deep500.results.files import to_json, write_atomic, writing
from deep500.results.record import Record

T = TypeVar("T")
RunPart = Callable[[T, Callable[[], bool]], None]
LOCKS = "locks"
DO = "name the folder of a race or a sweep"


def begin_folder(place: Path, file: str, inner: str, facts: Mapping[str, Any]) -> Path:
    """Make a folder of its own below ``place``, with what defines it; raises ResultsError where that is not possible.

    Args:
        place: where folders of this kind are.
        file: holds the definition.
        inner: a folder within it, where each finished part is a file.
        facts: the definition, JSON with its ``sha256``.
    """
    now = datetime.datetime.now(datetime.timezone.utc)
    name = f"{now:%Y%m%d-%H%M%S}-{facts['sha256'][:8]}"
    path = place / name
    with writing(path):
        place.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(2):
            try:
                path.mkdir()
                break
            except FileExistsError:  # the same was begun in this second
                path = place / f"{name}-{number}"
        (path / inner).mkdir()
    write_atomic(path / file, to_json({**facts, "started": now.isoformat()}))
    return path


def definition_of(path: Path, schema: str) -> dict[str, Any]:
    """Read what :func:`begin_folder` wrote; raises ResultsError for another file."""
    kind = declare({"schema": word(schema), "options": dict, "sha256": str})
    definition: dict[str, Any] = read_json(path, kind, do=DO)
    return definition


@contextmanager
def part_lock(path: Path, name: str) -> Iterator[None]:
    """Keep other processes, also of other machines, from a part; raises ResultsError where one is at it."""
    place = path / LOCKS / name
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
    with Record(place).lock():
        yield


def run_all(path: Path, parts: Sequence[T], run_part: RunPart[T], jobs: int, go: str) -> None:
    """Run parts, several at a time; the first error stops the others.

    Args:
        path: the folder; no other process may work on it meanwhile.
        parts: in the order in which they begin.
        run_part: runs a part; it may ask now and then whether all stops.
        jobs: how many at a time.
        go: the command that goes on, for the message.

    Raises:
        KeyboardInterrupt: with how to go on.
        ResultsError: results cannot be written.
    """
    stop = threading.Event()

    def unless_stopped(part: T) -> None:
        if not stop.is_set():
            run_part(part, stop.is_set)

    with Record(path).lock(), ThreadPoolExecutor(jobs) as pool:
        try:
            for future in as_completed([pool.submit(unless_stopped, part) for part in parts]):
                future.result()
        except BaseException as error:
            stop.set()
            if isinstance(error, KeyboardInterrupt):
                error.args = (f"interrupted; go on with: deep500 {go} --resume {path}",)
            raise
