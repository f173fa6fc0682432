"""Rows of named values, and the data set that makes samples of them: what all formats share."""

from __future__ import annotations

import abc
import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from deep500.errors import DataError, InputError
from deep500.reading import open_regular
from deep500.training.data.dataset import Batch, Dataset, Index, as_index, check_labels
from deep500.training.data.files import Decoder, fitted
from deep500.training.data.unreadable import Unreadable

Files: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file, a pattern such as ``train-*.tar``, or a list of files."""

CHUNK = 1024
"""Rows that are read at a time where all of them are: for labels and digests."""


class Rows(abc.ABC):
    """Rows of named values that stay in files until they are read.

    Subclasses find the rows when they are made, raise DataError where one of the ``columns`` is absent, and hold
    nothing that does not survive pickling and forking: what is open belongs to one process (:class:`PerProcess`).

    Attributes:
        where: what messages call the source.
        classes: number of classes where the source says it.
    """

    where: str
    classes: int | None = None

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abc.abstractmethod
    def read(self, column: str, positions: np.ndarray) -> Sequence[Any] | np.ndarray:
        """Values of a column in the rows at these positions: numbers, arrays, bytes or Pillow's images."""

    @abc.abstractmethod
    def update(self, sha: Any) -> None:
        """Add the content to a SHA-256."""

    def row(self, position: int) -> str:
        """Return the name of a row in messages."""
        return f"{self.where}, row {position}"


_OPENING = threading.RLock()


class PerProcess:
    """Something open, opened anew in every process that asks for it, and left behind by pickling.

    Example:
        >>> opened = PerProcess(list)
        >>> opened() is opened()
        True
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._held: tuple[int, Any] | None = None

    def __call__(self) -> Any:
        if self._held is None or self._held[0] != os.getpid():
            with _OPENING:  # threads that prefetch ask at the same time
                if self._held is None or self._held[0] != os.getpid():
                    self._held = (os.getpid(), self._make())
        return self._held[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make, "_held": None}


@dataclass(eq=False, repr=False)
class Records(Dataset):
    """Samples of rows: one column is the input, one the label. Labels are read once and checked, inputs when asked for.

    Values may be numbers, arrays, lists of numbers, ``.npy`` bytes, raw bytes (``raw`` and ``shape`` say of what) or
    encoded images (PNG, JPEG, ...: delivered in [0, 1] as (channels, height, width), resized to ``shape`` if given).

    Args:
        rows: of a format.
        input, label: columns; ``label=None`` for data without labels.
        classes: number of classes; None takes what the source says, or the largest integer label plus one.
        shape: of one sample, where the source holds it flat, as raw bytes or as an image of another size.
        dtype: what inputs are delivered as.
        raw: type of the numbers in raw bytes.
        scale: inputs are divided by it.
        input_name, label_name: keys of the batches.
        name, provenance: what results say of the data.
        decoder: decodes images in bytes, such as ``simplejpeg.decode_jpeg``; Pillow if None.
        on_error: ``"raise"`` an error that names the row whose input cannot be read, or ``"skip"`` it: its batch is
            smaller, and ``unreadable.skipped`` says which were left out.

    Raises:
        DataError: no rows, values that are no numbers, shapes that differ, or a label out of range.
    """

    rows: Rows
    input: str
    label: str | None
    _: KW_ONLY
    classes: int | None = None
    shape: tuple[int, ...] = None  # type: ignore[assignment]  # that of the first sample, once it is made
    dtype: Any = "float32"
    raw: Any = "uint8"
    scale: float | None = None
    input_name: str = "input"
    label_name: str = "label"
    name: str = ""
    provenance: str = ""
    decoder: Decoder | None = None
    on_error: str = "raise"

    def __post_init__(self) -> None:
        rows = self.rows
        self.unreadable = Unreadable(self.on_error)
        self.name, self.provenance = self.name or Path(rows.where).name, self.provenance or rows.where
        self.classes = rows.classes if self.classes is None else self.classes
        self.dtype, self.raw = np.dtype(self.dtype), np.dtype(self.raw)
        self._wanted = None if self.shape is None else tuple(self.shape)
        if not len(rows):
            raise DataError(f"{rows.where}: got no rows; expected at least one sample: give another file")
        self.shape = self._sample(rows.read(self.input, np.array([0]))[0], 0, self._wanted).shape
        self.labels = None if self.label is None else self._checked(np.concatenate(list(self._labels(self.label))))
        self._digest: str | None = None

    def _labels(self, column: str) -> Iterator[np.ndarray]:
        for start in range(0, len(self.rows), CHUNK):
            positions = np.arange(start, min(start + CHUNK, len(self.rows)))
            values = self.rows.read(column, positions)
            arrays = [_label(value, self.rows, int(at)) for value, at in zip(values, positions, strict=True)]
            sizes = {array.shape for array in arrays}
            if len(sizes) > 1:
                raise DataError(
                    f"{self.rows.where}: got labels of shapes {sorted(sizes)} in column {column!r}; expected one: "
                    "bring them to one shape"
                )
            yield np.stack(arrays)

    def _checked(self, labels: np.ndarray) -> np.ndarray:
        if labels.dtype.kind not in "iu":
            return labels.astype(np.float32)
        labels = labels.astype(np.int64)
        labels = labels[:, 0] if labels.shape[1:] == (1,) else labels
        self.classes = int(labels.max()) + 1 if self.classes is None else self.classes
        check_labels(labels, self.classes, self.rows.where)
        return labels

    def _sample(
        self, value: Any, position: int, expected: tuple[int, ...] | None, place: np.ndarray | None = None
    ) -> np.ndarray:
        """A value as a sample; an image in ``place``, if that is given and fits."""
        place = place if self._wanted == self.shape and self.dtype == np.float32 else None
        try:
            sample = _numbers(value, self._wanted, self.raw, self.scale, self.decoder, place)
        except _Unfit as problem:
            raise DataError(f"{self.rows.row(position)}: column {self.input!r}: {problem}") from problem
        if self._wanted is not None and sample.size == np.prod(self._wanted, dtype=int):
            sample = sample.reshape(self._wanted)
        if expected is not None and sample.shape != expected:
            raise DataError(
                f"{self.rows.row(position)}: column {self.input!r}: got shape {sample.shape}; expected {expected}: "
                "give shape=..., or bring all samples to one"
            )
        return sample.astype(self.dtype, copy=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        if isinstance(where, int):
            return {name: np.asarray(value[0]) for name, value in self[[where]].items()}
        positions = np.arange(len(self))[where]
        values = dict(zip(positions.tolist(), self._values(positions), strict=True))
        batch, count = np.empty((len(positions), *self.shape), self.dtype), 0

        def read(position: int) -> None:
            nonlocal count
            value = values[position]
            if isinstance(value, DataError):
                raise value
            place = batch[count, ...]  # an array, also where a sample is a number
            sample = self._sample(value, position, self.shape, place)
            if not np.may_share_memory(sample, place):
                place[...] = sample
            count += 1

        readable = self.unreadable.readable(positions, read)
        samples = {self.input_name: batch[:count]}
        if self.labels is not None:
            samples[self.label_name] = self.labels[readable]
        return samples

    def _values(self, positions: np.ndarray) -> Sequence[Any] | np.ndarray:
        """Values of the input, an error in the place of those that cannot be read and are to be skipped."""
        if not len(positions):
            return []
        try:
            return self.rows.read(self.input, positions)
        except DataError:
            if self.on_error == "raise":
                raise
        return [self._value(position) for position in positions]

    def _value(self, position: int) -> Any:
        try:
            return self.rows.read(self.input, np.array([position]))[0]
        except DataError as error:
            return error

    def digest(self) -> str:
        """SHA-256 of the source's content and of what is made of it."""
        if self._digest is None:
            settings = (self.input, self.label, self._wanted, self.dtype.str, self.raw.str, self.scale)
            sha = hashlib.sha256(repr(settings).encode())
            self.rows.update(sha)
            self._digest = sha.hexdigest()
        return self._digest


