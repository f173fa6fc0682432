"""Checkpoints: one safetensors file per epoch, arrays as they are, everything else as JSON in the file's header.

Arrays and values are in *one* file so that no crash can separate them. There is no pickle: loading a checkpoint runs
no code. A digest in the header finds altered files.

Arrays are written one at a time. Where no process holds all at once they are read so, too
(:class:`~deep500.tensors.LaterArray`), and the first rank writes each when all have gathered it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from deep500.errors import ResultsError
from deep500.reading import declare, parse, text, validate
from deep500.results.files import checkpoint_places, write_atomic, writing
from deep500.tensors import LaterArray, numpy_dtype

SCHEMA = "deep500-checkpoint-1"
HEADER = declare({"schema": str, "epoch": text("[0-9]{1,9}", "a number of epochs"), "values": str, "digest": str})
"""The texts in a checkpoint's header; ``values`` is JSON."""

FORMATS = {
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    "bool": "BOOL",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
"""The format's names of NumPy's dtypes."""
_LARGE = 2**16
"""Bytes from which on an array is read when it is used, if it may be."""

KEEP = 2
"""Number of newest checkpoints that are kept: if the last one turns out to be damaged there is another."""


def save_checkpoint(
    folder: Path, epoch: int, state: Mapping[str, Any], keep: int = KEEP, gathers_only: bool = False
) -> Path:
    """Write ``epoch-<epoch>.safetensors`` into the folder and remove all but the newest ``keep``.

    Args:
        folder: is made if absent.
        epoch: number of finished epochs.
        state: ``{"arrays": {name: array}, "values": what JSON can hold}``, as ``Trainer.state()`` gives it.
        keep: number of checkpoints to leave.
        gathers_only: whether arrays that all ranks gather together (:class:`~deep500.tensors.LaterArray`) are left out
            here, once they are gathered: another rank writes them.

    Raises:
        ResultsError: the disk is full or not writable; older checkpoints are untouched.
    """
    path = folder / f"epoch-{epoch}.safetensors"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    arrays = {n: a if isinstance(a, LaterArray) else np.asarray(a) for n, a in state["arrays"].items()}
    if gathers_only:
        for name in sorted(name for name, array in arrays.items() if isinstance(array, LaterArray)):
            np.asarray(arrays.pop(name))
    header = {"schema": SCHEMA, "epoch": str(epoch), "values": json.dumps(state["values"])}
    write_atomic(path, lambda file: _write(file, arrays, header))
    for old in list_checkpoints(folder)[:-keep]:
        with writing(old):
            old.unlink(missing_ok=True)
    return path


def _write(file: BinaryIO, arrays: Mapping[str, Any], header: Mapping[str, str]) -> None:
    """Write the format with one array in memory at a time; the digest follows when all were seen."""
    places, end = dict[str, Any](), 0
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):  # aligned
        begin, end = end, end + array.nbytes
        places[name] = {"dtype": FORMATS[array.dtype.name], "shape": list(array.shape), "data_offsets": [begin, end]}
    sha = hashlib.sha256(header["values"].encode("utf-8"))
    blank = "0" * 64
    head = json.dumps({"__metadata__": {**header, "digest": blank}, **places}).encode()
    head += b" " * (-len(head) % 8)
    file.write(len(head).to_bytes(8, "little") + head)
    for name in sorted(arrays):
        file.seek(8 + len(head) + places[name]["data_offsets"][0])
        file.write(_seen(sha, name, np.asarray(arrays[name], order="C")))
    file.seek(8 + head.rindex(f'"digest": "{blank}"'.encode()) + len('"digest": "'))
    file.write(sha.hexdigest().encode())


def load_checkpoint(path: Path, in_turn: bool = False) -> dict[str, Any]:
    """Read a checkpoint back: ``{"arrays": ..., "values": ..., "epoch": int}``.

    Args:
        path: the file.
        in_turn: whether large arrays are checked, but read when they are used
            (:class:`~deep500.tensors.LaterArray`), so that not all are in memory at once.

    Raises:
        ResultsError: it is absent, cut short, altered, or not a checkpoint that Deep500 wrote.
    """
    try:
        length = path.lstat().st_size  # no pipe is waited for, no link followed
        size, places, header = checkpoint_places(path)
        if length != size:
            raise OSError("another length than its header says")
        later = {name: _placed(path, *place) for name, place in places.items()}
        arrays = {n: a if in_turn and a.nbytes > _LARGE else np.asarray(a) for n, a in later.items()}
    except (OSError, ValueError, KeyError) as error:
        raise ResultsError(
            f"{path}: got a file that is no complete safetensors ({error}); expected a checkpoint; "
            "remove it to resume from the one before"
        ) from error
    if header.get("schema") != SCHEMA:
        raise ResultsError(
            f"{path}: got schema {header.get('schema')!r}; expected {SCHEMA!r}: name a checkpoint that this "
            "version of Deep500 wrote, or train again"
        )
    validate(header, HEADER, path)
    sha = hashlib.sha256(header["values"].encode("utf-8"))
    for name in sorted(arrays):
        _seen(sha, name, np.asarray(arrays[name]))
    if sha.hexdigest() != header["digest"]:
        raise ResultsError(
            f"{path}: got content with SHA-256 {sha.hexdigest()}; expected {header['digest']}: the file was altered; "
            "remove it to resume from the one before"
        )
    return {
        "arrays": arrays,
        "values": parse(header["values"].encode("utf-8"), path, odd_numbers=True),
        "epoch": int(header["epoch"]),
    }


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest epoch first; empty if the folder is absent."""
    numbered = [
        (int(match[1]), path)
        for path in folder.glob("epoch-*.safetensors")
        if (match := re.fullmatch(r"epoch-(\d+)\.safetensors", path.name))
    ]
    return [path for _, path in sorted(numbered)]


def _placed(path: Path, word: str, shape: tuple[int, ...], begin: int, end: int) -> LaterArray:
    """The array between two bytes of a file."""
    dtype = numpy_dtype({form: name for name, form in FORMATS.items()}[word])

    def read() -> np.ndarray:
        with path.open("rb") as file:
            file.seek(begin)
            return np.fromfile(file, dtype, math.prod(shape)).reshape(shape)

    array = LaterArray(shape, dtype, read)
    if array.nbytes != end - begin or min(shape, default=0) < 0:
        raise ValueError(f"{shape} of {word} in {end - begin} bytes")
    return array


def _seen(sha: Any, name: str, array: np.ndarray) -> memoryview:
    """The bytes of an array; the digest takes note of it."""
    content = array.reshape(-1).view(np.uint8).data
    sha.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
    sha.update(content)
    return content
