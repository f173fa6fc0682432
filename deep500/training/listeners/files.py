"""Listeners that write what happens to files."""

from __future__ import annotations

import csv
import os
from dataclasses import asdict, fields
from pathlib import Path

from deep500.events import Event
from deep500.training.run import Run
from deep500.training.statistics import EpochRecord


class CSVWriter(Event):
    """Writes one row per epoch; the columns are the fields of :class:`~deep500.training.statistics.EpochRecord`.

    The whole file is replaced after each epoch, so it is never cut off in the middle of a row and a resumed run leaves
    the same rows as one that was never stopped. What was not measured is an empty cell.

    Args:
        path: where to write; the folder must exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def before_run(self, run: Run) -> None:
        self._write(run)  # a path that cannot be written is noticed before the first epoch, not after

    def after_epoch(self, run: Run) -> None:
        self._write(run)

    def after_run(self, run: Run) -> None:
        self._write(run)

    def _write(self, run: Run) -> None:
        part = self.path.with_name(self.path.name + ".part")
        with part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [one.name for one in fields(EpochRecord)])
            writer.writeheader()
            writer.writerows(asdict(record) for record in run.statistics.epochs)
        part.replace(self.path)