class _Unfit(Exception):
    """A refused value: what was got, expected and is to be done."""


def _label(value: Any, rows: Rows, position: int) -> np.ndarray:
    if isinstance(value, bytes) and value.strip().lstrip(b"-").isdigit() and len(value) < 20:
        value = int(value)  # as text, which is how WebDataset keeps classes
    try:
        return _numbers(value, None, None, None, None, None)
    except _Unfit as problem:
        raise DataError(f"{rows.row(position)}: label: {problem}") from problem


def _numbers(
    value: Any,
    shape: tuple[int, ...] | None,
    raw: np.dtype | None,
    scale: float | None,
    decoder: Decoder | None,
    place: np.ndarray | None,
) -> np.ndarray:
    """A value as an array of numbers; encoded images in [0, 1]."""
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        value = value["bytes"]  # how Hugging Face's files hold images
    if isinstance(value, bytes):
        value = _decoded(value, shape, raw, decoder)
    if isinstance(value, _Pixels) or (hasattr(value, "convert") and hasattr(value, "mode")):  # Pillow's
        if scale is not None:
            raise _Unfit(f"got an image with scale={scale}; expected none, as images come in [0, 1]: leave it out")
        return _image(value.pixels if isinstance(value, _Pixels) else value, shape, place)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise _Unfit(f"got {error}; expected an array of one shape: bring it to one") from error
    if array.dtype.kind not in "biuf":
        got = "nothing (null)" if value is None else f"{type(value).__name__} of {array.dtype}"
        raise _Unfit(f"got {got}; expected numbers, an image or bytes: convert it, or name another column")
    return array if scale is None else np.divide(array, np.float32(scale), dtype=np.float32)


