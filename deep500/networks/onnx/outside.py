"""Large weights in files beside the model: mapped into memory, not read.

A mapping is private (copy-on-write), so a network may be trained in place, and what is not touched is never read. The
file must stay as it is while the network lives.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from deep500.errors import NetworkError

_KINDS = {
    getattr(onnx.TensorProto, kind)
    for kind in ("BFLOAT16", "DOUBLE", "FLOAT", "FLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8")
}
"""Dtypes whose elements lie in files as they lie in memory."""


def check_extent(tensor: onnx.TensorProto, file: Path, where: str) -> None:
    """Refuse an offset or a length of external data that is no number of bytes, or lies beyond the end of its file.

    Args:
        tensor: whose data lie outside.
        file: where they lie; it exists.
        where: how errors call the model.

    Raises:
        NetworkError: naming the tensor, what it says and what the file has.
    """
    name, numbers, size = tensor.name, {"offset": 0, "length": 0}, file.stat().st_size
    for entry in tensor.external_data:
        if entry.key in numbers:
            if not (entry.value.isascii() and entry.value.isdigit() and len(entry.value) < 20):
                raise NetworkError(
                    f"{where}: got {entry.key} {entry.value[:80]!r} for tensor {name!r}; expected complete external "
                    "data, a number of bytes from 0 on: export the model again"
                )
            numbers[entry.key] = int(entry.value)
    if sum(numbers.values()) > size:
        raise NetworkError(
            f"{where}: got tensor {name!r} of {numbers['length']} bytes from {numbers['offset']} on in a file of "
            f"{size}; expected complete external data: copy the whole file, or export the model again"
        )


def map_initializers(graph: onnx.GraphProto, folder: Path, least: int) -> dict[str, np.ndarray]:
    """Map the initializers of more than ``least`` elements that lie in other files; in the graph they stay empty.

    Args:
        graph: is changed: what is mapped no longer points outside.
        folder: the model's. Locations must have been checked.
        least: smaller ones are left to ONNX's own loading.

    Raises:
        ValueError: a length that does not fit the dimensions, or a file that ends too early.
    """
    mapped = {}
    for tensor in graph.initializer if sys.byteorder == "little" else ():
        count = int(np.prod(tensor.dims, dtype=object))
        if tensor.data_location != onnx.TensorProto.EXTERNAL or tensor.data_type not in _KINDS or count <= least:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        length = int(entries.get("length", count * dtype.itemsize))
        if length != count * dtype.itemsize:
            raise ValueError(f"{length} bytes of external data for tensor {tensor.name!r} of {count} {dtype}")
        place, offset = folder / entries["location"], int(entries.get("offset", 0))
        if offset < 0 or offset + length > place.stat().st_size:
            raise ValueError(f"external data of tensor {tensor.name!r} that ends before its {length} bytes")
        array = np.memmap(place, dtype, "c", offset, tuple(tensor.dims))
        mapped[tensor.name] = array.view(np.ndarray)
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    return mapped
