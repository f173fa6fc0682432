"""Files of results: written so that a crash at any moment leaves the old content or the new one, never a mixture; read
as :mod:`deep500.results.formats` declares them, within the limits of :mod:`deep500.reading`.

A write that the system refuses (folder not writable, disk full) is a :class:`~deep500.errors.ResultsError` that names
the path; what was there before is untouched.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from deep500 import reading
from deep500.errors import ResultsError
from deep500.reading import MOST_BYTES, RESTORE, parse, read_bytes, validate
from deep500.results.formats import ANY, FILES

MOST_BYTES_OF_LINES = 64 * 2**20
"""Size of the largest file of lines that is read: a journal of a million blocks."""


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
            "free some, or choose another place with --out DIR or -o"
        ) from error


def write_atomic(path: Path, data: bytes | str | Callable[[BinaryIO], Any]) -> None:
    """Write a file through a temporary one in the same folder: write, fsync, rename.

    Args:
        path: the file.
        data: its content, or a function that writes it into an open file.

    Raises:
        ResultsError: it cannot be written; the temporary file is removed and an older ``path`` stays as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                if callable(data):
                    data(file)
                else:
                    file.write(data.encode("utf-8") if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)


def share_atomic(source: Path, path: Path) -> None:
    """Give a file, which nobody changes any more, another name besides its own; where the file system cannot, copy it
    as :func:`write_atomic` writes one, a piece at a time."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        os.link(source, temporary)
    except OSError:
        with source.open("rb") as content:
            write_atomic(path, lambda file: shutil.copyfileobj(content, file))
        return
    with writing(path):
        try:
            temporary.replace(path)
        finally:  # it is still there where both names are of one file already
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
    """The complete lines of a JSON-lines file; a last line that a crash cut short is left out. Empty if absent.

    Raises:
        ResultsError: the file or a line of it is not what :mod:`deep500.results.formats` declares, or beyond the limits
            of :mod:`deep500.reading`.
    """
    if not path.exists():
        return []
    *complete, _cut_short = read_bytes(path, MOST_BYTES_OF_LINES).split(b"\n")
    kind, records = FILES.get(path.name, ANY), []
    for number, line in enumerate(complete, 1):
        where = f"{path}, line {number}"
        records.append(parse(line, where))
        validate(records[-1], kind, where)
    return records


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ResultsError: the file is absent, cut short, a link, not what :mod:`deep500.results.formats` declares, or beyond
            the limits of :mod:`deep500.reading`.
    """
    return reading.read_json(path, FILES.get(path.name, ANY), do=f"name a results folder, or {RESTORE}")


def regular_files(folder: Path) -> list[str]:
    """Every file below a folder by its path within it, sorted, dot files included.

    Raises:
        ResultsError: something there is neither a regular file nor a folder: links, pipes, sockets and devices lead to
            what is not in the folder, so no seal could say what they hold. It is named.
    """
    names: list[str] = []
    todo = [folder]
    try:
        while todo:
            with os.scandir(todo.pop()) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    what = _what(entry)
                    if what == FOLDER:
                        todo.append(Path(entry.path))
                    elif what == FILE:
                        names.append(Path(entry.path).relative_to(folder).as_posix())
                    else:
                        raise ResultsError(
                            f"{_shown(entry.path)}: got {what}; expected regular files and folders only in a results "
                            "folder: remove it, or put the file itself there"
                        )
    except OSError as error:
        if isinstance(error, ResultsError):
            raise
        raise ResultsError(
            f"{_shown(folder)}: got '{error.strerror or error}'; expected a results folder that can be read"
        ) from error
    return sorted(names)


FILE, FOLDER = "a regular file", "a folder"


def _what(entry: os.DirEntry[str]) -> str:
    mode = entry.stat(follow_symlinks=False).st_mode
    if _shown(entry.name) != entry.name or not entry.name.isprintable():
        return "a name that is no printable text"
    kinds = {stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe"}
    return kinds.get(stat.S_IFMT(mode), "a socket or a device")


def _shown(path: object) -> str:
    """A path as it can be printed and written: bytes that are no UTF-8 as escapes."""
    return str(path).encode("utf-8", errors="backslashreplace").decode("utf-8")


def largest(path: Path) -> int:
    """Bytes that a file of a results folder may have: what is larger is not read, and not sealed.

    A checkpoint says in its header how long it is; of samples there are as many as one launch may have.
    """
    if path.suffix == ".safetensors":
        return checkpoint_size(path)
    of_suffix = {".json": MOST_BYTES, ".jsonl": MOST_BYTES_OF_LINES, ".html": MOST_BYTES_OF_LINES}
    return of_suffix.get(path.suffix, 2**30)


def checkpoint_size(path: Path) -> int:
    """Bytes of a safetensors file by its own header; 0 where that is none."""
    return checkpoint_places(path)[0]


Places: TypeAlias = dict[str, tuple[str, tuple[int, ...], int, int]]
"""Of each array in a safetensors file its dtype, as the format names it, its shape, and between which bytes it is."""


def checkpoint_places(path: Path) -> tuple[int, Places, dict[str, str]]:
    """Bytes of a safetensors file by its own header, 0 where that is none; where its arrays are, and its texts."""
    with reading.open_regular(path) as file:
        size = int.from_bytes(file.read(8), "little")
        if size > MOST_BYTES:
            return 0, {}, {}
        head = file.read(size)
    try:
        tensors = dict(parse(head, path))
        texts, places, end = dict(tensors.pop("__metadata__", {})), Places(), 8 + size
        for name, about in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
            begin, after = (8 + size + int(offset) for offset in about["data_offsets"])
            if not begin == end <= after:
                raise ValueError("bytes of no array, or of two")
            places[name], end = (str(about["dtype"]), tuple(map(int, about["shape"])), begin, after), after
    except (ResultsError, AttributeError, KeyError, IndexError, TypeError, ValueError):
        return 0, {}, {}
    return end, places, texts


_ODD = re.compile("[\0\ud800-\udfff]")


def to_json(value: Any, indent: int | None = 2) -> str:
    """JSON with sorted keys that :func:`read_json` takes.

    What is not finite becomes null, since JSON has no NaN; NUL and halves of characters, which a model may write, are
    U+FFFD then.
    """
    return json.dumps(_readable(value), indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return _ODD.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_readable(str(key)): _readable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_readable(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a NumPy scalar
        value = value.item()
    if isinstance(value, float) and value - value != 0:
        return None
    return value
