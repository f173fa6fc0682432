"""Large weights in files beside the model: mapped into memory, not read, and written without a second copy.

A mapping is private (copy-on-write), so a network may be trained in place, and what is not touched is never read. The
file must stay as it is while the network lives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from deep500.errors import NetworkError
from deep500.networks import protos

FLAT = {
    getattr(onnx.TensorProto, kind)
    for kind in ("BFLOAT16", "DOUBLE", "FLOAT", "FLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8")
}
"""Dtypes whose elements lie in files as they lie in memory."""
_PAGE = 4096
SMALL = 1024
"""Arrays of up to this many elements stay in the message: they may be operands that decide about shapes."""


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
        if tensor.data_location != onnx.TensorProto.EXTERNAL or tensor.data_type not in FLAT or count <= least:
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


def large_arrays(arrays: Mapping[str, np.ndarray], external: bool | None) -> dict[str, np.ndarray]:
    """The arrays that go into a file of their own: large ones if ``external``, none if not.

    With ``external=None`` that is decided by whether all together are more than a message may hold.
    """
    if external is None:
        external = sum(array.nbytes for array in arrays.values()) > protos.MOST_BYTES
    return {n: a for n, a in arrays.items() if external and a.size > SMALL and _kind(a) in FLAT}


def _kind(array: np.ndarray) -> int:
    return onnx.TensorProto.STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def move_out(
    graph: onnx.GraphProto, arrays: Mapping[str, np.ndarray], order: Sequence[str], location: str
) -> Iterator[memoryview | bytes]:
    """Make inputs of a graph initializers whose data lie elsewhere; returns the file's content, piece by piece.

    Args:
        graph: is changed.
        arrays: by name, inputs of the graph. Each begins on a page of the file, so that runtimes can map it.
        order: names of initializers, first to last.
        location: the file's name, from the model's folder on.
    """
    inputs = [value for value in graph.input if value.name not in arrays]
    tensors, end = {tensor.name: tensor for tensor in graph.initializer}, 0
    for name, array in arrays.items():
        start = -(-end // _PAGE) * _PAGE
        end = start + array.nbytes
        tensor = onnx.TensorProto(name=name, data_type=_kind(array), dims=array.shape)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", str(start)), ("length", str(array.nbytes))):
            tensor.external_data.add(key=key, value=value)
        tensors[name] = tensor
    for field in (graph.input, graph.initializer):
        del field[:]
    graph.input.extend(inputs)
    graph.initializer.extend(tensors.pop(name) for name in order if name in tensors)
    graph.initializer.extend(tensors.values())
    return _content(arrays.values())


def _content(arrays: Iterable[np.ndarray]) -> Iterator[memoryview | bytes]:
    end = 0
    for array in arrays:
        start = -(-end // _PAGE) * _PAGE
        yield b"\0" * (start - end)
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        yield flat.data if sys.byteorder == "little" else flat.reshape(-1, array.itemsize)[:, ::-1].tobytes()
        end = start + array.nbytes
