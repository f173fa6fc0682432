"""Data sets in the files that their publishers offer: found in usual places, checked, downloaded on request.

Checksums are those that the publishers, torchvision or Keras state. A known folder with a part of its files is an
error, not an absent data set: silently training on something else would be worse. Downloads use https, show progress,
have time-outs, and their checksums are verified before anything reads them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import DataError, Deep500Error, MissingDataset
from deep500.training.data.catalog import DATASETS, DatasetInfo, Pair, Search
from deep500.training.data.dataset import NumpyDataset
from deep500.training.data.rawfile import RawFile, find, read_archive, read_folder, verify_archive

Shape4 = tuple[int, int, int, int]
Arrays = tuple[np.ndarray, np.ndarray]
Reader = Callable[[Sequence[RawFile], Shape4, int], Arrays]
"""``reader(files, images, classes) -> (uint8 (N, C, H, W), int64 (N,))``, with ``files`` the raw files of one half in
order and ``images`` = (N, C, H, W) what they must hold. It always checks sizes, structure and labels."""
TIMEOUT = (10, 60)  # seconds to connect, seconds without a byte


class StandInWarning(UserWarning):
    """Built-in data replace a data set that is absent; quality figures are not comparable to anything."""


@dataclass(frozen=True)
class Layout:
    """One way in which a data set is stored: either in one of ``folders`` or in one of ``archives`` (.tar.gz).

    Attributes:
        reader: see :data:`Reader`.
        train, test: the names of the files of each half.
        digests: file name -> official checksum, ``"md5:..."`` or ``"sha256:..."``.
    """

    reader: Reader
    train: tuple[str, ...]
    test: tuple[str, ...]
    folders: tuple[str, ...]
    archives: tuple[str, ...] = ()
    digests: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Published(DatasetInfo):
    """A data set in files. ``urls`` (file name -> address) are downloaded into ``download_folder``."""

    layouts: tuple[Layout, ...] = ()
    urls: dict[str, str] = field(default_factory=dict)
    download_folder: str = "."

    def load(self, search: Search, seed: int, **options: Any) -> Pair:
        """From the first root that has it; else downloaded, or replaced by a stand-in, or a DataError, as asked for."""
        problem = f"not found in {', '.join(str(root) for root in search.roots)}"
        place = _locate(self, search.roots)
        if place is None and search.download:
            try:
                download(self, search.roots[0])
                place = _locate(self, search.roots[:1])
            except Deep500Error as error:
                if not search.stand_in:
                    raise
                problem = str(error)
        if place is not None:
            return _read(self, *place, search.verify)
        if not search.stand_in:
            files = self.layouts[0].archives or self.layouts[0].folders
            raise MissingDataset(
                f"got no data set {self.name!r}: {problem}; expected {files[0]} or another usual layout there; put the "
                "files there, set DATA_ROOT, add --download (download=True), or take built-in data (stand_in=True)"
            )
        message = (
            f"{self.name}: {problem}; built-in STAND-IN data are used, quality figures mean nothing for {self.name}"
        )
        warnings.warn(message, StandInWarning, stacklevel=3)
        return _stand_in(self, search, seed)


def md5_of(names: Sequence[str], digests: str) -> dict[str, str]:
    """For :class:`Layout`: file name -> ``"md5:..."``, from the digests in the order of the names."""
    return {name: f"md5:{digest}" for name, digest in zip(names, digests.split(), strict=True)}


def _locate(info: Published, roots: Sequence[Path]) -> tuple[Layout, Path] | None:
    """The first layout of which a file exists, and its folder or archive."""
    for root in roots:
        for layout in info.layouts:
            for folder in layout.folders:
                # any file, not all: an incomplete copy must be an error, not an absent data set
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


def _stand_in(info: Published, search: Search, seed: int) -> Pair:
    """Built-in data with the shape and dtype of an absent data set, marked as stand-in."""
    if info.shape[0] == 3:
        pair = DATASETS["digits32"].load(search, seed)
    else:
        pair = DATASETS["digits"].load(search, seed, size=info.shape[1:])
    for half in pair:
        half.provenance = f"stand-in for {info.name}: {half.provenance}"
        half.name, half.classes, half.stand_in = info.name, info.classes, True
    return pair


def download(data: Published, root: Path, progress: bool = True) -> Path:
    """Fetch the files of a published data set into its usual folder below ``root`` and return that folder.

    Raises:
        DataError: no connection, a refused request, a folder that is not writable, or content with another checksum
            than the official one (which is then deleted).
    """
    folder = root / data.download_folder
    digests = {name: digest for layout in data.layouts for name, digest in layout.digests.items()}
    for name, url in data.urls.items():
        _fetch(data.name, url, digests[name], folder, progress)
    return folder


def _fetch(name: str, url: str, known: str, folder: Path, progress: bool) -> None:
    import pooch
    import requests

    if not url.startswith("https://"):
        raise DataError(f"{name}: got address {url}; expected https; do not download data without encryption")
    fetcher: Any = pooch.HTTPDownloader(timeout=TIMEOUT, progressbar=progress)
    try:
        pooch.retrieve(url, known_hash=known, fname=url.rpartition("/")[2], path=folder, downloader=fetcher)
    except (requests.RequestException, OSError) as error:
        raise DataError(
            f"{name}: got no download of {url} ({type(error).__name__}: {error}); expected a connection and a writable "
            f"folder; put the file into {folder} by hand, or use the stand-in"
        ) from error
    except ValueError as error:  # pooch: the checksum differs; it keeps nothing
        raise DataError(
            f"{name}: got other content than expected from {url} ({error}); expected checksum {known}; "
            "try again later, or get the file elsewhere"
        ) from error
