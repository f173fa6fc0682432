"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009): where their files lie, their checksums, and their two formats."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from deep500.training.data.catalog import register_dataset
from deep500.training.data.dataset import check_labels
from deep500.training.data.published import Arrays, Layout, Published, Shape4, md5_of
from deep500.training.data.rawfile import RawFile

# What reading a damaged pickle may end in; the opcodes index lists, look up names, call constructors
_PICKLE_ERRORS = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)


def read_cifar_binary(files: Sequence[RawFile], images: Shape4, classes: int) -> Arrays:
    """Records of label bytes (one; for CIFAR-100 a coarse, then the fine one) and 3,072 pixel bytes, plane by plane."""
    head, pixels = (1 if classes <= 10 else 2), int(np.prod(images[1:]))
    size = images[0] // len(files) * (head + pixels)
    for file in files:
        if len(file.data) != size:
            raise file.error(f"{len(file.data)} bytes", f"{size} bytes: {images[0] // len(files)} records")
    records = np.concatenate([np.frombuffer(file.data, np.uint8).reshape(-1, head + pixels) for file in files])
    labels = records[:, head - 1].astype(np.int64)
    for file, part in zip(files, np.split(labels, len(files)), strict=True):
        check_labels(part, classes, file.where)
    return records[:, head:].reshape(images), labels


def read_cifar_python(files: Sequence[RawFile], images: Shape4, classes: int) -> Arrays:
    """Pickled dictionaries with ``data`` uint8 (n, 3072) and ``labels`` (CIFAR-100: ``fine_labels``).

    Only NumPy arrays, lists, bytes and numbers can be in them: any other name in the pickle is refused.
    """
    rows, per_file = int(np.prod(images[1:])), images[0] // len(files)
    key = "labels" if classes <= 10 else "fine_labels"
    pixels, labels = [], []
    for file in files:
        content = _unpickle(file)
        data, numbers = content.get("data"), content.get(key)
        if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.shape == (per_file, rows)):
            got = f"dtype {data.dtype}, shape {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
            raise file.error(f"'data' as {got}", f"uint8 ({per_file}, {rows})")
        if not isinstance(numbers, list) or len(numbers) != per_file or not all(type(n) is int for n in numbers):
            raise file.error(f"{key!r} as {type(numbers).__name__}", f"a list of {per_file} integers")
        pixels.append(data)
        labels.append(np.asarray(numbers, dtype=np.int64))
        check_labels(labels[-1], classes, file.where)
    return np.concatenate(pixels).reshape(images), np.concatenate(labels)


def _unpickle(file: RawFile) -> dict[str, Any]:
    try:
        content = _Unpickler(io.BytesIO(file.data), encoding="bytes").load()
    except _PICKLE_ERRORS as error:
        raise file.error(f"a pickle that cannot be read ({error})", "a complete one of arrays and lists") from error
    if not isinstance(content, dict):
        raise file.error(f"a pickled {type(content).__name__}", "a dictionary")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in content.items()}


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """Stands for ``_codecs.encode``, by which Python 3 writes bytes into protocol 2 pickles."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not allowed")
    return text.encode("latin1")


def _allowed() -> dict[tuple[str, str], Any]:
    sample = np.empty(1)
    rebuild, from_buffer = sample.__reduce__()[0], sample.__reduce_ex__(5)[0]
    table: dict[tuple[str, str], Any] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _latin1,
    }
    for package in ("numpy.core", "numpy._core"):
        table[f"{package}.multiarray", "_reconstruct"] = rebuild
        table[f"{package}.numeric", "_frombuffer"] = from_buffer
    return table


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        allowed = _allowed().get((module, name))
        if allowed is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which data have no need of")
        return allowed


_KRIZ = "https://www.cs.toronto.edu/~kriz"
_PYTHON_ARCHIVE = "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))

_LICENCE = "none stated; the authors ask that the report of Krizhevsky (2009) is cited"

CIFAR10 = register_dataset(
    Published(
        "cifar10",
        10,
        (3, 32, 32),
        (50_000, 10_000),
        "natural images, 32x32 colour (Krizhevsky 2009)",
        licence=_LICENCE,
        layouts=(
            Layout(
                read_cifar_binary,
                tuple(f"{name}.bin" for name in _BATCHES),
                ("test_batch.bin",),
                ("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10"),
                ("cifar-10-binary.tar.gz",),
                md5_of(("cifar-10-binary.tar.gz",), "c32a1d4ab5d03f1284b67883e8d87530"),
            ),
            Layout(
                read_cifar_python,
                _BATCHES,
                ("test_batch",),
                (
                    "cifar-10-batches-py",
                    "cifar10/cifar-10-batches-py",
                    "cifar-10-batches-py-target/cifar-10-batches-py",
                ),
                ("cifar-10-python.tar.gz", "cifar-10-batches-py.tar.gz"),
                {
                    **md5_of(
                        (*_BATCHES, "test_batch"),
                        "c99cafc152244af753f735de768cd75f d4bba439e000b95fd0a9bffe97cbabec "
                        "54ebc095f3ab1f0389bbae665268c751 634d18415352ddfa80567beed471001a "
                        "482c414d41f54cd18b22e5b47cb7c3cb 40351d587109b95175f43aff81a1287e",
                    ),
                    "cifar-10-python.tar.gz": _PYTHON_ARCHIVE,
                    "cifar-10-batches-py.tar.gz": _PYTHON_ARCHIVE,
                },
            ),
        ),
        urls={"cifar-10-binary.tar.gz": f"{_KRIZ}/cifar-10-binary.tar.gz"},
    )
)

CIFAR100 = register_dataset(
    Published(
        "cifar100",
        100,
        (3, 32, 32),
        (50_000, 10_000),
        "natural images, 32x32 colour, fine labels (Krizhevsky 2009)",
        licence=_LICENCE,
        layouts=(
            Layout(
                read_cifar_binary,
                ("train.bin",),
                ("test.bin",),
                ("cifar-100-binary", "cifar100/cifar-100-binary", "cifar100"),
                ("cifar-100-binary.tar.gz",),
                md5_of(("cifar-100-binary.tar.gz",), "03b5dce01913d631647c71ecec9e9cb8"),
            ),
            Layout(
                read_cifar_python,
                ("train",),
                ("test",),
                ("cifar-100-python", "cifar100/cifar-100-python", "cifar-100-python-target/cifar-100-python"),
                ("cifar-100-python.tar.gz",),
                md5_of(
                    ("cifar-100-python.tar.gz", "train", "test"),
                    "eb9058c3a382ffc7106e4002c42a8d85 16019d7e3df5f24257cddd939b257f8d "
                    "f0ef6b0ae62326f3e7ffdfab6717acfc",
                ),
            ),
        ),
        urls={"cifar-100-binary.tar.gz": f"{_KRIZ}/cifar-100-binary.tar.gz"},
    )
)
