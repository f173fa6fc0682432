"""Readers of the formats in which image data sets are published: CIFAR binary, CIFAR Python, IDX, Keras npz.

A reader is ``reader(files, images, classes) -> (uint8 (N, C, H, W), int64 (N,))``, with ``files`` the raw files of one
half in order and ``images`` = (N, C, H, W) what they must hold. Sizes, structure and labels are always checked.
"""

from __future__ import annotations

import io
import pickle
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deep500.training.data.dataset import check_labels
from deep500.training.data.rawfile import RawFile

Shape4 = tuple[int, int, int, int]
Arrays = tuple[np.ndarray, np.ndarray]
Reader = Callable[[Sequence[RawFile], Shape4, int], Arrays]

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
    records = np.concatenate([np.frombuffer(one.data, np.uint8).reshape(-1, head + pixels) for one in files])
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
