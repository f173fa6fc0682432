"""WebDataset's tar files: the files of a sample share a name up to its first dot, ``000/7.png`` and ``000/7.cls``."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from deep500.errors import DataError
from deep500.training.data.formats.records import Files, Rows, Shards, files_of, hash_files, opened, splits

BLOCK = 512


class WebDatasetRows(Rows):
    """Samples in plain tar files; one pass over the files finds where each part lies. Nothing is unpacked.

    Raises:
        DataError: no tar, cut short, with a path upward, a link or a device, a name twice, or a sample without one of
            the ``columns``.
    """

    def __init__(self, files: Files, columns: Sequence[str]) -> None:
        self.where = str(files)
        self._shards = Shards(files_of(files))
        self._keys: list[str] = []
        places: dict[str, list[tuple[int, int, int]]] = {column: [] for column in columns}
        for number, path in enumerate(self._shards.files):
            for key, parts in _index(path).items():
                for column in columns:
                    extension = next((name for name in column.split(";") if name in parts), None)
                    if extension is None:
                        raise DataError(
                            f"{path}: got no file {key}.{column}, of {', '.join(parts)}; expected one for each sample: "
                            "name extensions by input=... and label=..."
                        )
                    places[column].append((number, *parts[extension]))
                self._keys.append(f"{path}, {key}")
        self._places = {column: np.array(triples, np.int64).reshape(-1, 3) for column, triples in places.items()}

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, column: str, positions: np.ndarray) -> Sequence[Any]:
        return [self._shards.read(*map(int, self._places[column][position])) for position in positions]

    def row(self, position: int) -> str:
        return self._keys[position]

    def update(self, sha: Any) -> None:
        hash_files(self._shards.files, sha)


def _index(path: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """By key of the sample and extension: where the file begins, and its size."""
    samples: dict[str, dict[str, tuple[int, int]]] = {}
    with opened(path) as file:
        total = path.stat().st_size
        try:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for member in tar:
                    _check(member, path, total)
                    if member.isreg():
                        folder, _, name = member.name.removeprefix("./").rpartition("/")
                        stem, _, extension = name.partition(".")
                        sample = samples.setdefault(f"{folder}/{stem}" if folder else stem, {})
                        if extension in sample:
                            raise DataError(f"{path}: got {member.name!r} twice; expected each name once: pack it anew")
                        sample[extension] = (member.offset_data, member.size)
                end = tar.offset
        except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path}: got {error}; expected a whole, plain tar: gunzip or restore it") from error
        file.seek(end)
        if file.read(BLOCK) != bytes(BLOCK):
            raise DataError(f"{path}: got no end of the archive at byte {end}; expected one: it is damaged, restore it")
    return samples


def _check(member: tarfile.TarInfo, path: Path, total: int) -> None:
    name = PurePosixPath(member.name)
    got = ""
    if name.is_absolute() or ".." in name.parts or "\\" in member.name:
        got = "a path that leads out of the archive"
    elif member.issym() or member.islnk():
        got = f"a link to {member.linkname!r}"
    elif not (member.isreg() or member.isdir()) or member.issparse():
        got = "something that is no plain file"
    elif member.offset_data + member.size > total:
        raise DataError(
            f"{path}: got {total - member.offset_data} bytes of {member.name!r}; expected {member.size}: the archive "
            "was cut short, restore it"
        )
    if got:
        raise DataError(f"{path}: got {member.name!r}, {got}; expected plain files below it: pack it anew")


def from_webdataset(
    train: Files,
    test: Files,
    validation: Files | None = None,
    *,
    input: str = "png",
    label: str | None = "cls",
    **options: Any,
) -> Any:
    """Data sets of tar files, of which only what a batch asks for is read, by index.

    Args:
        train, test, validation: files, patterns or lists of files.
        input, label: extensions: images, ``npy``, or raw bytes with ``shape`` and ``raw``; several as ``"jpg;png"``.
        options: of :class:`~deep500.training.data.formats.records.Records`: ``classes``, ``shape``, ``scale``, ...

    Raises:
        DataError: see :class:`WebDatasetRows` and ``Records``.

    Example:
        >>> for name, content in (("0.raw", b"\\0\\7"), ("0.cls", b"3")):
        ...     size = Path(name).write_bytes(content)
        >>> with tarfile.open("a.tar", "w") as tar:
        ...     tar.add("0.raw")
        ...     tar.add("0.cls")
        >>> train, test = from_webdataset("a.tar", "a.tar", input="raw", shape=(2,))
        >>> train[0]["input"].tolist(), train.labels.tolist()
        ([0.0, 7.0], [3])
    """
    columns = [column for column in (input, label) if column is not None]
    return splits(lambda part: WebDatasetRows(part, columns), (train, validation, test), input, label, **options)
