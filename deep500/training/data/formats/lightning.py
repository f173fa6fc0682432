"""LMDB by ``lmdb``: a table of keys and values, where a value is a sample in one of some codes."""

from __future__ import annotations

import io
import os
import weakref
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from deep500.errors import DataError, InputError
from deep500.training.data.formats.records import PerProcess, Rows, missing, splits
from deep500.training.data.formats.wire import datum, example

Decode: TypeAlias = Callable[[bytes], Any]


def _npz(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


CODES: dict[str, Decode] = {"datum": datum, "example": example, "npz": _npz}
"""Caffe's message, TensorFlow's message, and arrays as `numpy.savez` writes them. Pickles are not read,
for they run code."""


class LmdbRows(Rows):
    """Values of an LMDB table in the order of their keys; keys that begin with ``__`` hold no samples.

    Raises:
        DataError: no ``lmdb``, no such table, or a value that ``decode`` cannot read or that lacks a column.
    """

    def __init__(self, path: str | Path, columns: Sequence[str], decode: str | Decode = "datum") -> None:
        self.where, self.path = str(path), Path(path)
        if not callable(decode) and decode not in CODES:
            raise InputError(f"got decode={decode!r}; expected {', '.join(CODES)} or a function of bytes: name one")
        self._decode = decode if callable(decode) else CODES[decode]
        self._table = PerProcess(partial(_shared, self.path))
        with self._table().environment.begin() as read:
            self._keys = [key for key in read.cursor().iternext(values=False) if not key.startswith(b"__")]
        for column in columns if self._keys else ():
            self.read(column, np.array([0]))

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, column: str, positions: np.ndarray) -> Sequence[Any]:
        with self._table().environment.begin() as read:
            return [self._value(read.get(self._keys[position]), column, int(position)) for position in positions]

    def _value(self, data: bytes, column: str, position: int) -> Any:
        try:
            values = self._decode(data)
        except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile) as error:
            raise DataError(
                f"{self.row(position)}: got a value that cannot be read ({error}); expected another code: give decode="
                f"{', '.join(CODES)} or a function of bytes"
            ) from error
        if not isinstance(values, dict) or column not in values:
            got = ", ".join(values) if isinstance(values, dict) else type(values).__name__
            raise DataError(
                f"{self.row(position)}: got no {column!r}, of {got or 'none'}; expected it: name values by input=... "
                "and label=..."
            )
        return values[column]

    def row(self, position: int) -> str:
        return f"{self.path}, key {self._keys[position]!r}"

    def update(self, sha: Any) -> None:
        with self._table().environment.begin() as read:
            for key, value in read.cursor():
                sha.update(f"{len(key)} {len(value)} ".encode() + key + value)


class _Table:
    """Holder of an environment: `lmdb` opens each once in a process."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment


_TABLES: weakref.WeakValueDictionary[tuple[int, str], _Table] = weakref.WeakValueDictionary()


def _shared(path: Path) -> _Table:
    try:
        import lmdb
    except ImportError as error:
        raise missing("lmdb") from error
    file = path / "data.mdb" if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"{path}: got no LMDB there; expected a folder with data.mdb, or the file: check the path")
    key = (os.getpid(), str(file.resolve()))
    table = _TABLES.get(key)
    if table is None:
        for (process, name), parents in list(_TABLES.items()):
            if name == key[1] and process != key[0]:
                parents.environment.close()  # a fork's copy, beside which the package opens none
        try:
            options = {"readonly": True, "lock": False, "readahead": False, "create": False}
            table = _Table(lmdb.open(str(file), subdir=False, **options))
        except lmdb.Error as error:
            raise DataError(f"{path}: got {error}; expected an LMDB: damaged or of another format") from error
        _TABLES[key] = table
    return table


def from_lmdb(
    train: str | Path,
    test: str | Path,
    validation: str | Path | None = None,
    *,
    input: str = "input",
    label: str | None = "label",
    decode: str | Decode = "datum",
    **options: Any,
) -> Any:
    """Data sets of LMDB tables, of which only what a batch asks for is read.

    Args:
        train, test, validation: folders with ``data.mdb``, or such files.
        input, label: names of what ``decode`` gives.
        decode: ``"datum"`` (Caffe's: ``input`` and ``label``), ``"example"`` (TensorFlow's), ``"npz"``, or a function
            from bytes to a dictionary.
        options: of :class:`~deep500.training.data.formats.records.Records`: ``classes``, ``shape``, ``scale``, ...

    Raises:
        DataError: see :class:`LmdbRows` and ``Records``.

    Example:
        >>> import lmdb
        >>> sample = io.BytesIO()
        >>> np.savez(sample, x=np.ones(2), y=1)
        >>> with lmdb.open("a.lmdb", map_size=1 << 20) as table, table.begin(write=True) as write:
        ...     stored = write.put(b"0", sample.getvalue())
        >>> train, test = from_lmdb("a.lmdb", "a.lmdb", input="x", label="y", decode="npz")
        >>> train[0]["input"].tolist(), train.labels.tolist()
        ([1.0, 1.0], [1])
    """
    columns = [column for column in (input, label) if column is not None]
    parts = (train, validation, test)
    return splits(lambda part: LmdbRows(part, columns, decode), parts, input, label, **options)
