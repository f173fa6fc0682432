"""Samples that cannot be read: an error that names them, or a batch without them and a list of what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from deep500.errors import DataError, InputError

CHOICES = ("raise", "skip")


class Unreadable:
    """Answer of a data set to samples that cannot be read.

    Args:
        on_error: ``"raise"``, or ``"skip"``: batches come without it, and so smaller.

    Attributes:
        skipped: by position of the sample, what was wrong with it.

    Raises:
        InputError: another word.

    Example:
        >>> Unreadable("skip").skipped
        {}
    """

    def __init__(self, on_error: str) -> None:
        if on_error not in CHOICES:
            raise InputError(f"got on_error={on_error!r}; expected {' or '.join(map(repr, CHOICES))}: choose one")
        self.on_error = on_error
        self.skipped: dict[int, str] = {}

    def readable(self, positions: Iterable[int], read: Callable[[int], object]) -> np.ndarray:
        """Call ``read`` with every position; return those at which it gave no error.

        Raises:
            DataError: one cannot be read and is not to be skipped, or none can.
        """
        good: list[int] = []
        bad: list[int] = []
        for position in map(int, positions):
            try:
                read(position)
            except DataError as error:
                if self.on_error == "raise":
                    raise
                self.skipped[position] = str(error)
                bad.append(position)
            else:
                good.append(position)
        if bad and not good:
            raise DataError(
                f"got a batch of {len(bad)} samples of which none can be read; expected at least one: replace them; "
                f"the first: {self.skipped[bad[0]]}"
            )
        return np.array(good, dtype=np.intp)

    def sentence(self) -> str:
        """Say how many samples were left out, and why the first; empty if none were."""
        if not self.skipped:
            return ""
        first = self.skipped[min(self.skipped)]
        return f"{len(self.skipped)} samples were left out, as they cannot be read; the first: {first}"
