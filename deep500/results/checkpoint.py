"""Checkpoints: one safetensors file per epoch, arrays as they are, everything else as JSON in the file's header.

Arrays and values are in *one* file so that no crash can separate them. There is no pickle: loading a checkpoint runs
no code. A digest in the header finds altered files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import ResultsError
from deep500.reading import declare, parse, text, validate
from deep500.results.files import checkpoint_size, write_atomic, writing

SCHEMA = "deep500-checkpoint-1"
HEADER = declare({"schema": str, "epoch": text("[0-9]{1,9}", "a number of epochs"), "values": str, "digest": str})
"""The texts in a checkpoint's header; ``values`` is JSON."""

KEEP = 2
"""Number of newest checkpoints that are kept: if the last one turns out to be damaged there is another."""


def save_checkpoint(folder: Path, epoch: int, state: Mapping[str, Any], keep: int = KEEP) -> Path:
    """Write ``epoch-<epoch>.safetensors`` into the folder and remove all but the newest ``keep``.

    Args:
        folder: is made if absent.
        epoch: number of finished epochs.
        state: ``{"arrays": {name: array}, "values": what JSON can hold}``, as ``Trainer.state()`` gives it.
        keep: number of checkpoints to leave.

    Raises:
        ResultsError: the disk is full or not writable; older checkpoints are untouched.
    """
    from safetensors.numpy import save

    arrays = {name: np.array(value, order="C") for name, value in state["arrays"].items()}  # 0-d ones stay arrays
    values = json.dumps(state["values"])
    header = {"schema": SCHEMA, "epoch": str(epoch), "values": values, "digest": _digest(arrays, values)}
    path = folder / f"epoch-{epoch}.safetensors"
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_atomic(path, save(arrays, metadata=header))
    for old in list_checkpoints(folder)[:-keep]:
        with writing(old):
            old.unlink(missing_ok=True)
    return path


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint back: ``{"arrays": ..., "values": ..., "epoch": int}``.

    Raises:
        ResultsError: it is absent, cut short, altered, or not a checkpoint that Deep500 wrote.
    """
    from safetensors import SafetensorError, safe_open

    try:
        if path.lstat().st_size != checkpoint_size(path):  # no pipe is waited for, no link followed
            raise OSError("another length than its header says")
        with safe_open(path, framework="np") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # no dict: it has no other iterator
    except (OSError, SafetensorError, TypeError, ValueError, KeyError) as error:  # dtypes that NumPy lacks, too
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
    digest = _digest(arrays, header["values"])
    if digest != header["digest"]:
        raise ResultsError(
            f"{path}: got content with SHA-256 {digest}; expected {header['digest']}: the file was altered; "
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


def _digest(arrays: Mapping[str, np.ndarray], values: str) -> str:
    sha = hashlib.sha256(values.encode("utf-8"))
    for name in sorted(arrays):
        array = arrays[name]
        sha.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()
