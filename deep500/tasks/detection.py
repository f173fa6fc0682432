"""Object detection: boxes and classes of what is in a picture, judged by COCO's mean average precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.errors import InputError
from deep500.tasks.average_precision import COLUMNS, MOST, average_precision, detection_rows, mean_over_classes
from deep500.tasks.boxes import LONGEST, VARIANCES, anchor_grid, decode, encode, match, suppress_by_class
from deep500.tasks.gallery import Exhibit, Gallery, picture
from deep500.tasks.task import Quality, Sums, Task

if TYPE_CHECKING:
    from deep500.networks.network import Network

OBJECTS = ("boxes", "box_label", "picture")
CANDIDATES = 400
"""Boxes of a picture with the highest scores, of which non-maximum suppression leaves some."""


@dataclass(eq=False, repr=False)
class Detection(Task):
    """Finding objects in pictures, with a box for each.

    A batch holds pictures as ``input``, and of their objects ``boxes`` (N, M, 4), ``box_label`` (N, M) and ``picture``
    (N,), as :class:`deep500.training.data.BoxDataset` gives them. The network's output is (N, anchors, 4 + classes),
    as that of the zoo's ``ssd``: offsets from anchors and a logit per class. Objects are matched with anchors when a
    batch is trained on; the loss is focal loss of the classes and the boxes' own loss
    (:func:`deep500.networks.box_losses.add_detection_loss`).

    Args:
        image: height and width in pixels.
        classes: their number.
        stride: pixels of a cell of the finest feature map; twice that of every further one.
        sizes: for each feature map, square roots of the areas of a cell's anchors.
        ratios: height over width of anchors; each size with each ratio.
        box_loss, box_weight: ``"giou"`` or ``"smooth_l1"``, and its weight beside the classes.
        positive, negative: overlap from which an anchor answers for an object, and below which it is background.
        least_score: boxes below are not detections.
        overlap: of two detections of a class, from which only the better one stays.
        names: of the classes, for people; their numbers if none are given.

    Qualities: ``map``, mean average precision over overlaps from .5 to .95, and ``map50``, that at .5.

    Example:
        >>> task = Detection(image=(64, 64), classes=10, stride=4, sizes=[[13.0, 20.0]], ratios=[1.45])
        >>> task.anchors.shape, task.primary.name
        ((512, 4), 'map')
    """

    name = "detection"
    sample = "image"
    qualities = (Quality("map"), Quality("map50"))
    judges_training = False

    image: tuple[int, int]
    classes: int
    stride: int
    sizes: Sequence[Sequence[float]]
    ratios: Sequence[float] = (1.0,)
    _: KW_ONLY
    box_loss: str = "giou"
    box_weight: float = 2.0
    positive: float = 0.5
    negative: float = 0.4
    least_score: float = 0.05
    overlap: float = 0.5
    names: Sequence[str] = ()
    label: str = "box_label"
    output: str | None = None
    loss: str = "loss"

    def __post_init__(self) -> None:
        if not 0 <= self.negative <= self.positive <= 1:
            raise InputError(
                f"got positive={self.positive} and negative={self.negative}; expected 0 <= negative <= positive <= 1: "
                ".5 and .4 are usual"
            )
        self.names = list(self.names or map(str, range(self.classes)))
        strides = [self.stride << level for level in range(len(self.sizes))]
        levels = zip(strides, self.sizes, strict=True)
        self.anchors = np.concatenate([anchor_grid(self.image, cell, sizes, self.ratios) for cell, sizes in levels])

    def add_loss(self, network: Network) -> Network:
        """The network with its loss, and with inputs for what each anchor answers for."""
        from deep500.networks.box_losses import add_detection_loss

        return add_detection_loss(
            network,
            self.anchors,
            box_loss=self.box_loss,
            box_weight=self.box_weight,
            variances=VARIANCES,
            longest=LONGEST,
            output=self.output,
            loss=self.loss,
        )

    def targets(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """A batch as the network reads it: what each anchor answers for, instead of the objects."""
        rest = {name: array for name, array in batch.items() if name not in OBJECTS}
        if "anchor_label" in rest:  # it is complete
            return rest
        boxes, labels = batch["boxes"], batch["box_label"]
        answers = match(boxes, labels >= 0, self.anchors, self.positive, self.negative)
        rows = np.arange(len(boxes))[:, None]
        taken = np.maximum(answers, 0)
        there = answers >= 0
        box = np.where(there[..., None], boxes[rows, taken], self.anchors)
        if self.box_loss != "giou":
            box = encode(box, self.anchors)
        return {**rest, "anchor_label": np.where(there, labels[rows, taken], answers), "anchor_box": np.float32(box)}

    def weight(self, batch: Mapping[str, Any]) -> int:
        """Anchors that answer for an object, by whose number the loss is divided, and pictures that have none."""
        labels = batch.get("anchor_label")
        if labels is None or not len(labels):
            return self.count(batch)
        return int(np.maximum((labels >= 0).sum(axis=1), 1).sum())

    def complete(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A sampler's batch with its targets."""
        return self.targets(batch)

    def predict(self, executor: Any, batch: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        """One inference of a validation batch, with its loss."""
        return executor.inference(self.targets(batch), list(names))

    # -- judging ----------------------------------------------------------------------------------------------------
    def judged_inputs(self) -> tuple[str, ...]:
        """The objects."""
        return OBJECTS

    def zero(self) -> dict[str, np.ndarray]:
        """No picture seen."""
        return {"objects": np.zeros(self.classes), "detections": np.zeros((0, COLUMNS))}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Objects of each class, and a row for each detection."""
        labels = batch["box_label"]
        rows = [
            detection_rows(
                int(batch["picture"][number]),
                *detections,
                batch["boxes"][number][labels[number] >= 0],
                labels[number][labels[number] >= 0],
            )
            for number, detections in enumerate(self.detections(outputs))
        ]
        return {
            "objects": np.bincount(labels[labels >= 0], minlength=self.classes),
            "detections": np.concatenate([np.zeros((0, COLUMNS)), *rows]),
        }

    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """Mean average precision, None where there was no object."""
        table = average_precision(sums["detections"], sums["objects"])
        return {"map": mean_over_classes(table), "map50": mean_over_classes(table[:, 0])}

    def detections(self, outputs: Mapping[str, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Boxes (n, 4), scores (n,) and classes (n,) of each picture, best first."""
        raw = outputs[str(self.output)].astype(np.float64)
        height, width = self.image
        boxes = np.clip(decode(raw[..., :4], self.anchors), 0, (width, height, width, height))
        scores = 1 / (1 + np.exp(-np.clip(raw[..., 4:], -500, 500)))
        return [self._of_picture(*picture) for picture in zip(boxes, scores, strict=True)]

    def _of_picture(self, boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        anchor, label = np.nonzero(scores > self.least_score)
        value = scores[anchor, label]
        best = np.argsort(-value, kind="stable")[:CANDIDATES]
        anchor, label, value = anchor[best], label[best], value[best]
        chosen = suppress_by_class(boxes[anchor], value, label, self.overlap, MOST)
        return boxes[anchor][chosen], value[chosen], label[chosen]

    # -- for people -------------------------------------------------------------------------------------------------
    def decode(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[Any]:
        """For each picture its detections: ``{"box": [x1, y1, x2, y2], "score": ..., "class": name}``."""
        return [
            [
                {"box": box.tolist(), "score": float(score), "class": self.names[label]}
                for box, score, label in zip(*detections, strict=True)
            ]
            for detections in self.detections(outputs)
        ]

    def gallery(self) -> Gallery:
        """Pictures with what is there and what was found."""
        return DetectionGallery(self)


PICTURES, SHOWN_SCORE, BOX_ROWS = 12, 0.3, 24


class DetectionGallery(Gallery):
    """The first pictures, with true boxes and those that the network finds.

    A row holds a picture: its number, its pixels from 0 to 255, and :data:`BOX_ROWS` boxes of (wanted, class, score,
    x1, y1, x2, y2); a wanted of -1 is none.
    """

    task: Detection

    def judged_inputs(self) -> tuple[str, ...]:
        """The objects, and the pictures."""
        return (*self.task.judged_inputs(), "input")

    def zero(self) -> dict[str, np.ndarray]:
        """Nothing to show."""
        return {"pictures": np.zeros((0, 1 + self.task.image[0] * self.task.image[1] + 7 * BOX_ROWS))}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Rows of pictures that are among the first."""
        rows = []
        shown_pictures = np.flatnonzero(batch["picture"] < PICTURES)
        if not len(shown_pictures):
            return {}
        some = {str(self.task.output): outputs[str(self.task.output)][shown_pictures]}
        for number, (boxes, scores, labels) in zip(shown_pictures, self.task.detections(some), strict=True):
            grey = np.rint(255 * np.clip(batch["input"][number].mean(axis=0), 0, 1))
            shown = np.full((BOX_ROWS, 7), -1.0)
            true = batch["box_label"][number] >= 0
            there = np.column_stack(
                [
                    np.ones(true.sum()),
                    batch["box_label"][number][true],
                    np.ones(true.sum()),
                    batch["boxes"][number][true],
                ]
            )
            good = scores >= SHOWN_SCORE
            detected = np.column_stack([np.zeros(good.sum()), labels[good], scores[good], boxes[good]])
            both = np.concatenate([there, detected])[:BOX_ROWS]
            shown[: len(both)] = both
            rows.append(np.concatenate([[batch["picture"][number]], grey.ravel(), shown.ravel()]))
        return {"pictures": np.stack(rows)}

    def exhibits(self, sums: Sums) -> list[Exhibit]:
        """One exhibit of pictures."""
        height, width = self.task.image
        pictures = []
        for row in sorted(sums["pictures"].tolist()):
            pixels, boxes = row[1 : 1 + height * width], np.reshape(row[1 + height * width :], (BOX_ROWS, 7))
            drawn: list[dict[str, Any]] = [
                {
                    "box": [float(edge) for edge in box[3:]],
                    "text": self.task.names[int(box[1])] + ("" if box[0] else f" {box[2]:.2f}"),
                    "wanted": bool(box[0]),
                }
                for box in boxes
                if box[0] >= 0
            ]
            seen = [", ".join(box["text"] for box in drawn if box["wanted"] == is_there) for is_there in (True, False)]
            caption = f"picture {int(row[0])}: there {seen[0] or 'nothing'}; found {seen[1] or 'nothing'}"
            pictures.append(picture(np.reshape(pixels, (height, width)), caption, drawn))
        if not pictures:
            return []
        caption = f"Wide, blue: what is there. Narrow, orange: what is found with a score of {SHOWN_SCORE} or more."
        return [{"kind": "pictures", "title": "What is found where?", "pictures": pictures, "caption": caption}]
