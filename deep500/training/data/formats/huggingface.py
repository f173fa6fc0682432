"""`datasets` of Hugging Face: objects of theirs, or folders that their `save_to_disk` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import DataError
from deep500.training.data.formats.records import CHUNK, Rows, missing, splits


class HuggingFaceRows(Rows):
    """Rows of a ``datasets.Dataset``.

    Raises:
        DataError: a folder that holds none (or no package ``datasets`` to read it), a dictionary of several, a stream
            without a length, or a column that is absent.
    """

    def __init__(self, source: Any, columns: Sequence[str], label: str | None = None) -> None:
        data = _loaded(source) if isinstance(source, (str, Path)) else source
        names = getattr(data, "column_names", None)
        if not hasattr(data, "with_format") or not hasattr(data, "__len__") or not isinstance(names, list):
            raise DataError(
                f"got {type(data).__name__}; expected a datasets.Dataset with a length: choose a split such as "
                "data['train'], and no stream"
            )
        self.where = str(source) if isinstance(source, (str, Path)) else f"datasets.Dataset of {', '.join(names)}"
        absent = next((column for column in columns if column not in names), None)
        if absent is not None:
            raise DataError(
                f"{self.where}: got no column {absent!r}, of {', '.join(names)}; expected it: name columns by "
                "input=... and label=..."
            )
        self._columns = {column: data.with_format(None).select_columns([column]) for column in columns}
        self._length = len(data)
        self.classes = getattr(data.features.get(label), "num_classes", None) if label else None

    def __len__(self) -> int:
        return self._length

    def read(self, column: str, positions: np.ndarray) -> Sequence[Any]:
        return self._columns[column][positions.tolist()][column]

    def update(self, sha: Any) -> None:
        for column in self._columns:
            for start in range(0, len(self), CHUNK):
                for value in self.read(column, np.arange(start, min(start + CHUNK, len(self)))):
                    if isinstance(value, bytes):
                        sha.update(f"{len(value)} ".encode() + value)
                    else:
                        array = np.asarray(value)
                        sha.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())


def _loaded(folder: str | Path) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise missing("datasets") from error
    try:
        return datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        text = " ".join(str(error).split())
        raise DataError(f"{folder}: got {text}; expected what save_to_disk wrote: check the path") from error


def from_huggingface(
    train: Any, test: Any, validation: Any = None, *, input: str = "image", label: str | None = "label", **options: Any
) -> Any:
    """Data sets of ``datasets.Dataset`` objects, or of folders that ``save_to_disk`` wrote; no network is asked.

    Args:
        train, test, validation: the objects or folders.
        input, label: names of columns; a ``ClassLabel`` says how many classes there are.
        options: of :class:`~deep500.training.data.formats.records.Records`: ``shape``, ``scale``, ...

    Raises:
        DataError: see :class:`HuggingFaceRows` and ``Records``.

    Example:
        >>> import datasets
        >>> rows = datasets.Dataset.from_dict({"x": [[0.0, 1.0], [2.0, 3.0]], "y": [0, 1]})
        >>> train, test = from_huggingface(rows, rows, input="x", label="y")
        >>> train[:]["input"].tolist(), train.classes
        ([[0.0, 1.0], [2.0, 3.0]], 2)
    """
    columns = [column for column in (input, label) if column is not None]
    parts = (train, validation, test)
    return splits(lambda part: HuggingFaceRows(part, columns, label), parts, input, label, **options)
