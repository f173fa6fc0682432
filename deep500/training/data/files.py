"""Data sets whose samples stay in files until they are asked for: lists of files and folders of images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from deep500.errors import DataError
from deep500.training.data.dataset import Batch, Dataset, Index, as_index, check_labels
from deep500.training.data.unreadable import Unreadable

Decoder: TypeAlias = Callable[[bytes], np.ndarray]
"""From an encoded image to its pixels, uint8 (height, width, channels) or (height, width)."""

MOST_16 = 65535
"""The largest number of 16 bits."""

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


class FileListDataset(Dataset):
    """One file per sample, read by ``loader(path) -> array`` whenever the sample is asked for.

    Args:
        data: the files.
        data_node: key of the data in a batch.
        loader: reads one file; all files must give the same shape.
        labels: one integer per file.
        label_node: key of the labels in a batch.
        name, classes, provenance: see :class:`Dataset`; ``classes`` None takes the largest label plus one.
        on_error: ``"raise"`` an error that names the file which cannot be read, or ``"skip"`` it: its batch is smaller,
            and ``unreadable.skipped`` says which were left out.

    Raises:
        DataError: no files, a wrong number of labels, or a label out of range; later: a file that cannot be read.
    """

    def __init__(
        self,
        data: Sequence[str | Path],
        data_node: str,
        loader: Callable[..., np.ndarray],
        labels: Sequence[int] | np.ndarray | None = None,
        label_node: str = "label",
        *,
        name: str = "files",
        classes: int | None = None,
        provenance: str = "files given by the caller",
        on_error: str = "raise",
    ) -> None:
        self.files = [Path(path) for path in data]
        if not self.files:
            raise DataError(f"{name}: got no files; expected at least one; check the folder or pattern")
        self.input_name, self.label_name, self.loader = data_node, label_node, loader
        self.unreadable = Unreadable(on_error)
        self.name, self.classes, self.provenance = name, classes, provenance
        self.labels = None if labels is None else np.asarray(labels, dtype=np.int64)
        if self.labels is not None:
            if len(self.labels) != len(self.files):
                raise DataError(
                    f"{name}: got {len(self.labels)} labels for {len(self.files)} files; "
                    "expected one per file; check that both come from the same list"
                )
            self.classes = int(self.labels.max()) + 1 if classes is None else classes
            check_labels(self.labels, self.classes, name)
        self.shape = self._first_shape()
        self._digest: str | None = None

    def _first_shape(self) -> tuple[int, ...]:
        for number, path in enumerate(self.files):
            try:
                return self._load(path).shape
            except DataError:
                if self.unreadable.on_error == "raise" or number + 1 == len(self.files):
                    raise
        raise AssertionError("there is a file")

    def _load(self, path: Path, *out: np.ndarray) -> np.ndarray:
        try:
            return self.loader(path, *out)
        except (
            OSError,
            SyntaxError,
            ValueError,
            EOFError,
        ) as error:  # Pillow says SyntaxError for some broken PNG files
            raise DataError(
                f"{path}: got a file that cannot be read ({error}); expected one that {self.name!r} can load; "
                "replace or remove it"
            ) from error

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        if isinstance(where, int):
            batch = {self.input_name: self._load(self.files[where])}
        else:
            inputs, where = self._stack(np.arange(len(self))[where])
            batch = {self.input_name: inputs}
        if self.labels is not None:
            batch[self.label_name] = np.asarray(self.labels[where])
        return batch

    def _stack(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The samples at these positions that can be read, and their positions."""
        samples: list[np.ndarray] = []

        def read(position: int) -> None:
            samples.append(self._fitting(self._load(self.files[position]), position))

        readable = self.unreadable.readable(positions, read)
        return np.stack(samples) if samples else np.empty((0, *self.shape), np.float32), readable

    def _fitting(self, sample: np.ndarray, position: int) -> np.ndarray:
        if sample.shape != self.shape:
            raise DataError(
                f"{self.files[position]}: got shape {sample.shape}; expected {self.shape} as in "
                f"{self.files[0].name}; let the loader bring all files to one shape"
            )
        return sample

    def digest(self) -> str:
        """SHA-256 of the files' contents and labels, in order."""
        if self._digest is None:
            sha = hashlib.sha256()
            for path in self.files:
                sha.update(hashlib.sha256(path.read_bytes()).digest())
            if self.labels is not None:
                sha.update(self.labels.data)
            self._digest = sha.hexdigest()
        return self._digest


