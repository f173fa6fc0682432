"""Data that need no download: scikit-learn's real scanned digits, plain and on coloured backgrounds.

``digits`` are 1,797 handwritten digits of 8x8 pixels in 17 grey levels (E. Alpaydin and C. Kaynak, UCI repository, test
half). ``digits32`` are the same digits, enlarged and blended over patches of scikit-learn's two photographs: the shape
and dtype of CIFAR-10 in 1,797 images. Both use one fixed split, so no digit is in both halves of either.

The files are read where scikit-learn keeps them: to import it takes a second, longer than most runs on them need.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import numpy as np

from deep500.errors import MissingDataset
from deep500.training.data.augmentation import resize
from deep500.training.data.catalog import BuiltIn, register_dataset
from deep500.training.data.dataset import NumpyDataset

LICENCE = "UCI's optical recognition of handwritten digits (Alpaydin and Kaynak 1998), CC BY 4.0"
SPLIT_SEED = 500
TEST_FRACTION = 0.2
_DIGIT, _IMAGE = 26, 32  # pixels of an enlarged digit and of the image that it is put into

Pair = tuple[NumpyDataset, NumpyDataset]


@cache
def scans() -> tuple[np.ndarray, np.ndarray]:
    """Images (1797, 8, 8) uint8 from 0 to 16, and their digits."""
    rows = np.loadtxt(_file("data/digits.csv.gz"), np.uint8, delimiter=",")  # the pixels of a scan, and its digit
    return rows[:, :-1].reshape(-1, 8, 8), rows[:, -1].astype(np.int64)


def _file(name: str) -> Path:
    """A file of scikit-learn's data sets; raises MissingDataset where there is none."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise MissingDataset("got no scikit-learn, whose files hold the digits; expected it: pip install scikit-learn")
    path = Path(package.origin).with_name("datasets") / name
    if not path.is_file():
        raise MissingDataset(f"got no {path}; expected a file of scikit-learn: install it anew")
    return path


@cache
def split() -> tuple[np.ndarray, np.ndarray]:
    """Positions of the training and of the test digits: 80/20 in every class, always the same."""
    _, labels = scans()
    rng = np.random.default_rng(SPLIT_SEED)
    test = []
    for label in range(10):
        members = rng.permutation(np.flatnonzero(labels == label))
        test.append(members[: round(TEST_FRACTION * len(members))])
    positions = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(labels)), positions), positions


def digits(seed: int = 0, size: int | tuple[int, int] | None = None) -> Pair:
    """Training and test half of the scanned digits, float32 (1, 8, 8) in [0, 1]; ``size`` resizes them bilinearly.

    ``seed`` is accepted for uniformity with :func:`digits32`; nothing here is random.
    """
    images, labels = scans()
    pixels: np.ndarray = images[:, None]
    scale: float | None = 16
    where = "scikit-learn's digits (1,797 real scans)"
    if size is not None:
        pixels, scale = resize(pixels / np.float32(16), size), None
        where += f", resized to {pixels.shape[2]}x{pixels.shape[3]}"
    return tuple(  # type: ignore[return-value]
        NumpyDataset(
            pixels[half], "input", labels[half], "label", name="digits", classes=10, scale=scale, provenance=where
        )
        for half in split()
    )


def digits32(seed: int = 0) -> Pair:
    """Training and test half of the digits on photographs, uint8 inside, float32 (3, 32, 32) in [0, 1] outside.

    ``seed`` decides position, background and ink of every digit.
    """
    images, labels = scans()
    pixels = _blend(images / np.float32(16), np.random.default_rng(seed))
    where = "scikit-learn's digits blended over patches of its photographs china.jpg and flower.jpg"
    return tuple(  # type: ignore[return-value]
        NumpyDataset(
            pixels[half],
            "input",
            labels[half],
            "label",
            name="digits32",
            classes=10,
            scale=255,
            provenance=f"{where} (seed {seed})",
        )
        for half in split()
    )


def _blend(scans: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(N, 3, 32, 32) uint8: a random patch, with ink that is light on dark patches and dark on light ones."""
    count = len(scans)
    patches = _patches(count, rng)
    light = patches.mean(axis=(1, 2, 3)) < 0.5
    ink = rng.uniform(0, 0.25, (count, 3, 1, 1)).astype(np.float32)
    ink = np.where(light[:, None, None, None], 1 - ink, ink)
    spare = _IMAGE - _DIGIT
    top, left = rng.integers(0, spare + 1, (2, count))
    canvas = np.pad(resize(scans, _DIGIT), ((0, 0), (spare, spare), (spare, spare)))
    windows = np.lib.stride_tricks.sliding_window_view(canvas, (_IMAGE, _IMAGE), axis=(1, 2))
    cover = 0.9 * windows[np.arange(count), spare - top, spare - left][:, None]
    return np.rint(255 * (patches * (1 - cover) + ink * cover)).astype(np.uint8)


def _patches(count: int, rng: np.random.Generator) -> np.ndarray:
    from PIL import Image

    names = "images/china.jpg", "images/flower.jpg"
    photos = np.stack([np.asarray(Image.open(_file(name))) for name in names])  # (2, 427, 640, 3) uint8
    windows = np.lib.stride_tricks.sliding_window_view(photos, (_IMAGE, _IMAGE), axis=(1, 2))
    which, row, column = (rng.integers(0, extent, count) for extent in windows.shape[:3])
    return windows[which, row, column] / np.float32(255)  # the windows' axes: photo, row, column, channel, y, x


register_dataset(
    BuiltIn(
        "digits",
        10,
        (1, 8, 8),
        (1438, 359),
        "scikit-learn's real scanned digits, 8x8 grey",
        licence=LICENCE,
        make=digits,
    )
)
register_dataset(
    BuiltIn(
        "digits32",
        10,
        (3, 32, 32),
        (1438, 359),
        "the same digits over photographs, 32x32 colour",
        licence=f"{LICENCE}; photographs CC BY 2.0, danielbuechele and vultilion at Flickr",
        make=digits32,
    )
)