@dataclass(frozen=True)
class _Pixels:
    """Pixels by a decoder of the user's."""

    pixels: np.ndarray


def _decoded(data: bytes, shape: tuple[int, ...] | None, raw: np.dtype | None, decoder: Decoder | None) -> Any:
    if data[:6] == b"\x93NUMPY":
        try:
            return np.load(io.BytesIO(data), allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise _Unfit(f"got .npy bytes that cannot be read ({error}); expected numbers: write it again") from error
    if raw is not None and shape is not None and len(data) == raw.itemsize * int(np.prod(shape)):
        return np.frombuffer(data, raw)
    if decoder is not None:
        try:
            return _Pixels(decoder(data))
        except (OSError, SyntaxError, ValueError) as error:
            raise _Unfit(f"got an image that cannot be read ({error}); expected a whole one: replace it") from error
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(io.BytesIO(data))
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise _Unfit(
            f"got {len(data)} bytes that are no .npy and no image; expected one of them, or raw numbers: "
            "give their shape=... and raw=..."
        ) from error


def _image(image: Any, shape: tuple[int, ...] | None, place: np.ndarray | None) -> np.ndarray:
    if shape is not None and (len(shape) != 3 or shape[0] not in (1, 3)):
        raise _Unfit(f"got shape={shape} for an image; expected (1 or 3, height, width): correct it")
    try:
        return fitted(image, shape, place)
    except (OSError, SyntaxError, ValueError) as error:  # Pillow says SyntaxError for some broken PNG files
        raise _Unfit(f"got an image that cannot be read ({error}); expected a whole one: replace it") from error


def splits(rows: Callable[[Any], Rows], parts: Sequence[Any], input: str, label: str | None, **options: Any) -> Any:
    """(training, test) or (training, validation, test) of what ``rows`` makes of ``parts``; None is left out.

    Raises:
        DataError: parts of different shapes, or a label that the training part's classes do not hold.
    """
    records: list[Records] = []
    for part in (part for part in parts if part is not None):
        if records and options.get("classes") is None:
            options["classes"] = records[0].classes
        records.append(Records(rows(part), input, label, **options))
        if records[-1].shape != records[0].shape:
            raise DataError(
                f"{records[-1].rows.where}: got samples of shape {records[-1].shape}; expected {records[0].shape}, "
                f"as in {records[0].rows.where}: give shape=..., or files that belong together"
            )
    return tuple(records)


def missing(package: str) -> DataError:
    """The error where a package of the extra ``data`` is not installed."""
    return DataError(f"got no package {package!r}; expected it: pip install 'deep500[data]'")


def files_of(source: Files) -> list[Path]:
    """The files that are meant, those of a pattern in alphabetical order.

    Raises:
        DataError: one is absent, or the pattern finds none.
    """
    if not isinstance(source, (str, os.PathLike)) and not isinstance(source, Sequence):
        raise InputError(f"got {type(source).__name__} as files; expected a path, a pattern or a list of paths")
    entries = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    paths: list[Path] = []
    for entry in entries:
        path = Path(entry)
        pattern = not path.exists() and any(mark in str(path) for mark in "*?[")
        paths += sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if pattern else [path]
    absent = next((path for path in paths if not path.is_file()), None)
    if absent is not None or not paths:
        raise DataError(f"{absent or source}: got no such file; expected one: check the path")
    return paths


def opened(path: Path) -> BinaryIO:
    """A data file, open for reading; DataError where it cannot be."""
    try:
        return open_regular(path, links=True)
    except OSError as error:
        raise DataError(
            f"{path}: got {error.strerror}; expected a readable file: check path and permissions"
        ) from error


def hash_files(files: Sequence[Path], sha: Any) -> None:
    """Add the SHA-256 of every file's content, a piece at a time."""
    for path in files:
        with opened(path) as file:
            inner = hashlib.sha256()
            while piece := file.read(1 << 20):
                inner.update(piece)
        sha.update(inner.digest())


class _Handles(dict[int, BinaryIO]):
    """Open files by number, which are closed with it."""

    def __del__(self) -> None:
        for file in self.values():
            file.close()


class Shards:
    """The place of each row in files, in three arrays, and the reading of it: for formats that are indexed by one pass.

    Attributes:
        files: in order.
        at: rows of (file, offset, size).
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = list(files)
        self._open = PerProcess(_Handles)

    def read(self, file: int, offset: int, size: int) -> bytes:
        """So many bytes of a file; files stay open, and threads may read at once."""
        handles = self._open()
        if file not in handles:
            handles[file] = opened(self.files[file])
        data = os.pread(handles[file].fileno(), size, offset)
        if len(data) < size:
            raise DataError(
                f"{self.files[file]}: got {len(data)} of {size} bytes at byte {offset}; expected all: the file was "
                "cut short since it was indexed, restore it"
            )
        return data
