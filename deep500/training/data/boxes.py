"""Pictures with boxes: in memory, from COCO's annotations, or from Pascal VOC's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from deep500.errors import DataError
from deep500.training.data.dataset import Batch, Dataset, Index, as_index
from deep500.training.data.files import read_image

PADDING = -1
"""The label of rows of ``boxes`` that hold none."""


class BoxDataset(Dataset):
    """Pictures of one size, each with up to a fixed number of boxes.

    A batch holds ``input`` (N, C, H, W), ``boxes`` float32 (N, M, 4) as corners in pixels (x1, y1, x2, y2),
    ``box_label`` int64 (N, M): the class of each box, -1 where there is none, and ``picture`` int64 (N,), the number of
    the picture in the data set.

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
        self.images, self.scale = np.asarray(images), None if scale is None else np.float32(scale)
        if self.images.ndim != 4 or not len(self.images):
            raise DataError(f"{name}: got images of shape {self.images.shape}; expected (N, C, H, W) with N >= 1")
        self.shape = self.images.shape[1:]
        self.name, self.classes, self.provenance, self.stand_in = name, classes, provenance, stand_in
        self._annotate(len(self.images), boxes, labels)

    def _annotate(self, count: int, boxes: np.ndarray, labels: np.ndarray) -> None:
        self.boxes, self.labels = np.asarray(boxes, np.float32), np.asarray(labels, np.int64)
        if self.labels.shape != self.boxes.shape[:-1] or self.boxes.shape[::2] != (count, 4):
            raise DataError(
                f"{self.name}: got boxes of shape {self.boxes.shape} and labels of {self.labels.shape} for {count} "
                "pictures; expected (N, M, 4) and (N, M): one label for each box"
            )
        self._check()
        self._digest: str | None = None

    def _check(self) -> None:
        assert self.classes is not None
        there = self.labels != PADDING
        height, width = self.shape[1:]
        wrong = {
            f"a label that is none of {self.classes} classes": (self.labels < 0) | (self.labels >= self.classes),
            "a box without area": ~((self.boxes[..., 2:] > self.boxes[..., :2]).all(axis=-1)),
            f"a box outside of its picture of {width}x{height} pixels": ~(
                (self.boxes[..., :2] >= 0).all(axis=-1) & (self.boxes[..., 2] <= width) & (self.boxes[..., 3] <= height)
            ),
        }
        for what, is_wrong in wrong.items():
            places = np.argwhere(is_wrong & there)
            if len(places):
                image, place = (int(number) for number in places[0])
                raise DataError(
                    f"{self.name}: got {what}: box {place} of picture {image} is {self.boxes[image, place].tolist()} "
                    f"of class {self.labels[image, place]} ({len(places)} such boxes); expected 0 <= x1 < x2 <= width "
                    "and 0 <= y1 < y2 <= height: correct the annotation or leave the box out"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        return {
            self.input_name: self._pictures(where),
            "boxes": self.boxes[where],
            self.label_name: self.labels[where],
            "picture": np.asarray(np.arange(len(self))[where]),
        }

    def _pictures(self, where: int | slice | np.ndarray) -> np.ndarray:
        values: np.ndarray = self.images[where]
        return values if self.scale is None else np.divide(values, self.scale, dtype=np.float32)

    def digest(self) -> str:
        if self._digest is None:
            sha = hashlib.sha256()
            for array in self._contents():
                sha.update(array.dtype.str.encode() + str(array.shape).encode())
                sha.update(np.ascontiguousarray(array).data)
            self._digest = sha.hexdigest()
        return self._digest

    def _contents(self) -> list[np.ndarray]:
        return [self.images, self.boxes, self.labels]


class BoxFiles(BoxDataset):
    """Pictures with boxes whose pixels stay in files until they are asked for.

    Every picture is resized to ``shape`` = (channels, height, width), its boxes with it, and delivered as float32 in
    [0, 1].

    Args:
        files: one picture each.
        sizes: (width, height) of each, as its boxes are given.
        boxes: for each picture a list of (x1, y1, x2, y2, class), in the picture's own pixels.
        shape: what pictures are resized to.
        name, provenance: see :class:`Dataset`.
        class_names: of all classes, in the order of their numbers.

    Raises:
        DataError: as :class:`BoxDataset`, or a file that cannot be read.
    """

    def __init__(
        self,
        files: Sequence[Path],
        sizes: Sequence[tuple[int, int]],
        boxes: Sequence[Sequence[tuple[float, float, float, float, int]]],
        shape: tuple[int, int, int],
        *,
        name: str,
        class_names: Sequence[str],
        provenance: str,
    ) -> None:
        if not files:
            raise DataError(f"{name}: got no pictures; expected at least one: check the annotations")
        self.files, self.shape, self.name, self.provenance = list(files), tuple(shape), name, provenance
        self.class_names, self.classes = list(class_names), len(class_names)
        most = max(1, *(len(of_one) for of_one in boxes))
        corners = np.zeros((len(files), most, 4), np.float32)
        labels = np.full((len(files), most), PADDING, np.int64)
        for number, (of_one, size) in enumerate(zip(boxes, sizes, strict=True)):
            if of_one:
                known = np.array(of_one, np.float64)
                scale = np.array([shape[2] / size[0], shape[1] / size[1]] * 2)
                corners[number, : len(known)], labels[number, : len(known)] = known[:, :4] * scale, known[:, 4]
        self._annotate(len(files), corners, labels)

    def _pictures(self, where: int | slice | np.ndarray) -> np.ndarray:
        if isinstance(where, int):
            return read_image(self.files[where], self.shape)
        pictures = [read_image(self.files[number], self.shape) for number in np.arange(len(self))[where]]
        return np.stack(pictures) if pictures else np.empty((0, *self.shape), np.float32)

    def _contents(self) -> list[np.ndarray]:
        digests = [hashlib.sha256(path.read_bytes()).digest() for path in self.files]
        return [np.frombuffer(b"".join(digests), np.uint8), self.boxes, self.labels]


def read_coco(
    annotations: str | Path, pictures: str | Path, shape: tuple[int, int, int], name: str = "coco"
) -> BoxFiles:
    """Pictures and boxes of an annotation file as COCO's ``instances_*.json``.

    Classes are numbered in the order of their ids. Annotations of crowds, which mark regions and not objects, are left
    out, and the provenance counts them; so are boxes without area.

    Args:
        annotations: the JSON file: ``images``, ``annotations`` with ``bbox`` [x, y, width, height], ``categories``.
        pictures: the folder with the files that ``images`` name.
        shape: (channels, height, width) that pictures are resized to.
        name: what results call it.

    Raises:
        DataError: a file that is no such JSON, an entry without a key, an annotation of a picture or class that is not
            there, a picture whose name leads out of the folder.
    """
    file = Path(annotations)
    content = _json(file)
    try:
        classes = {entry["id"]: (number, entry["name"]) for number, entry in enumerate(_by_id(content["categories"]))}
        images = {entry["id"]: (number, entry) for number, entry in enumerate(_by_id(content["images"]))}
        boxes: list[list[tuple[float, float, float, float, int]]] = [[] for _ in images]
        left_out = 0
        for entry in content["annotations"]:
            x, y, width, height = (float(value) for value in entry["bbox"])
            for what, known in (("image_id", images), ("category_id", classes)):
                if entry[what] not in known:
                    raise DataError(
                        f"{file}: got annotation {entry.get('id')} with {what} {entry[what]!r}; expected one that the "
                        "file lists: the file is cut off or mixed up"
                    )
            if entry.get("iscrowd") or width <= 0 or height <= 0:
                left_out += 1
                continue
            number, image = images[entry["image_id"]]
            right, bottom = min(x + width, image["width"]), min(y + height, image["height"])  # COCO rounds
            boxes[number].append((max(x, 0.0), max(y, 0.0), right, bottom, classes[entry["category_id"]][0]))
        files = [_inside(Path(pictures), entry["file_name"], file) for _, entry in images.values()]
        sizes = [(int(entry["width"]), int(entry["height"])) for _, entry in images.values()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{file}: got an entry that cannot be read ({type(error).__name__}: {error}); expected COCO's 'images', "
            "'annotations' with 'bbox', and 'categories': check the file"
        ) from error
    where = f"{file} ({left_out} annotations of crowds or without area left out)"
    names = [name for _, name in classes.values()]
    return BoxFiles(files, sizes, boxes, shape, name=name, class_names=names, provenance=where)


def read_pascal_voc(
    root: str | Path, split: str, shape: tuple[int, int, int], class_names: Sequence[str], name: str = "voc"
) -> BoxFiles:
    """Pictures and boxes of a folder as Pascal VOC's ``VOC2007``: ``Annotations``, ``ImageSets/Main``, ``JPEGImages``.

    VOC counts pixels from 1 and the last one belongs to the box; corners here begin with 0 and end outside. Objects
    marked as difficult are left out, and the provenance counts them.

    Args:
        root: the folder.
        split: a file of ``ImageSets/Main`` without ``.txt``: ``"trainval"``.
        shape: (channels, height, width) that pictures are resized to.
        class_names: in the order of their numbers.
        name: what results call it.

    Raises:
        DataError: a file that is missing or no such XML, an object of another class.
    """
    root = Path(root)
    listed = root / "ImageSets" / "Main" / f"{split}.txt"
    try:
        names = [line.split()[0] for line in listed.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{listed}: got no list of pictures ({error}); expected a name per line: check the folder"
        ) from error
    files, sizes, boxes, left_out = [], [], [], 0
    for picture in names:
        size, objects, hard = _voc_picture(_inside(root / "Annotations", f"{picture}.xml", listed), list(class_names))
        files.append(_inside(root / "JPEGImages", f"{picture}.jpg", listed))
        sizes.append(size)
        boxes.append(objects)
        left_out += hard
    where = f"{root}, {split} ({left_out} difficult objects left out)"
    return BoxFiles(files, sizes, boxes, shape, name=name, class_names=class_names, provenance=where)


def _voc_picture(
    file: Path, class_names: list[str]
) -> tuple[tuple[int, int], list[tuple[float, float, float, float, int]], int]:
    """Width and height, boxes, and how many objects are difficult."""
    try:
        tree = ElementTree.fromstring(file.read_bytes())
        width, height = (int(tree.findtext(f"size/{side}") or "") for side in ("width", "height"))
        boxes, hard = [], 0
        for entry in tree.iter("object"):
            if entry.findtext("difficult") == "1":
                hard += 1
                continue
            label = class_names.index(entry.findtext("name") or "")
            x1, y1, x2, y2 = (float(entry.findtext(f"bndbox/{e}") or "") for e in ("xmin", "ymin", "xmax", "ymax"))
            boxes.append((x1 - 1, y1 - 1, x2, y2, label))
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise DataError(
            f"{file}: got an annotation that cannot be read ({error}); expected Pascal VOC's XML with size, name and "
            f"bndbox, of the classes {', '.join(class_names)}: replace the file"
        ) from error
    return (width, height), boxes, hard


def _json(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: got no JSON ({error}); expected COCO's annotations: check the file") from error
    if not isinstance(content, dict) or not all(isinstance(content.get(k), list) for k in ("images", "annotations")):
        raise DataError(f"{file}: got JSON without 'images' and 'annotations'; expected COCO's annotations")
    return content


def _by_id(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(entries, key=lambda entry: int(entry["id"]))


def _inside(folder: Path, name: str, source: Path) -> Path:
    """A file of a folder; its name comes from a file that others wrote and must not lead out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{source}: got the file name {name!r}, which leads out of {folder}; expected one below it")
    return path
