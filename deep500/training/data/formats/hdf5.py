"""HDF5 by ``h5py``: arrays of which the first axis counts samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import DataError
from deep500.training.data.formats.records import PerProcess, Rows, hash_files, missing, splits


class Hdf5Rows(Rows):
    """Arrays of equal length in one group of an HDF5 file, ``"data.h5"`` or ``"data.h5::group"``.

    Raises:
        DataError: no ``h5py``, no HDF5, a column that is absent, holds no numbers, lies in another file or has another
            length.
    """

    def __init__(self, source: str | Path, columns: Sequence[str]) -> None:
        self.where = str(source)
        path, _, self._group = str(source).partition("::")
        self.path = Path(path)
        self._file = PerProcess(partial(_opened, self.path))
        arrays = {column: self._array(column) for column in columns}
        lengths = {column: len(array) for column, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"{source}: got lengths {lengths}; expected the same: correct the file, or name others")
        self._length = next(iter(lengths.values()))

    def _array(self, column: str) -> Any:
        import h5py

        file, name = self._file(), f"{self._group}/{column}".strip("/")
        try:
            array = file.get(name)
        except (OSError, KeyError, RuntimeError) as error:  # a link into a file that is absent
            raise DataError(f"{self.where}: got {name!r} that cannot be read ({error}); expected an array") from error
        if not isinstance(array, h5py.Dataset):
            around = file.get(self._group) if self._group else file
            names = ", ".join(list(around)[:10]) if isinstance(around, h5py.Group) else "no such group"
            raise DataError(
                f"{self.where}: got no array {column!r}, of {names or 'none'}; expected it: name one by input=... and "
                "label=..., and a group as 'file.h5::group'"
            )
        if array.file.filename != file.filename or array.is_virtual or array.external:
            raise DataError(f"{self.where}: got {name!r} whose values lie in another file; expected them in this one")
        if array.dtype.kind not in "biuf" or not array.shape:
            raise DataError(
                f"{self.where}: got {name!r} of {array.dtype} and shape {array.shape}; expected numbers (samples, ...)"
            )
        return array

    def __len__(self) -> int:
        return self._length

    def read(self, column: str, positions: np.ndarray) -> np.ndarray:
        unique, places = np.unique(positions, return_inverse=True)  # the library wants rising ones
        first, last = int(unique[0]), int(unique[-1]) + 1
        where = slice(first, last) if last - first == len(unique) else unique
        try:
            return self._array(column)[where][places]
        except OSError as error:
            raise DataError(
                f"{self.where}: got {error} in {column!r}; expected readable values: the file is damaged, restore it"
            ) from error

    def update(self, sha: Any) -> None:
        sha.update(self._group.encode())
        hash_files([self.path], sha)


def _opened(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise missing("h5py") from error
    if not path.is_file():
        raise DataError(f"{path}: got no such file; expected HDF5: check the path")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path}: got {error}; expected HDF5: the file is damaged or of another format") from error


def from_hdf5(
    train: str | Path,
    test: str | Path,
    validation: str | Path | None = None,
    *,
    input: str = "input",
    label: str | None = "label",
    **options: Any,
) -> Any:
    """Data sets of HDF5 arrays, of which only what a batch asks for is read.

    Args:
        train, test, validation: files, or groups of a file as ``"data.h5::train"``.
        input, label: names of the arrays.
        options: of :class:`~deep500.training.data.formats.records.Records`: ``classes``, ``shape``, ``scale``, ...

    Raises:
        DataError: see :class:`Hdf5Rows` and ``Records``.

    Example:
        >>> import tempfile, h5py
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with h5py.File(f"{folder}/a.h5", "w") as file:
        ...         for part in ("train", "test"):
        ...             file[f"{part}/x"], file[f"{part}/y"] = np.full((4, 2), 255, "u1"), [0, 1, 2, 1]
        ...     parts = f"{folder}/a.h5::train", f"{folder}/a.h5::test"
        ...     train, test = from_hdf5(*parts, input="x", label="y", scale=255)
        ...     train[[3, 0]]["input"].tolist(), train[2]["label"], train.classes
        ([[1.0, 1.0], [1.0, 1.0]], array(2), 3)
    """
    columns = [column for column in (input, label) if column is not None]
    return splits(lambda part: Hdf5Rows(part, columns), (train, validation, test), input, label, **options)
