"""Sharded checkpoints by ``torch.distributed.checkpoint``: every rank writes the rows that it has, as safetensors
files, and any number of ranks reads them, as does PyTorch alone::

    state = {"fc1.weight": torch.empty(128, 64)}
    torch.distributed.checkpoint.load(state, storage_reader=HuggingFaceStorageReader(folder))

Parameters have their own names, a slot of the optimizer is ``optimizer/<slot>/<parameter>``. An index beside the files
says what there is, and is written last: without it, or with a file missing or cut, nothing is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from deep500.errors import ResultsError
from deep500.frameworks.pytorch.dtypes import NAMES, torch_dtype
from deep500.reading import declare, number, read_json, text, validate, word
from deep500.results.files import write_atomic, writing

INDEX = "checkpoint.json"
SCHEMA = "deep500-sharded-1"
_FORMAT = declare(
    {
        "schema": word(SCHEMA),
        "ranks": number(1, 2**31, whole=True),
        "files": {str: number(0, 2**62, whole=True)},
        "tensors": {str: [(word(*map(str, NAMES.values())), number(0, 2**62, whole=True))]},
        "numbers": {str: float},
    }
)
FILE = text(r"[\w.-]+\.safetensors", "the name of a safetensors file")
_RANK = re.compile(r"shard-(\d+)-")


class PendingCheckpoint:
    """A checkpoint on its way to files; :meth:`wait` until it is complete, on all ranks together."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish: Callable[[], None] | None = finish

    def wait(self) -> None:
        """Return when the files and their index are there."""
        if self._finish is not None:
            self._finish()
            self._finish = None


def save(
    engine: Any, tensors: Mapping[str, Any], numbers: Mapping[str, float], folder: Path, asynchronous: bool
) -> PendingCheckpoint:
    """Write what the ranks of an engine have; all of them call it together.

    Args:
        engine: whose ranks write.
        tensors: a ``DTensor``, or a tensor that is alike on every rank, by name.
        numbers: for the index.
        folder: is made; what it held of an earlier checkpoint is no longer valid.
        asynchronous: whether tensors are copied and written by a thread, while training goes on.
    """
    comm = engine.comm
    with writing(folder):
        if comm.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / INDEX).unlink(missing_ok=True)
            for path in folder.glob("*.safetensors"):
                path.unlink()
    comm.barrier()
    writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
    described = {name: [NAMES[tensor.dtype], *tensor.shape] for name, tensor in tensors.items()}

    def finish() -> None:
        if future is not None:
            future.result()
        comm.barrier()
        if comm.rank == 0:
            files = {path.name: path.stat().st_size for path in sorted(folder.glob("*.safetensors"))}
            index = {"schema": SCHEMA, "ranks": comm.size, "files": files, "tensors": described, "numbers": numbers}
            write_atomic(folder / INDEX, json.dumps(index, indent=1).encode())
        comm.barrier()

    future: Any = None
    if not asynchronous:
        dcp.save(dict(tensors), storage_writer=writer, process_group=engine.group)
        finish()
        return PendingCheckpoint(lambda: None)
    if engine.saving_group is None:  # collectives of the thread must not mix with those of training
        engine.saving_group = dist.new_group(backend="gloo")
    future = dcp.async_save(dict(tensors), storage_writer=writer, process_group=engine.saving_group)
    return PendingCheckpoint(finish)


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a checkpoint whose files are all there, and whole.

    Raises:
        ResultsError: it is absent or no index, or a file is missing or cut: which, and of which rank.
    """
    place = folder / INDEX
    if not place.is_file():
        raise ResultsError(
            f"{folder}: got no {INDEX}, which is written last; expected a complete checkpoint: take an earlier one"
        )
    index: dict[str, Any] = read_json(place, _FORMAT)
    for name, size in index["files"].items():
        validate(name, FILE, place)
        file, shard = folder / name, _RANK.match(name)
        whose = f", the shard of rank {int(shard[1]) - 1} of {index['ranks']}" if shard else ""
        if not file.is_file():
            raise ResultsError(f"{file}: got no file{whose}; expected {size} bytes: copy it back, or take another")
        if file.stat().st_size != size:
            raise ResultsError(
                f"{file}: got {file.stat().st_size} bytes{whose}; expected {size}: it was cut; copy it again, or "
                "take another checkpoint"
            )
    return index


def load(folder: Path, tensors: Mapping[str, Any], group: Any = None) -> None:
    """Fill tensors, which may be parts of ranks, from a checkpoint whose index was read."""
    reader = dcp.HuggingFaceStorageReader(str(folder))
    dcp.load(dict(tensors), storage_reader=reader, process_group=group, no_dist=group is None)


def read(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """All arrays of a checkpoint by name, on one process, and its numbers; raises as :func:`read_index` does."""
    index = read_index(folder)
    tensors = {n: torch.empty(shape, dtype=torch_dtype(dtype)) for n, (dtype, *shape) in index["tensors"].items()}
    load(folder, tensors)
    return {name: tensor.numpy() for name, tensor in tensors.items()}, index["numbers"]
