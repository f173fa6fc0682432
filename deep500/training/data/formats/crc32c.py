"""CRC-32C (Castagnoli), the checksum of TFRecord files, a thousand bytes at a time by NumPy.

A checksum is linear: each byte contributes by its value and by how many bytes follow, so a table (byte's distance from
the end, value) and one exclusive-or over a block suffice; the state before a block is added to its first four bytes.
"""

from __future__ import annotations

import functools

import numpy as np

BLOCK = 1024


@functools.cache
def _table() -> np.ndarray:
    table = np.empty((BLOCK, 256), np.uint32)
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, (first >> 1) ^ np.uint32(0x82F63B78), first >> 1)
    table[0] = first
    for distance in range(1, BLOCK):
        table[distance] = (table[distance - 1] >> 8) ^ first[table[distance - 1] & 0xFF]
    return table


def crc32c(data: bytes) -> int:
    """The checksum.

    Example:
        >>> hex(crc32c(b"123456789"))  # the check value of the catalogue of CRCs, RFC 3720
        '0xe3069283'
    """
    table, state = _table(), np.uint32(0xFFFFFFFF)
    values = np.frombuffer(data, np.uint8)
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK].copy()
        unread = state >> np.uint32(8 * len(block)) if len(block) < 4 else np.uint32(0)
        before = np.array([state], "<u4").view(np.uint8)[: len(block)]
        block[: len(before)] ^= before
        distances = np.arange(len(block) - 1, -1, -1)
        state = np.bitwise_xor.reduce(table[distances, block]) ^ unread
    return int(state) ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """The checksum as TFRecord files keep it: rotated by 15 bits, plus a constant."""
    value = crc32c(data)
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF
