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

_KINDS = {
    getattr(onnx.TensorProto, kind)
    for kind in ("BFLOAT16", "DOUBLE", "FLOAT", "FLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8")
}
"""Dtypes whose elements lie in files as they lie in memory."""


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
