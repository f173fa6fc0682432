"""Protobuf's wire format, as far as `tf.train.Example` and Caffe's `Datum` need it; no message types are generated.

A message is a row of fields: a varint of ``number << 3 | kind``, then a varint (kind 0), 8 bytes (1), a varint of a
length and as many bytes (2) or 4 bytes (5). See https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


class WireError(ValueError):
    """Bytes that are no message."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, below 2^64, and the place behind it."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError(f"no whole number at byte {at}")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number, and an integer (kind 0) or the bytes (other kinds).

    Raises:
        WireError: it is none.

    Example:
        >>> list(fields(b"\\x08\\x05\\x12\\x02ab"))
        [(1, 5), (2, b'ab')]
    """
    at = 0
    while at < len(data):
        head, at = varint(data, at)
        number, kind = head >> 3, head & 7
        if kind == 0:
            value, at = varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise WireError(f"kind {kind} at byte {at}")
        if number == 0 or size > len(data) - at:
            raise WireError(f"a field of {size} bytes at byte {at} of {len(data)}")
        yield number, data[at : at + size]
        at += size


def message(value: int | bytes) -> bytes:
    """A field's bytes; WireError where it is a number."""
    if isinstance(value, int):
        raise WireError("a number in the place of a message")
    return value


def signed(value: int) -> int:
    """A varint of 64 bits as int64."""
    return value - (1 << 64) if value >> 63 else value


def example(data: bytes) -> dict[str, bytes | list[bytes] | np.ndarray]:
    """The features of a serialised ``tf.train.Example``: float32 or int64 arrays, bytes, or lists of several bytes.

    Raises:
        WireError: it is none.

    Example:
        >>> example(b"\\n\\x0c\\n\\n\\n\\x01y\\x12\\x05\\x1a\\x03\\n\\x01\\x07")
        {'y': array([7])}
    """
    features: dict[str, bytes | list[bytes] | np.ndarray] = {}
    for number, body in fields(data):
        for inner, entry in fields(message(body)) if number == 1 else ():
            if inner == 1:
                key, feature = b"", b""
                for part, value in fields(message(entry)):
                    key, feature = (message(value), feature) if part == 1 else (key, message(value))
                features[key.decode("utf-8", "replace")] = _feature(feature)
    return features


def _feature(data: bytes) -> bytes | list[bytes] | np.ndarray:
    kind, body = next(((number, message(value)) for number, value in fields(data)), (3, b""))
    values = [value for number, value in fields(body) if number == 1]
    if kind == 1:
        texts = [message(value) for value in values]
        return texts[0] if len(texts) == 1 else texts
    if kind == 2:
        return np.frombuffer(_whole(b"".join(map(message, values)), 4), "<f4").astype(np.float32)
    if kind != 3:
        raise WireError(f"a feature of kind {kind}")
    numbers: list[int] = []
    for value in values:
        numbers += [value] if isinstance(value, int) else _packed(value)
    return np.array([signed(number) for number in numbers], np.int64)


def _packed(data: bytes) -> list[int]:
    if data.isascii():  # all below 128: a byte each
        return list(data)
    numbers, at = [], 0
    while at < len(data):
        number, at = varint(data, at)
        numbers.append(number)
    return numbers


def _whole(data: bytes, size: int) -> bytes:
    if len(data) % size:
        raise WireError(f"{len(data)} bytes of numbers of {size} bytes")
    return data


def datum(data: bytes) -> dict[str, np.ndarray | bytes | int]:
    """``input`` (channels, height, width) and ``label`` of a serialised ``Datum`` of Caffe; encoded images as bytes.

    Raises:
        WireError: it is none.
    """
    known: dict[int, int | bytes] = {}
    floats = []
    for number, value in fields(data):
        if number == 6:
            floats.append(message(value))
        known[number] = value
    shape = tuple(int(value) if isinstance(value := known.get(number, 0), int) else -1 for number in (1, 2, 3))
    label, pixels = known.get(5, 0), message(known.get(4, b""))
    if not isinstance(label, int):
        raise WireError("a label that is no number")
    if known.get(7):
        return {"input": pixels, "label": signed(label)}
    array = np.frombuffer(_whole(b"".join(floats), 4), "<f4") if floats else np.frombuffer(pixels, np.uint8)
    if min(shape) < 1 or array.size != np.prod(shape, dtype=object):
        raise WireError(f"{array.size} values of a shape {shape}")
    return {"input": array.reshape(shape), "label": signed(label)}
