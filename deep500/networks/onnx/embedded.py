"""Large weights inside a model's file: read straight into arrays, so that no message ever holds a second copy of them.

An ONNX file is one protobuf message, whose parts begin with their number and their length (protobuf's encoding guide).
What is walked here is where the initializers of the main graph begin and end; everything else stays as it is and is
parsed by ONNX. They are read and not mapped: a file may be written anew while its network lives, which would end a
process that has it mapped.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from onnx import helper

from deep500.networks.onnx.outside import FLAT

LEAST_FILE = 2**20
"""Bytes; smaller files are read as one message."""
LEAST = 2**14
"""Bytes of a tensor; smaller ones stay in the message."""

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_GRAPH = 7  # of ModelProto
_INITIALIZER = 5  # of GraphProto
_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9  # of TensorProto
_NOT_RAW = {3, 4, 5, 6, 7, 10, 11, 13, 14}  # a segment, other fields of data, data elsewhere


class Unusual(Exception):
    """Not laid out as writers do; ONNX's own parser judges the file then."""


class Field(NamedTuple):
    """A part of a message: number, wire type, its value if that is a number, and where it, and its content, lie."""

    number: int
    kind: int
    value: int
    begin: int
    content: int
    end: int


def without_weights(
    path: Path, least_file: int = LEAST_FILE, least: int = LEAST
) -> tuple[bytes, dict[str, np.ndarray]]:
    """The bytes of a model whose large initializers have no data, and these as arrays by name.

    Args:
        path: of the model.
        least_file: a smaller file is returned as it is.
        least: tensors of fewer bytes keep their data.

    Raises:
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    if size < least_file or sys.byteorder != "little":
        return path.read_bytes(), {}
    with path.open("rb") as file:
        try:
            return _split(file, size, least)
        except (Unusual, ValueError):  # ValueError: a name that is no text, dimensions that no array has
            file.seek(0)
            return file.read(), {}


def _split(file: BinaryIO, size: int, least: int) -> tuple[bytes, dict[str, np.ndarray]]:
    whole, arrays = io.BytesIO(), dict[str, np.ndarray]()
    graphs = 0
    for part in fields(file, 0, size):
        if part.number != _GRAPH or part.kind != _BYTES:
            whole.write(_read(file, part.begin, part.end))
            continue
        graphs += 1
        graph = io.BytesIO()
        for field in fields(file, part.content, part.end):
            large = field.number == _INITIALIZER and field.kind == _BYTES and field.end - field.content >= least
            taken = _take(file, field, least) if large else None
            if taken is None:
                graph.write(_read(file, field.begin, field.end))
                continue
            rest, name, array = taken
            if name in arrays:
                raise Unusual
            arrays[name] = array
            graph.write(tag(_INITIALIZER, len(rest)) + rest)
        whole.write(tag(_GRAPH, graph.tell()) + graph.getbuffer())
    if graphs > 1:  # protobuf would merge them
        raise Unusual
    return whole.getvalue(), arrays


def _take(file: BinaryIO, tensor: Field, least: int) -> tuple[bytes, str, np.ndarray] | None:
    """A tensor without its data, its name and its array; None if it has none that lie as an array does."""
    rest, raw, dims, kind, name = io.BytesIO(), list[Field](), list[int](), 0, b""
    for field in fields(file, tensor.content, tensor.end):
        if field.number in _NOT_RAW:
            return None
        if field.number == _RAW:
            raw.append(field)
            continue
        content = _read(file, field.begin, field.end)
        rest.write(content)
        if field.number == _DIMS:
            dims += [field.value] if field.kind == _VARINT else _packed(content[field.content - field.begin :])
        elif field.number == _TYPE:
            kind = field.value
        elif field.number == _NAME:
            name = content[field.content - field.begin :]
    if len(raw) != 1 or kind not in FLAT or raw[0].end - raw[0].content < least:
        return None
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    count = int(np.prod(dims, dtype=object))
    if count * dtype.itemsize != raw[0].end - raw[0].content:
        return None
    file.seek(raw[0].content)
    array = np.fromfile(file, np.uint8, count * dtype.itemsize).view(dtype).reshape(dims)
    return rest.getvalue(), name.decode("utf-8"), array


def fields(file: BinaryIO, begin: int, end: int) -> Iterator[Field]:
    """The parts of a message that lies in a file.

    Raises:
        Unusual: it is not laid out as writers do.

    Example:
        >>> [(part.number, part.value) for part in fields(io.BytesIO(bytes([8, 10, 16, 3])), 0, 4)]
        [(1, 10), (2, 3)]
    """
    while begin < end:
        tag, content = _varint(file, begin)
        number, kind, value = tag >> 3, tag & 7, 0
        if kind == _VARINT:
            value, after = _varint(file, content)
        elif kind == _BYTES:
            length, content = _varint(file, content)
            after = content + length
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            after = content + (8 if kind == _EIGHT_BYTES else 4)
        else:
            raise Unusual
        if after > end or number == 0:
            raise Unusual
        yield Field(number, kind, value, begin, content, after)
        begin = after


def _varint(file: BinaryIO, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, the least first, and where it ends."""
    file.seek(place)
    return _number(file.read(10), place)


def _number(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(content):
        value |= (byte & 127) << 7 * count
        if byte < 128:
            return value, place + count + 1
    raise Unusual


def _packed(content: bytes) -> list[int]:
    numbers, place = [], 0
    while place < len(content):
        number, place = _number(content[place : place + 10], place)
        numbers.append(number)
    return numbers


def tag(number: int, length: int) -> bytes:
    """How a part of so many bytes begins.

    Example:
        >>> list(tag(7, 300))
        [58, 172, 2]
    """
    coded = bytearray()
    for value in (number << 3 | _BYTES, length):
        rest = value
        while rest > 127:
            coded.append(rest & 127 | 128)
            rest >>= 7
        coded.append(rest)
    return bytes(coded)


def _read(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    content = file.read(end - begin)
    if len(content) < end - begin:
        raise Unusual
    return content
