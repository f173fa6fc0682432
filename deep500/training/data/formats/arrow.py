"""Parquet and Arrow (IPC, Feather) files by ``pyarrow``: columns, in groups of rows that are decoded when asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import DataError
from deep500.training.data.formats.records import Files, PerProcess, Rows, files_of, hash_files, missing, splits

KEPT = 256 * 2**20
"""Bytes of decoded groups that a process keeps; one group is kept whatever its size."""

ARROW = (".arrow", ".feather", ".ipc")


class ArrowRows(Rows):
    """Rows of Parquet files, or of Arrow ones by their ending.

    Raises:
        DataError: no ``pyarrow``, another format, a column that is absent, of a type that holds no numbers, or that
            differs between the files.
    """

    def __init__(self, files: Files, columns: Sequence[str]) -> None:
        self.where, self.files = str(files), files_of(files)
        self._opened = [PerProcess(partial(_opened, path)) for path in self.files]
        self._kept = PerProcess(OrderedDict)
        self._lock = PerProcess(threading.Lock)  # of the groups above and of files, which one thread at a time may read
        types: dict[str, Any] = {}
        groups: list[tuple[int, int, int]] = []
        for number, path in enumerate(self.files):
            schema, sizes, _ = self._opened[number]()
            for column in columns:
                kind = _type(schema, column, path)
                if types.setdefault(column, kind) != kind:
                    raise DataError(
                        f"{path}: got column {column!r} of {kind}; expected {types[column]}, as in {self.files[0]}: "
                        "name files of one schema"
                    )
            groups += [(number, group, size) for group, size in enumerate(sizes) if size]
        self._groups = groups
        self._ends = np.cumsum([size for _, _, size in groups], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def read(self, column: str, positions: np.ndarray) -> Sequence[Any]:
        values: list[Any] = [None] * len(positions)
        group_of = np.searchsorted(self._ends, positions, side="right")
        for group in np.unique(group_of):
            places = np.flatnonzero(group_of == group)
            begin = int(self._ends[group]) - self._groups[group][2]
            with self._lock():
                decoded = self._group(int(group), column)
            chosen = decoded.take(positions[places] - begin)
            for place, value in zip(places, chosen, strict=True):
                values[place] = _python(value)
        return values

    def _group(self, group: int, column: str) -> Any:
        cache = self._kept()
        array = cache.pop((group, column), None)
        if array is None:
            import pyarrow

            number, inner, _ = self._groups[group]
            try:
                array = self._opened[number]()[2](inner, column)
            except (OSError, pyarrow.ArrowException) as error:
                raise DataError(
                    f"{self.files[number]}: got {_line(error)} in column {column!r}; expected readable values: the "
                    "file is damaged, restore it"
                ) from error
        cache[group, column] = array
        while len(cache) > 1 and sum(values.nbytes for values in cache.values()) > KEPT:
            cache.popitem(last=False)
        return array

    def update(self, sha: Any) -> None:
        hash_files(self.files, sha)


def _python(value: Any) -> Any:
    from pyarrow import types

    inner = getattr(value, "values", None)  # of a list
    if inner is not None and hasattr(inner, "to_numpy") and not inner.null_count and types.is_primitive(inner.type):
        return inner.to_numpy(zero_copy_only=False)
    return value.as_py()


def _type(schema: Any, column: str, path: Path) -> Any:
    from pyarrow import types

    if column not in schema.names:
        raise DataError(
            f"{path}: got no column {column!r}, of {', '.join(schema.names)}; expected it: name columns by input=... "
            "and label=..."
        )
    kind = inner = schema.field(column).type
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        inner = inner.value_type
    numbers = types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner)
    plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    image = types.is_struct(kind) and "bytes" in [field.name for field in kind]
    if not (numbers or plain or image):
        raise DataError(
            f"{path}: got column {column!r} of {kind}; expected numbers, lists of numbers or bytes: name another column"
        )
    return kind


def _opened(path: Path) -> tuple[Any, list[int], Any]:
    """Schema, rows of each group, and what reads a column of a group."""
    try:
        import pyarrow
        from pyarrow import ipc, parquet
    except ImportError as error:
        raise missing("pyarrow") from error
    try:
        if path.suffix in ARROW:
            batches = ipc.open_file(pyarrow.memory_map(str(path)))
            sizes = [batches.get_batch(group).num_rows for group in range(batches.num_record_batches)]
            return batches.schema, sizes, lambda group, column: batches.get_batch(group).column(column)
        file = parquet.ParquetFile(path)
    except (OSError, pyarrow.ArrowException) as error:
        kind = "Arrow's file format" if path.suffix in ARROW else "Parquet"
        raise DataError(f"{path}: got {_line(error)}; expected {kind}: correct path or ending") from error
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    return file.schema_arrow, sizes, lambda group, column: file.read_row_group(group, [column]).column(column)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def from_parquet(
    train: Files,
    test: Files,
    validation: Files | None = None,
    *,
    input: str = "input",
    label: str | None = "label",
    **options: Any,
) -> Any:
    """Data sets of Parquet or Arrow files (``.arrow``, ``.feather``, ``.ipc``), of which groups of rows are read.

    A group is decoded as a whole, and 256 MiB of them are kept: shuffling wants groups that fit, or Arrow files, which
    are mapped.

    Args:
        train, test, validation: files, patterns or lists of files.
        input, label: names of columns: numbers, lists of numbers, images or raw bytes.
        options: of :class:`~deep500.training.data.formats.records.Records`: ``classes``, ``shape``, ``scale``, ...

    Raises:
        DataError: see :class:`ArrowRows` and ``Records``.

    Example:
        >>> import pyarrow
        >>> from pyarrow import parquet
        >>> parquet.write_table(pyarrow.table({"x": [[0.0, 1.0], [2.0, 3.0]], "y": [0, 1]}), "a.parquet")
        >>> train, test = from_parquet("a.parquet", "a.parquet", input="x", label="y")
        >>> train[::-1]["input"].tolist(), train.labels.tolist()
        ([[2.0, 3.0], [0.0, 1.0]], [0, 1])
    """
    columns = [column for column in (input, label) if column is not None]
    return splits(lambda part: ArrowRows(part, columns), (train, validation, test), input, label, **options)
