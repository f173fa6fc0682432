"""``load_dataset``: from a name to a training and a test set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import deep500.training.data.sets as _sets  # noqa: F401 - they register themselves
from deep500.errors import DataError, nearest
from deep500.training.data.catalog import DATASETS, DatasetInfo, Pair, Search, registered
from deep500.training.data.files import ImageFolder
from deep500.training.data.soundfolder import SETTINGS, audio_folder

FOLDER, SOUNDS = "imagefolder:", "audiofolder:"
_TEST_FOLDERS = ("test", "val", "validation")


def dataset_names() -> list[str]:
    """All names that :func:`load_dataset` knows, besides those of folders; those that need no files first."""
    return sorted(DATASETS, key=lambda name: not DATASETS[name].built_in)


def dataset_info(name: str) -> DatasetInfo:
    """Classes, sample shape and sizes of a data set, without loading it.

    Raises:
        DataError: the name is unknown (the nearest is offered).

    Example:
        >>> dataset_info("cifar10").shape
        (3, 32, 32)
    """
    return registered(name, f"{FOLDER}PATH")


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
            in it, each with one sub-folder of images per class; or ``audiofolder:PATH``, the same with WAV or FLAC
            files.
        root: the only folder to look in, and where downloads go.
        download: fetch an absent set (https, checksum verified).
        stand_in: replace a set that is absent, or cannot be fetched, by built-in data of the same shape and dtype.
        verify: compare existing copies with the official checksums.
        seed: decides how ``digits32`` (and so the stand-in for colour images) is drawn.
        options: ``size`` for digits; ``shape``, ``decoder`` and ``on_error`` for image folders; ``rate`` and the other
            arguments of :class:`~deep500.training.data.audio.LogMel` for sounds.

    Raises:
        DataError: unknown name or option; data absent (with the folders searched and the cure), truncated, altered or
            with impossible labels.

    Example:
        >>> train, test = load_dataset("digits")
        >>> len(train), len(test), train.shape, train.classes
        (1438, 359, (1, 8, 8), 10)
    """
    if name.startswith(FOLDER):
        return _image_folder(Path(name[len(FOLDER) :]), **_checked(name, options, ("shape", "decoder", "on_error")))
    if name.startswith(SOUNDS):
        return audio_folder(*_halves_of(Path(name[len(SOUNDS) :])), **_checked(name, options, SETTINGS))
    info = dataset_info(name)
    search = Search(_roots(root), download, stand_in, verify)
    return info.load(search, seed, **_checked(name, options, info.options))


def _checked(name: str, options: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    for option in options:
        if option not in known:
            common = (*known, "root", "download", "stand_in", "verify", "seed")
            raise DataError(f"got option {option!r} for data set {name!r}; {nearest(option, common)}; correct it")
    return options


def _halves_of(path: Path) -> tuple[Path, Path]:
    halves = [path / "train", *(path / name for name in _TEST_FOLDERS if (path / name).is_dir())]
    if len(halves) < 2 or not halves[0].is_dir():
        raise DataError(
            f"{path}: got no folder with both halves; expected 'train' and one of {', '.join(_TEST_FOLDERS)} in it; "
            "check the path or make the split"
        )
    return halves[0], halves[1]


def _image_folder(path: Path, **options: Any) -> Pair:
    halves = _halves_of(path)
    train = ImageFolder(halves[0], **options)
    return train, ImageFolder(halves[1], class_names=train.class_names, **options)


def _roots(root: str | Path | None) -> tuple[Path, ...]:
    if root is not None:
        return (Path(root),)
    set_by_user = os.environ.get("DATA_ROOT")
    keras = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    return (*([Path(set_by_user)] if set_by_user else []), Path("data"), keras / "datasets")
