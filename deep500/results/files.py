"""Write files so that a crash at any moment leaves the old content or the new one, never a mixture.

A write that the system refuses (folder not writable, disk full) is a :class:`~deep500.errors.ResultsError` that names
the path; what was there before is untouched.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a ResultsError that names the path."""
    try:
        yield
    except ResultsError:
        raise
    except OSError as error:
        raise ResultsError(
            f"got '{error.strerror or error}' while writing {path}; expected a writable folder with free space; "
            "free some, or choose another folder with --out DIR"
        ) from error


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file through a temporary one in the same folder: write, fsync, rename.

    Raises:
        ResultsError: it cannot be written; the temporary file is removed and an older ``path`` stays as it was.
    """
    payload = data.encode("utf-8") if isinstance(data, str) else data
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                file.write(payload)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the renaming itself durable, where the system can (opening a folder fails on some)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one JSON object as a line and wait until it is on the disk; raises ResultsError."""
    with writing(path), path.open("ab") as file:
        file.write((to_json(record, indent=None) + "\n").encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a JSON-lines file; a last line that a crash cut short is left out. Empty if absent."""
    if not path.exists():
        return []
    with writing(path):
        *complete, _cut_short = path.read_bytes().split(b"\n")
    try:
        return [json.loads(line) for line in complete]
    except ValueError as error:
        raise ResultsError(
            f"{path}: got a line that is no JSON ({error}); expected one object per line; "
            "restore the file, or start a new run"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; raises ResultsError for one that is absent, cut short or something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(
            f"{path}: got no readable JSON ({error}); expected the record of a run; name a results folder"
        ) from error
    if not isinstance(value, dict):
        raise ResultsError(f"{path}: got {type(value).__name__}; expected a JSON object; name a results folder")
    return value


def to_json(value: Any, indent: int | None = 2) -> str:
    """JSON with sorted keys; what is not finite becomes null, since JSON has no NaN."""
    return json.dumps(_finite(value), indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a NumPy scalar
        value = value.item()
    if isinstance(value, float) and value - value != 0:
        return None
    return value
