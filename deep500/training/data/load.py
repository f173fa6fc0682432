"""``load_dataset``: from a name to a training and a test set."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from deep500.errors import DataError, Deep500Error, nearest
from deep500.training.data import builtin
from deep500.training.data.catalog import BUILT_IN, PUBLISHED, DatasetInfo, Layout, Published
from deep500.training.data.dataset import Dataset, NumpyDataset
from deep500.training.data.download import download as fetch
from deep500.training.data.files import ImageFolder
from deep500.training.data.rawfile import RawFile, find, read_archive, read_folder, verify_archive

Pair: TypeAlias = tuple[Dataset, Dataset]
FOLDER = "imagefolder:"
_TEST_FOLDERS = ("test", "val", "validation")


class StandInWarning(UserWarning):
    """Built-in data replace a data set that is absent; quality figures are not comparable to anything."""


def dataset_names() -> list[str]:
    """All names that :func:`load_dataset` knows, besides ``imagefolder:PATH``."""
    return [*BUILT_IN, *PUBLISHED]


def dataset_info(name: str) -> DatasetInfo:
    """Classes, sample shape and sizes of a data set, without loading it.

    Raises:
        DataError: the name is unknown (the nearest is offered).

    Example:
        >>> dataset_info("cifar10").shape
        (3, 32, 32)
    """
    info = BUILT_IN.get(name) or PUBLISHED.get(name)
    if info is None:
        raise DataError(
            f"got data set {name!r}; expected one of {', '.join(dataset_names())} or {FOLDER}PATH; "
            f"{nearest(name, dataset_names())}"
        )
    return info


def load_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    download: bool = False,
    stand_in: bool = False,
    verify: bool = False,
    seed: int = 0,
    **options: Any,
) -> Pair:
    """Load a data set as (training set, test set).

    Published sets are looked for in ``root`` or else in ``$DATA_ROOT``, ``./data`` and ``$KERAS_HOME/datasets``: as
    the publisher's folder or archive, or in torchvision's or Keras's layout. Sizes, structure and labels are always
    checked.

    Args:
        name: see :func:`dataset_names`; or ``imagefolder:PATH`` for a folder with ``train`` and ``test`` (or ``val``)
            in it, each with one sub-folder of images per class.
        root: the only folder to look in, and where downloads go.
        download: fetch an absent set (https, checksum verified).
        stand_in: replace a set that is absent, or cannot be fetched, by built-in data of the same shape and dtype.
        verify: compare existing copies with the official checksums.
        seed: decides how ``digits32`` (and so the stand-in for colour images) is drawn.
        options: ``size`` for digits; ``shape`` for image folders.

    Raises:
        DataError: unknown name or option; data absent (with the folders searched and the cure), truncated, altered or
            with impossible labels.

    Example:
        >>> train, test = load_dataset("digits")
        >>> len(train), len(test), train.shape, train.classes
        (1438, 359, (1, 8, 8), 10)
    """
    if name.startswith(FOLDER):
        return _image_folder(Path(name[len(FOLDER) :]), **_checked(name, options, ("shape",)))
    info = dataset_info(name)
    if isinstance(info, Published):
        _checked(name, options, ())
        return _published(info, root, download=download, stand_in=stand_in, verify=verify, seed=seed)
    makers: dict[str, tuple[Callable[..., Pair], tuple[str, ...]]] = {
        "digits": (builtin.digits, ("size",)),
        "digits32": (builtin.digits32, ()),
    }
    maker, known = makers[name]
    return maker(seed=seed, **_checked(name, options, known))


def _checked(name: str, options: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    for option in options:
        if option not in known:
            common = (*known, "root", "download", "stand_in", "verify", "seed")
            raise DataError(f"got option {option!r} for data set {name!r}; {nearest(option, common)}; correct it")
    return options


def _image_folder(path: Path, **options: Any) -> Pair:
    halves = [path / "train", *(path / one for one in _TEST_FOLDERS if (path / one).is_dir())]
    if len(halves) < 2 or not halves[0].is_dir():
        raise DataError(
            f"{path}: got no folder with both halves; expected 'train' and one of {', '.join(_TEST_FOLDERS)} in it; "
            "check the path or make the split"
        )
    train = ImageFolder(halves[0], **options)
    return train, ImageFolder(halves[1], class_names=train.class_names, **options)


def _roots(root: str | Path | None) -> list[Path]:
    if root is not None:
        return [Path(root)]
    set_by_user = os.environ.get("DATA_ROOT")
    keras = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    return [*([Path(set_by_user)] if set_by_user else []), Path("data"), keras / "datasets"]


def _published(
    info: Published, root: str | Path | None, *, download: bool, stand_in: bool, verify: bool, seed: int
) -> Pair:
    roots = _roots(root)
    problem = f"not found in {', '.join(str(one) for one in roots)}"
    found = _locate(info, roots)
    if found is None and download:
        try:
            fetch(info, roots[0])
            found = _locate(info, roots[:1])
        except Deep500Error as error:
            if not stand_in:
                raise
            problem = str(error)
    if found is not None:
        return _read(info, *found, verify)
    if not stand_in:
        files = info.layouts[0].archives or info.layouts[0].folders
        raise DataError(
            f"got no data set {info.name!r}: {problem}; expected {files[0]} or another usual layout there; put the "
            "files there, set DATA_ROOT, download=True, or stand_in=True to use built-in data instead"
        )
    message = f"{info.name}: {problem}; built-in STAND-IN data are used, quality figures mean nothing for {info.name}"
    warnings.warn(message, StandInWarning, stacklevel=3)
    return builtin.stand_in_for(info.name, info.shape, info.classes, seed)


def _locate(info: Published, roots: list[Path]) -> tuple[Layout, Path] | None:
    """The first layout of which a file exists, and its folder or archive."""
    for root in roots:
        for layout in info.layouts:
            for folder in layout.folders:
                if any(find(root / folder, name) for name in layout.train + layout.test):
                    return layout, root / folder
            for archive in layout.archives:
                if (root / archive).is_file():
                    return layout, root / archive
    return None


def _read(info: Published, layout: Layout, path: Path, verify: bool) -> Pair:
    names = dict.fromkeys(layout.train + layout.test)
    if path.is_dir():
        files = read_folder(path, names, layout.digests)
        for file in files.values() if verify else ():
            file.verify()
    else:
        if verify:
            verify_archive(path, layout.digests)
        files = read_archive(path, names, layout.digests)
    train, test = (
        _half(info, layout, [files[name] for name in half], count, f"{info.name} ({part}) from {path}")
        for half, count, part in zip((layout.train, layout.test), info.counts, ("train", "test"), strict=True)
    )
    return train, test


def _half(info: Published, layout: Layout, files: list[RawFile], count: int, where: str) -> NumpyDataset:
    channels, height, width = info.shape
    images, labels = layout.reader(files, (count, channels, height, width), info.classes)
    return NumpyDataset(
        images, "input", labels, "label", name=info.name, classes=info.classes, scale=255, provenance=where
    )
