"""COCO (Lin et al. 2014) and Pascal VOC 2007 (Everingham et al. 2010), as their publishers pack them on disk.

COCO: ``coco/annotations/instances_train2017.json``, ``coco/train2017/*.jpg``, and the same for ``val2017``. VOC:
``VOCdevkit/VOC2007`` with ``Annotations``, ``ImageSets/Main/trainval.txt`` and ``test.txt``, ``JPEGImages``. Neither is
fetched: they are large, and their pictures are under the terms of those who took them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deep500.errors import InputError, MissingDataset
from deep500.training.data.boxes import BoxFiles, read_coco, read_pascal_voc
from deep500.training.data.catalog import DatasetInfo, Pair, Search, register_dataset

Shape = tuple[int, int, int]

# fmt: off
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
# fmt: on


@dataclass(frozen=True)
class BoxFolder(DatasetInfo):
    """A data set of pictures with boxes in a folder that somebody put there.

    Attributes:
        folders: where it may lie below a root.
        reader: ``reader(folder, half, shape)`` with half ``"train"`` or ``"test"``.
    """

    folders: tuple[str, ...]
    reader: Callable[[Path, str, Shape], BoxFiles]

    @property
    def options(self) -> tuple[str, ...]:
        return ("size",)

    def load(self, search: Search, seed: int, size: int = 0, **options: Any) -> Pair:
        """Both halves, resized to ``size`` pixels a side; DataError where it does not lie in the folders searched."""
        channels, height, width = self.shape
        if size and size < 1:
            raise InputError(f"got size={size}; expected pixels a side, such as {height}")
        shape = (channels, size or height, size or width)
        for root in search.roots:
            for folder in self.folders:
                if (root / folder).is_dir():
                    return self.reader(root / folder, "train", shape), self.reader(root / folder, "test", shape)
        raise MissingDataset(
            f"got no data set {self.name!r}: not found in {', '.join(map(str, search.roots))}; expected "
            f"{self.folders[0]} as its publisher packs it there: unpack it, or set DATA_ROOT (it is not fetched)"
        )


def _coco(folder: Path, half: str, shape: Shape) -> BoxFiles:
    part = "train2017" if half == "train" else "val2017"
    return read_coco(folder / "annotations" / f"instances_{part}.json", folder / part, shape)


def _voc(folder: Path, half: str, shape: Shape) -> BoxFiles:
    return read_pascal_voc(folder, "trainval" if half == "train" else "test", shape, VOC_CLASSES)


register_dataset(
    BoxFolder(
        "coco",
        80,
        (3, 320, 320),
        (118_287, 5_000),
        "photographs with boxes (Lin et al. 2014)",
        ("coco",),
        _coco,
        licence="annotations CC BY 4.0, COCO Consortium; each photograph under the terms of its author at Flickr",
    )
)
register_dataset(
    BoxFolder(
        "voc2007",
        20,
        (3, 320, 320),
        (5_011, 4_952),
        "photographs with boxes (Everingham et al. 2010)",
        ("VOCdevkit/VOC2007", "VOC2007"),
        _voc,
        licence="photographs under the terms of their authors at Flickr; cite Everingham et al. (2010)",
    )
)
