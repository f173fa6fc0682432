"""TFRecord files of `tf.train.Example`, read without TensorFlow: the framing, its checksums and the messages.

A record is its length (8 bytes, little end first), the checksum of these, the data and their checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import DataError
from deep500.training.data.formats.crc32c import masked
from deep500.training.data.formats.records import Files, Rows, Shards, files_of, hash_files, opened, splits
from deep500.training.data.formats.wire import WireError, example

HEAD = 12


class TFRecordRows(Rows):
    """Examples in TFRecord files; one pass over the files finds where each lies and checks its length's checksum.

    Raises:
        DataError: cut short, a checksum that differs, compressed, or a record that is no Example or lacks a feature.
    """

    def __init__(self, files: Files, columns: Sequence[str]) -> None:
        self.where = str(files)
        self._shards = Shards(files_of(files))
        places = [(number, *place) for number, path in enumerate(self._shards.files) for place in _index(path)]
        self._places = np.array(places, np.int64).reshape(-1, 3)
        for column in columns if places else ():
            self.read(column, np.array([0]))

    def __len__(self) -> int:
        return len(self._places)

    def read(self, column: str, positions: np.ndarray) -> Sequence[Any]:
        return [self._value(column, int(position)) for position in positions]

    def _value(self, column: str, position: int) -> Any:
        file, offset, size = (int(value) for value in self._places[position])
        data = self._shards.read(file, offset, size + 4)
        if masked(data[:size]) != struct.unpack("<I", data[size:])[0]:
            raise DataError(
                f"{self.row(position)}: got another checksum of its {size} bytes at byte {offset}; expected the one "
                "stored: the file is damaged, restore it"
            )
        try:
            features = example(data[:size])
        except WireError as error:
            raise DataError(f"{self.row(position)}: got {error}; expected a tf.train.Example: convert it") from error
        if column not in features:
            raise DataError(
                f"{self.row(position)}: got no feature {column!r}, of {', '.join(features) or 'none'}; expected it: "
                "name features by input=... and label=..."
            )
        return features[column]

    def row(self, position: int) -> str:
        return f"{self._shards.files[self._places[position][0]]}, record {position}"

    def update(self, sha: Any) -> None:
        hash_files(self._shards.files, sha)


def _index(path: Path) -> list[tuple[int, int]]:
    """Return where the data of each record begin, and how long they are."""
    places: list[tuple[int, int]] = []
    at, total = 0, path.stat().st_size
    with opened(path) as file:
        while at < total:
            file.seek(at)
            head = file.read(HEAD)
            if at == 0 and head[:2] == b"\x1f\x8b":
                raise DataError(f"{path}: got a compressed file; expected plain TFRecord: gunzip it")
            if len(head) < HEAD:
                raise DataError(f"{path}: got {len(head)} bytes at byte {at}; expected a record: restore the file")
            size, stored = struct.unpack("<QI", head)
            if masked(head[:8]) != stored:
                raise DataError(
                    f"{path}: got another checksum of the length at byte {at}; expected the one stored: the file is "
                    "damaged or no TFRecord, restore it"
                )
            if at + HEAD + size + 4 > total:
                raise DataError(
                    f"{path}: got {total - at - HEAD} bytes for record {len(places)} at byte {at}; expected "
                    f"{size + 4}: the file was cut short, restore it"
                )
            places.append((at + HEAD, size))
            at += HEAD + size + 4
    return places


def from_tfrecord(
    train: Files,
    test: Files,
    validation: Files | None = None,
    *,
    input: str = "input",
    label: str | None = "label",
    **options: Any,
) -> Any:
    """Data sets of TFRecord files, of which only what a batch asks for is read, by index.

    Args:
        train, test, validation: files, patterns or lists of files.
        input, label: names of features.
        options: of :class:`~deep500.training.data.formats.records.Records`: features are flat, so ``shape`` is
            needed where samples have more axes than one; ``raw`` for numbers in bytes.

    Raises:
        DataError: see :class:`TFRecordRows` and ``Records``.

    Example:
        >>> record = b"\\n\\x0c\\n\\n\\n\\x01y\\x12\\x05\\x1a\\x03\\n\\x01\\x07"  # {"y": [7]}
        >>> head = struct.pack("<Q", len(record))
        >>> parts = head, struct.pack("<I", masked(head)), record, struct.pack("<I", masked(record))
        >>> Path("a.tfrecord").write_bytes(b"".join(parts))
        30
        >>> train, test = from_tfrecord("a.tfrecord", "a.tfrecord", input="y", label=None)
        >>> train[0]["input"].tolist()
        [7.0]
    """
    columns = [column for column in (input, label) if column is not None]
    return splits(lambda part: TFRecordRows(part, columns), (train, validation, test), input, label, **options)