class ImageFolder(FileListDataset):
    """A folder with one sub-folder of images per class; classes are numbered in alphabetical order.

    Images are converted to RGB (or grey where ``shape[0]`` is 1), resized bilinearly to ``shape`` = (channels, height,
    width) and delivered as float32 in [0, 1].

    Args:
        path, shape, data_node, label_node, on_error: see above, and :class:`FileListDataset`.
        class_names: in the order of their labels, if not the alphabet's.
        decoder: decodes the bytes of a file, such as ``simplejpeg.decode_jpeg``; Pillow if None.

    Attributes:
        class_names: the sub-folders' names, in the order of their labels.

    Raises:
        DataError: the folder is absent, or has no sub-folder with images.
    """

    def __init__(
        self,
        path: str | Path,
        shape: tuple[int, int, int] = (3, 32, 32),
        *,
        data_node: str = "input",
        label_node: str = "label",
        class_names: Sequence[str] | None = None,
        decoder: Decoder | None = None,
        on_error: str = "raise",
    ) -> None:
        folder = Path(path)
        files = [(name, path) for name in _subfolders(folder) for path in files_below(folder / name, SUFFIXES)]
        self.class_names = list(class_names) if class_names else sorted({name for name, _ in files})
        number = {name: i for i, name in enumerate(self.class_names)}
        strange = sorted({name for name, _ in files} - set(number))
        if not files or strange:
            got = f"classes {strange} that the training half lacks" if strange else "no sub-folder with images"
            raise DataError(
                f"{folder}: got {got}; expected one sub-folder of images per class, as in cats/1.png, dogs/1.png; "
                "rearrange the files"
            )
        self._target, self._decoder = tuple(shape), decoder
        super().__init__(
            [path for _, path in files],
            data_node,
            self._read,
            [number[name] for name, _ in files],
            label_node,
            name=folder.name,
            classes=len(self.class_names),
            provenance=f"image folder {folder}",
            on_error=on_error,
        )

    def _read(self, path: Path, out: np.ndarray | None = None) -> np.ndarray:
        if self._decoder is None:
            return _pixels(path, self._target, out)
        return fitted(self._decoder(path.read_bytes()), self._target, out)

    def _stack(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        batch, count = np.empty((len(positions), *self.shape), np.float32), 0

        def read(position: int) -> None:  # into its place: an array of its own costs as much as half the decoding
            nonlocal count
            self._load(self.files[position], batch[count])
            count += 1

        readable = self.unreadable.readable(positions, read)
        return batch[:count], readable


def read_image(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """An image as float32 (channels, height, width) in [0, 1], resized bilinearly, RGB or grey by ``shape[0]``.

    Raises:
        DataError: Pillow cannot read it.
    """
    try:
        return _pixels(path, shape)
    except (OSError, SyntaxError, ValueError) as error:  # Pillow says SyntaxError for some broken PNG files
        raise DataError(
            f"{path}: got a file that cannot be read ({error}); expected an image: replace or remove it"
        ) from error


def _pixels(path: Path, shape: tuple[int, ...], out: np.ndarray | None = None) -> np.ndarray:
    from PIL import Image

    with Image.open(path) as image:
        return fitted(image, shape, out)


def fitted(image: Any, shape: tuple[int, ...] | None, out: np.ndarray | None = None) -> np.ndarray:
    """Pillow's image, or pixels, as float32 (channels, height, width) in [0, 1]; of its own size without ``shape``.

    Args:
        image: of Pillow, or a :data:`Decoder`'s result.
        shape: what it is converted and resized to.
        out: where the result is written, if not in a new array.
    """
    if isinstance(image, np.ndarray) and shape in (None, _shape_of(image)):
        return _scaled(image, out)
    from PIL import Image

    if isinstance(image, np.ndarray):
        image = Image.fromarray(image[:, :, 0] if image.shape[2:] == (1,) else image)
    wide = image.mode == "F" or image.mode.startswith("I")
    if shape is None:
        shape = (1 if wide or image.mode in ("1", "L") else 3, image.height, image.width)
    if wide:
        return _scaled_wide(image, shape, out)
    channels, height, width = shape
    mode = "L" if channels == 1 else "RGB"
    image = image if image.mode == mode else image.convert(mode)  # each of the two copies what fits already
    image = image if image.size == (width, height) else image.resize((width, height), Image.Resampling.BILINEAR)
    return _scaled(np.asarray(image), out)


def _shape_of(pixels: np.ndarray) -> tuple[int, ...]:
    """The shape that pixels are delivered in; that of none where they are of another type or number of axes."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        raise ValueError(
            f"got {pixels.dtype} of shape {pixels.shape} from the decoder; expected uint8 (height, width, channels)"
        )
    return (1, *pixels.shape) if pixels.ndim == 2 else (pixels.shape[2], *pixels.shape[:2])


def _scaled(pixels: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    result = np.empty(planes.shape, np.float32) if out is None else out
    result[...] = planes  # one pass to convert and turn, one to divide in place: a third of the time of three arrays
    return np.divide(result, np.float32(255), out=result)


def _scaled_wide(image: Any, shape: tuple[int, ...], out: np.ndarray | None) -> np.ndarray:
    """A grey image of 16 bits, which Pillow's own conversion would cut at 255."""
    from PIL import Image

    values = np.asarray(image)
    if values.dtype.kind not in "iu" or values.min() < 0 or values.max() > MOST_16:
        raise ValueError(
            f"got pixels of {values.dtype} from {values.min():g} to {values.max():g}; expected 8 or 16 bits, 0 to "
            f"{MOST_16}: store them so"
        )
    image, (_, height, width) = Image.fromarray(values.astype(np.float32)), shape
    image = image if image.size == (width, height) else image.resize((width, height), Image.Resampling.BILINEAR)
    result = np.empty(shape, np.float32) if out is None else out
    result[...] = np.asarray(image)
    return np.divide(result, np.float32(MOST_16), out=result)


def _subfolders(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise DataError(f"{folder}: got no such folder; expected a folder of images; check the path")
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def files_below(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Files of these kinds in a folder and its sub-folders, in the order of their paths; hidden folders are passed."""
    below: list[Path] = []
    for place, names, files in os.walk(folder, followlinks=True):
        names[:] = [name for name in names if not name.startswith(".")]
        below += [Path(place, name) for name in files if Path(name).suffix.lower() in suffixes]
    return sorted(below)
