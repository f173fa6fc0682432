"""Pictures with boxes: in memory, from COCO's annotations, or from Pascal VOC's."""

from __future__ import annotations

import hashlib

import numpy as np

from deep500.errors import DataError
from deep500.training.data.dataset import Batch, Dataset, Index, as_index

PADDING = -1
"""The label of rows of ``boxes`` that hold none."""


class BoxDataset(Dataset):
    """Pictures of one size, each with up to a fixed number of boxes.

    A batch holds ``input`` (N, C, H, W), ``boxes`` float32 (N, M, 4) as corners in pixels (x1, y1, x2, y2), and
    ``box_label`` int64 (N, M): the class of each box, -1 where there is none. Boxes stand first, padding after them.

    Args:
        images: (N, C, H, W).
        boxes: (N, M, 4).
        labels: (N, M); -1 is padding.
        name: what results call it.
        classes: number of classes.
        scale: if given, images are delivered as float32 divided by it.
        provenance: one line on where the data come from.

    Raises:
        DataError: a box outside of its picture or without area, a label outside of the classes, or sizes that do not
            fit: with the number of the picture.
    """

    input_name = "input"
    label_name = "box_label"

    def __init__(
        self,
        images: np.ndarray,
        boxes: np.ndarray,
        labels: np.ndarray,
        *,
        name: str = "boxes",
        classes: int,
        scale: float | None = None,
        provenance: str = "arrays given by the caller",
        stand_in: bool = False,
    ) -> None:
        self.images, self.name, self.classes, self.provenance = np.asarray(images), name, classes, provenance
        self.boxes, self.labels = np.asarray(boxes, np.float32), np.asarray(labels, np.int64)
        self.scale, self.stand_in = None if scale is None else np.float32(scale), stand_in
        if self.images.ndim != 4 or not len(self.images):
            raise DataError(f"{name}: got images of shape {self.images.shape}; expected (N, C, H, W) with N >= 1")
        if self.labels.shape != self.boxes.shape[:-1] or self.boxes.shape[::2] != (len(self.images), 4):
            raise DataError(
                f"{name}: got boxes of shape {self.boxes.shape} and labels of {self.labels.shape} for "
                f"{len(self.images)} images; expected (N, M, 4) and (N, M): one label for each box"
            )
        self.shape = self.images.shape[1:]
        self._check()
        self._digest: str | None = None

    def _check(self) -> None:
        there = self.labels != PADDING
        height, width = self.shape[1:]
        wrong = {
            f"a label that is none of {self.classes} classes": (self.labels < 0) | (self.labels >= self.classes),
            "a box without area": ~((self.boxes[..., 2:] > self.boxes[..., :2]).all(axis=-1)),
            f"a box outside of its picture of {width}x{height} pixels": ~(
                (self.boxes[..., :2] >= 0).all(axis=-1)
                & (self.boxes[..., 2] <= width)
                & (self.boxes[..., 3] <= height)
            ),
        }
        for what, found in wrong.items():
            places = np.argwhere(found & there)
            if len(places):
                image, place = (int(number) for number in places[0])
                raise DataError(
                    f"{self.name}: got {what}: box {place} of picture {image} is {self.boxes[image, place].tolist()} of "
                    f"class {self.labels[image, place]} ({len(places)} such boxes); expected 0 <= x1 < x2 <= width and "
                    "0 <= y1 < y2 <= height: correct the annotation or leave the box out"
                )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        values = self.images[where]
        if self.scale is not None:
            values = np.divide(values, self.scale, dtype=np.float32)
        return {self.input_name: values, "boxes": self.boxes[where], self.label_name: self.labels[where]}

    def digest(self) -> str:
        if self._digest is None:
            sha = hashlib.sha256()
            for array in (self.images, self.boxes, self.labels):
                sha.update(f"{array.dtype.str}{array.shape}".encode())
                sha.update(np.ascontiguousarray(array).data)
            self._digest = sha.hexdigest()
        return self._digest
