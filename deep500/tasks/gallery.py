"""Exhibits of a task in the report besides curves: data that are collected in one evaluation after training.

An exhibit is data, not a picture, so that a results folder keeps what was found and the report draws it. Its ``kind``:

* ``"matrix"``: ``values`` (rows x columns), ``rows`` and ``columns`` (names of both), ``row_axis`` and ``column_axis``;
* ``"lines"``: ``lines`` (name -> [x values, y values]), ``x_axis`` and ``y_axis``;
* ``"table"``: ``columns`` (names) and ``rows`` (lists of text or numbers): transcripts beside what was said, samples of
  text, episodes;
* ``"pictures"``: ``pictures``, each made by :func:`picture`, maybe with ``boxes``: ``{"box": [x1, y1, x2, y2], "text":
  ..., "wanted": bool}`` in pixels from the upper left.

All have a ``title``, the question that they answer, and may have a ``caption``.
"""

from __future__ import annotations

import abc
import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep500.tasks.task import Sums, Task

Exhibit = dict[str, Any]
"""One thing to show, see the top of this file."""


class Gallery(abc.ABC):
    """Collects what a task shows; it is judged like the task, with sums and rows of its own.

    On several processes sums and rows are those of all; rows come in the order of ranks. A gallery that keeps examples
    keeps few of each batch: it adds them as rows and chooses in
    :meth:`shrink` and :meth:`exhibits`.

    Args:
        task: whose, bound.
    """

    most_rows: int = 1_000_000

    def __init__(self, task: Task) -> None:
        self.task = task

    def count(self, batch: Mapping[str, Any]) -> int:
        """Samples in a batch, as the task counts them."""
        return self.task.count(batch)

    def judged_inputs(self) -> tuple[str, ...]:
        """Inputs that :meth:`judge` reads."""
        return self.task.judged_inputs()

    def judged_outputs(self) -> tuple[str, ...]:
        """Outputs that :meth:`judge` reads."""
        return self.task.judged_outputs()

    @abc.abstractmethod
    def zero(self) -> dict[str, np.ndarray]:
        """The state that no batch was added to, as of a task."""

    @abc.abstractmethod
    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Return what a batch adds to the state."""

    def shrink(self, name: str, rows: np.ndarray) -> np.ndarray:
        """The rows that are still wanted, called when many have come together; all by default."""
        return rows

    @abc.abstractmethod
    def exhibits(self, sums: Sums) -> list[Exhibit]:
        """Return what is shown, from the state."""


def picture(array: np.ndarray, caption: str, boxes: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A picture of an exhibit.

    Args:
        array: (height, width), or (channels, height, width) with one channel (grey) or three (red, green, blue); its
            smallest value becomes black, its largest one white.
        caption: stands below it.
        boxes: drawn over it.

    Example:
        >>> picture(np.eye(2), "a diagonal")["pixels"]
        '/wAA/w=='
    """
    pixels = np.asarray(array, np.float64)
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    span = np.ptp(pixels)
    grey = np.rint(255 * (pixels - pixels.min()) / (span if span > 0 else 1)).astype(np.uint8)
    channels, height, width = grey.shape
    content = base64.b64encode(np.ascontiguousarray(grey.transpose(1, 2, 0)).tobytes()).decode("ascii")
    exhibit = {"height": height, "width": width, "channels": channels, "pixels": content, "caption": caption}
    return {**exhibit, "boxes": [dict(box) for box in boxes]} if boxes else exhibit
