"""The same pictures in nine storages: written, opened by Deep500, and read one by one by plain libraries.

Pixels are what Pillow decodes from the JPEG files, so every storage gives the same ones, bit for bit.
"""

from __future__ import annotations

import io
import os
import struct
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from deep500.training.data.dataset import Dataset, NumpyDataset
from deep500.training.data.files import ImageFolder
from deep500.training.data.formats.arrow import ArrowRows
from deep500.training.data.formats.crc32c import masked
from deep500.training.data.formats.hdf5 import Hdf5Rows
from deep500.training.data.formats.lightning import LmdbRows
from deep500.training.data.formats.records import PerProcess, Records, Rows, Shards
from deep500.training.data.formats.tfrecord import TFRecordRows
from deep500.training.data.formats.webdataset import WebDatasetRows
from recipes.studies.data_latency.decoders import DECODERS, Decode, pillow

NEEDS = {
    "raw": "",
    "JPEG folder": "",
    "PNG folder": "",
    "tar": "",
    "indexed tar": "",
    "TFRecord": "",
    "HDF5": "h5py",
    "Parquet": "pyarrow",
    "LMDB": "lmdb",
}
CLASSES, QUALITY, GROUP = 10, 90, 128


def pictures(count: int, size: int) -> Iterator[bytes]:
    """JPEG files of smooth random pictures with noise on them, which compress about as photographs do."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (size // 8, size // 8, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), dtype=np.float32)
        noisy = (smooth + rng.normal(0, 6, smooth.shape)).clip(0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=QUALITY)
        yield file.getvalue()


def write(folder: Path, count: int, size: int, storages: Sequence[str]) -> None:
    """Write the pictures in the storages whose libraries are there; picture i is of class i % 10."""
    jpegs = list(pictures(count, size))
    pixels = np.stack([pillow(data) for data in jpegs])
    for storage in storages:
        WRITERS[storage](folder / storage.replace(" ", "_"), jpegs, pixels)


def _folder(path: Path, encoded: Sequence[bytes], ending: str) -> None:
    for number, data in enumerate(encoded):
        place = path / f"class{number % CLASSES}" / f"{number:06}.{ending}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


def _tar(path: Path, jpegs: Sequence[bytes], index: bool = False) -> None:
    places = []
    with tarfile.open(path.with_suffix(".tar"), "w") as tar:
        for number, data in enumerate(jpegs):
            for ending, content in (("jpg", data), ("cls", str(number % CLASSES).encode())):
                member = tarfile.TarInfo(f"{number:06}.{ending}")
                member.size = len(content)
                if ending == "jpg":
                    places.append((tar.offset + tarfile.BLOCKSIZE, len(content)))
                tar.addfile(member, io.BytesIO(content))
    if index:
        np.save(path.with_suffix(".npy"), np.array(places))


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes of a protocol buffer."""
    size, length = len(content), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def _example(data: bytes, label: int) -> bytes:
    features = {"input": _field(1, _field(1, data)), "label": _field(3, _field(1, bytes([label])))}
    return _field(1, b"".join(_field(1, _field(1, key.encode()) + _field(2, value)) for key, value in features.items()))


def _tfrecord(path: Path, jpegs: Sequence[bytes]) -> None:
    with path.with_suffix(".tfrecord").open("wb") as file:
        for number, data in enumerate(jpegs):
            record = _example(data, number % CLASSES)
            head = struct.pack("<Q", len(record))
            file.write(head + struct.pack("<I", masked(head)) + record + struct.pack("<I", masked(record)))


def _hdf5(path: Path, pixels: np.ndarray) -> None:
    import h5py

    with h5py.File(path.with_suffix(".h5"), "w") as file:
        file["input"] = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
        file["label"] = np.arange(len(pixels)) % CLASSES


def _parquet(path: Path, jpegs: Sequence[bytes]) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"input": list(jpegs), "label": [number % CLASSES for number in range(len(jpegs))]})
    parquet.write_table(table, path.with_suffix(".parquet"), row_group_size=GROUP, compression="none")


def _lmdb(path: Path, jpegs: Sequence[bytes]) -> None:
    import lmdb

    with lmdb.open(str(path), map_size=1 << 32) as table, table.begin(write=True) as target:
        for number, data in enumerate(jpegs):
            target.put(f"{number:06}".encode(), bytes([number % CLASSES]) + data)


WRITERS: dict[str, Callable[[Path, list[bytes], np.ndarray], None]] = {
    "raw": lambda path, jpegs, pixels: np.save(path.with_suffix(".npy"), pixels.transpose(0, 3, 1, 2)),
    "JPEG folder": lambda path, jpegs, pixels: _folder(path, jpegs, "jpg"),
    "PNG folder": lambda path, jpegs, pixels: _folder(path, [_png(image) for image in pixels], "png"),
    "tar": lambda path, jpegs, pixels: _tar(path, jpegs),
    "indexed tar": lambda path, jpegs, pixels: _tar(path, jpegs, index=True),
    "TFRecord": lambda path, jpegs, pixels: _tfrecord(path, jpegs),
    "HDF5": lambda path, jpegs, pixels: _hdf5(path, pixels),
    "Parquet": lambda path, jpegs, pixels: _parquet(path, jpegs),
    "LMDB": lambda path, jpegs, pixels: _lmdb(path, jpegs),
}
ENCODED = tuple(name for name in NEEDS if name not in ("raw", "HDF5"))


