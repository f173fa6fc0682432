"""Data sets whose samples stay in files until they are asked for: lists of files and folders of images."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import DataError
from deep500.training.data.dataset import Batch, Dataset, Index, as_index, check_labels

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

    Raises:
        DataError: no files, a wrong number of labels, or a label out of range.
    """

    def __init__(
        self,
        data: Sequence[str | Path],
        data_node: str,
        loader: Callable[[Path], np.ndarray],
        labels: Sequence[int] | np.ndarray | None = None,
        label_node: str = "label",
        *,
        name: str = "files",
        classes: int | None = None,
        provenance: str = "files given by the caller",
    ) -> None:
        self.files = [Path(path) for path in data]
        if not self.files:
            raise DataError(f"{name}: got no files; expected at least one; check the folder or pattern")
        self.input_name, self.label_name, self.loader = data_node, label_node, loader
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
        self.shape = self._load(self.files[0]).shape
        self._digest: str | None = None

    def _load(self, path: Path) -> np.ndarray:
        try:
            return self.loader(path)
        except (OSError, SyntaxError, ValueError) as error:  # Pillow says SyntaxError for some broken PNG files
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
            positions = np.arange(len(self))[where]
            batch = {self.input_name: self._stack(positions)}
        if self.labels is not None:
            batch[self.label_name] = np.asarray(self.labels[where])
        return batch

    def _stack(self, positions: np.ndarray) -> np.ndarray:
        samples = [self._load(self.files[i]) for i in positions]
        for position, sample in zip(positions, samples, strict=True):
            if sample.shape != self.shape:
                raise DataError(
                    f"{self.files[position]}: got shape {sample.shape}; expected {self.shape} as in "
                    f"{self.files[0].name}; let the loader bring all files to one shape"
                )
        return np.stack(samples) if samples else np.empty((0, *self.shape), np.float32)

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
    width) and delivered as float32 in [0, 1]. Pillow reads them.

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
    ) -> None:
        folder = Path(path)
        files = [(name, path) for name in _subfolders(folder) for path in _images(folder / name)]
        self.class_names = list(class_names) if class_names else sorted({name for name, _ in files})
        number = {name: i for i, name in enumerate(self.class_names)}
        strange = sorted({name for name, _ in files} - set(number))
        if not files or strange:
            got = f"classes {strange} that the training half lacks" if strange else "no sub-folder with images"
            raise DataError(
                f"{folder}: got {got}; expected one sub-folder of images per class, as in cats/1.png, dogs/1.png; "
                "rearrange the files"
            )
        self._target = tuple(shape)
        super().__init__(
            [path for _, path in files],
            data_node,
            self._read,
            [number[name] for name, _ in files],
            label_node,
            name=folder.name,
            classes=len(self.class_names),
            provenance=f"image folder {folder}",
        )

    def _read(self, path: Path) -> np.ndarray:
        return _pixels(path, self._target)


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


def _pixels(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    from PIL import Image

    with Image.open(path) as image:
        return fitted(image, shape)


def fitted(image: Any, shape: tuple[int, ...] | None) -> np.ndarray:
    """Pillow's image as float32 (channels, height, width) in [0, 1]; of its own size where ``shape`` is None."""
    from PIL import Image

    if shape is None:
        shape = (1 if image.mode in ("1", "L") else 3, image.height, image.width)
    channels, height, width = shape
    resized = image.convert("L" if channels == 1 else "RGB").resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(resized, dtype=np.float32) / np.float32(255)
    return np.ascontiguousarray(np.atleast_3d(pixels).transpose(2, 0, 1))


def _subfolders(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise DataError(f"{folder}: got no such folder; expected a folder of images; check the path")
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
