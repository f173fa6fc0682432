"""Writes data sets in their official formats and sizes, with other content, for the tests of their readers."""

from __future__ import annotations

import gzip
import struct
import tarfile
from pathlib import Path

import numpy as np

COUNTS = {"train": 50_000, "test": 10_000}
_BATCHES = [f"data_batch_{i}" for i in range(1, 6)]


def cifar_arrays(classes: int, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """uint8 (n, 3072) and labels for both halves; cheap bytes, but different in every row."""
    rng = np.random.default_rng(seed)
    tile = rng.integers(0, 256, 4096, dtype=np.uint8)
    made = {}
    for half, count in COUNTS.items():
        pixels = np.lib.stride_tricks.sliding_window_view(tile, 3072)[np.arange(count) % 1000].copy()
        pixels[:, :4] = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 4)
        made[half] = pixels, rng.integers(0, classes, count)
    return made


def write_cifar_binary(root: Path, classes: int, arrays: dict[str, tuple[np.ndarray, np.ndarray]]) -> Path:
    """``cifar-10-batches-bin`` or ``cifar-100-binary`` below ``root``."""
    folder = root / ("cifar-10-batches-bin" if classes == 10 else "cifar-100-binary")
    folder.mkdir(parents=True)
    for half, (pixels, labels) in arrays.items():
        head = [labels] if classes == 10 else [labels // 5, labels]  # coarse, fine
        records = np.concatenate([np.stack(head, 1).astype(np.uint8), pixels], axis=1)
        if classes == 100:
            (folder / f"{half}.bin").write_bytes(records.tobytes())
        else:
            names = _BATCHES if half == "train" else ["test_batch"]
            for name, part in zip(names, np.split(records, len(names)), strict=True):
                (folder / f"{name}.bin").write_bytes(part.tobytes())
    return folder


def write_cifar_python(root: Path, classes: int, arrays: dict[str, tuple[np.ndarray, np.ndarray]]) -> Path:
    """``cifar-10-batches-py`` or ``cifar-100-python`` below ``root``, as Python 2 pickled them."""
    folder = root / ("cifar-10-batches-py" if classes == 10 else "cifar-100-python")
    folder.mkdir(parents=True)
    for half, (pixels, labels) in arrays.items():
        names = {"train": _BATCHES, "test": ["test_batch"]}[half] if classes == 10 else [half]
        parts = zip(names, np.split(pixels, len(names)), np.split(labels, len(names)), strict=True)
        for name, part, numbers in parts:
            columns = {"labels": numbers} if classes == 10 else {"fine_labels": numbers, "coarse_labels": numbers // 5}
            (folder / name).write_bytes(python2_pickle(part, columns))
    return folder


def python2_pickle(pixels: np.ndarray, columns: dict[str, np.ndarray]) -> bytes:
    """What Python 2 and the NumPy of its time made of ``{"data": uint8 matrix, name: list of ints ...}``.

    Python 3 cannot write these opcodes any more (strings of bytes), so they are put together by hand, see
    ``python -m pickletools``.
    """

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R" + b"(K\x03" + text("|") + b"NNN"
    dtype += number(-1) + number(-1) + b"K\x00tb"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R"
    shape = number(pixels.shape[0]) + number(pixels.shape[1]) + b"\x86"
    raw = b"T" + struct.pack("<i", pixels.size) + pixels.tobytes()
    array = empty + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"
    lists = b"".join(
        text(name) + b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"
        for name, values in columns.items()
    )
    return b"\x80\x02}(" + text("data") + array + lists + text("batch_label") + text("of the test") + b"u."


def pack(folder: Path, archive: Path) -> Path:
    """Put a folder into a .tar.gz, as the publisher does."""
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(folder, arcname=folder.name)
    return archive


def mnist_arrays(seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """uint8 (n, 28, 28) and labels for both halves (60,000 and 10,000)."""
    rng = np.random.default_rng(seed)
    return {
        half: (
            np.resize(rng.integers(0, 256, 100_003, dtype=np.uint8), (count, 28, 28)),
            rng.integers(0, 10, count, dtype=np.uint8),
        )
        for half, count in (("train", 60_000), ("test", 10_000))
    }


def write_idx(folder: Path, arrays: dict[str, tuple[np.ndarray, np.ndarray]], zipped: bool = True) -> Path:
    """The four IDX files of MNIST."""
    folder.mkdir(parents=True)
    for half, (pixels, labels) in arrays.items():
        prefix = "train" if half == "train" else "t10k"
        for name, array in ((f"{prefix}-images-idx3-ubyte", pixels), (f"{prefix}-labels-idx1-ubyte", labels)):
            head = np.array([0x800 + array.ndim, *array.shape], dtype=">u4").tobytes()
            content = head + array.astype(np.uint8).tobytes()
            path = folder / (f"{name}.gz" if zipped else name)
            path.write_bytes(gzip.compress(content, 1, mtime=0) if zipped else content)
    return folder