def files_of(folder: Path, storage: str) -> list[Path]:
    """The files of a storage."""
    base = folder / storage.replace(" ", "_")
    if base.is_dir():
        return sorted(path for path in base.rglob("*") if path.is_file())
    return sorted(path for path in folder.iterdir() if path.stem == base.name)


def forget(files: Sequence[Path]) -> bool:
    """Ask the kernel to drop files from its cache, without privileges; whether it did."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with files[0].open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


# -- opened by Deep500 -----------------------------------------------------------------------------------------------
class IndexedTar(Rows):
    """Pictures in a tar file whose places lie in a file beside it, so that no pass over it is needed."""

    def __init__(self, path: Path) -> None:
        self.where, self._shards = str(path), Shards([path])
        self._places = np.load(path.with_suffix(".npy"))

    def __len__(self) -> int:
        return len(self._places)

    def read(self, column: str, positions: np.ndarray) -> Sequence[Any]:
        if column == "cls":
            return [int(position) % CLASSES for position in positions]
        return [self._shards.read(0, *map(int, self._places[position])) for position in positions]

    def update(self, sha: Any) -> None:
        sha.update(self._places.tobytes())


def dataset(folder: Path, storage: str, decoder: str, size: int) -> Dataset:
    """A storage as a data set of Deep500."""
    base, shape = folder / storage.replace(" ", "_"), (3, size, size)
    decode = None if decoder == "Pillow" else DECODERS[decoder][1]
    if storage == "raw":
        pixels = np.load(base.with_suffix(".npy"), mmap_mode="r")
        return NumpyDataset(pixels, "input", np.arange(len(pixels)) % CLASSES, scale=255)
    if storage.endswith("folder"):
        return ImageFolder(base, shape, decoder=decode)
    if storage == "HDF5":
        return Records(Hdf5Rows(base.with_suffix(".h5"), ["input", "label"]), "input", "label", scale=255)
    tar = base.with_suffix(".tar")
    rows: dict[str, tuple[Callable[[], Rows], str, str]] = {
        "tar": (lambda: WebDatasetRows(tar, ["jpg", "cls"]), "jpg", "cls"),
        "indexed tar": (lambda: IndexedTar(tar), "jpg", "cls"),
        "TFRecord": (lambda: TFRecordRows(base.with_suffix(".tfrecord"), ["input", "label"]), "input", "label"),
        "Parquet": (lambda: ArrowRows(base.with_suffix(".parquet"), ["input", "label"]), "input", "label"),
        "LMDB": (lambda: LmdbRows(base, ["input", "label"], _split), "input", "label"),
    }
    make, column, label = rows[storage]
    return Records(make(), column, label, shape=shape, decoder=decode)


def _split(value: bytes) -> dict[str, Any]:
    return {"label": value[0], "input": value[1:]}


# -- read one by one, as users of other loaders do -------------------------------------------------------------------
class Reader:
    """Picture ``i`` of a storage as uint8 (height, width, channels), by its usual library; opened in every process."""

    def __init__(self, folder: Path, storage: str, decoder: str) -> None:
        self.base, self.storage = folder / storage.replace(" ", "_"), storage
        self.decode: Decode = DECODERS[decoder][1]
        self._opened = PerProcess(partial(_open, self.base, storage))
        self.count = _open(self.base, storage)[0]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> np.ndarray:
        value = self._opened()[1](int(number))
        return value if isinstance(value, np.ndarray) else self.decode(value)


def _open(base: Path, storage: str) -> tuple[int, Callable[[int], Any]]:
    """Number of pictures, and what reads one: bytes, or pixels where nothing is encoded."""
    if storage == "raw":
        pixels = np.load(base.with_suffix(".npy"), mmap_mode="r")
        return len(pixels), lambda number: np.array(pixels[number].transpose(1, 2, 0))
    if storage.endswith("folder"):
        paths = sorted(base.rglob("*.*"))
        return len(paths), lambda number: paths[number].read_bytes()
    if storage == "HDF5":
        import h5py

        array = h5py.File(base.with_suffix(".h5"))["input"]
        return len(array), lambda number: array[number].transpose(1, 2, 0)
    if storage == "Parquet":
        from pyarrow import parquet

        column = parquet.read_table(base.with_suffix(".parquet"), columns=["input"])["input"]
        return len(column), lambda number: column[number].as_py()
    if storage == "LMDB":
        import lmdb

        table = lmdb.open(str(base), readonly=True, lock=False, readahead=False)
        read = table.begin()
        return table.stat()["entries"], lambda number: read.get(f"{number:06}".encode())[1:]
    path = base.with_suffix(".tar")
    if storage == "indexed tar":
        places = np.load(base.with_suffix(".npy")).tolist()
    else:
        with tarfile.open(path, "r:") as tar:
            places = [(member.offset_data, member.size) for member in tar if member.name.endswith("jpg")]
    shards = Shards([path])
    return len(places), lambda number: shards.read(0, *places[number])
