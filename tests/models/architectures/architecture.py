"""`Architecture`: one row of the table, and helpers that build models without any download."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Inputs = dict[str, np.ndarray]
Make = Callable[[np.random.Generator], Inputs]


@dataclass(frozen=True)
class Architecture:
    """One architecture: how to build it (random weights, no download), what to feed it, and who writes the file.

    Attributes:
        name: of its row and its file.
        collection: the package that it comes from, under the name by which pip knows it.
        what: what it is, in a few words.
        build: makes the model; called after the seed is set.
        inputs: makes named arrays, in the order in which the model takes them; the names become those of the file.
        exporter: "legacy" or "dynamo" (both ``torch.onnx.export``), "keras", "sklearn".
        optimize: ``dynamo`` only: let the exporter optimize the file, which is its default.
        ragged: outputs have a first axis whose size depends on their values.
        symbolic: ``legacy`` only: the first axis has no fixed size in the file, which is traced with another size than
            that of the inputs.
    """

    name: str
    collection: str
    what: str
    build: Callable[[], Any]
    inputs: Make
    exporter: str = "legacy"
    optimize: bool = True
    ragged: bool = False
    symbolic: bool = False


def images(size: int, count: int = 4, channels: int = 3, name: str = "images") -> Make:
    """A batch of noise in the shape of images."""
    return lambda rng: {name: rng.standard_normal((count, channels, size, size)).astype(np.float32)}


def tokens(vocabulary: int, length: int = 24, count: int = 2, mask: bool = True, name: str = "input_ids") -> Make:
    """Numbers of words, and a mask that hides the end of the last text."""

    def make(rng: np.random.Generator) -> Inputs:
        numbers = rng.integers(1, vocabulary, (count, length))
        seen = np.ones_like(numbers)
        seen[-1, -5:] = 0
        return {name: numbers, "attention_mask": seen} if mask else {name: numbers}

    return make


def noise(**shapes: tuple[int, ...]) -> Make:
    """Standard normal arrays of these names and shapes."""
    return lambda rng: {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}


def import_torchvision() -> None:
    """Import torchvision beside a CPU build of torch: its compiled operators are missing there, so declare them.

    ``nms`` gets a body, which detection models run; the others are never run: importing the package only wants to see
    their schemas. Does nothing where torchvision is not installed.
    """
    import torch

    if importlib.util.find_spec("torchvision") is None or _LIBRARIES:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    boxes = "Tensor dets, Tensor scores, float iou_threshold"
    missing = not hasattr(torch.ops.torchvision, "nms")
    for schema in (
        f"nms({boxes}) -> Tensor",
        f"qnms({boxes}) -> Tensor",
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor",
    ):
        if not hasattr(torch.ops.torchvision, schema.partition("(")[0]):
            library.define(schema)
    if missing:
        library.impl("nms", suppress, "CPU")
    _LIBRARIES.append(library)  # what it defines lives as long as it does
    import torchvision

    torchvision.extension._has_ops = _has_ops  # else nms refuses before it looks


_LIBRARIES: list[Any] = []


def _has_ops() -> bool:
    return True


def suppress(boxes: Any, scores: Any, threshold: float) -> Any:
    """Non-maximum suppression: the best box, then the best of those that overlap none taken by more than a threshold.

    Boxes are ``[n, 4]`` corners, scores ``[n]``; gives the taken boxes' numbers, best first.
    """
    import torch

    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    left = torch.argsort(scores, descending=True, stable=True)
    taken = []
    while left.numel():
        best, left = left[0], left[1:]
        taken.append(best)
        low, high = torch.maximum(boxes[best, :2], boxes[left, :2]), torch.minimum(boxes[best, 2:], boxes[left, 2:])
        common = (high - low).clamp(min=0).prod(1)
        left = left[common / (areas[best] + areas[left] - common) <= threshold]
    return torch.stack(taken) if taken else torch.empty(0, dtype=torch.int64)


def offline() -> None:
    """No collection may ask a server for anything."""
    os.environ.update(
        HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3"
    )
    import_torchvision()
