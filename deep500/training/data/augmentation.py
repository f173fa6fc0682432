"""Augmentation: transformations of whole batches of images.

A transformation is ``transform(batch, rng) -> batch``, where ``batch`` is a dictionary of arrays and ``rng`` a
:class:`numpy.random.Generator` that the sampler derives from (seed, epoch, number of the batch): the same batch is
augmented in the same way however often, in whichever thread and after whichever interruption it is made. The input
batch is never written to. Images are (samples, channels, height, width).
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from deep500.errors import InputError, nearest
from deep500.training.data.boxes import PADDING

Size = int | tuple[int, int]


class ImageTransform(abc.ABC):
    """Base of the transformations here: applies :meth:`apply` to one entry of the batch, ``key``.

    Example:
        >>> class Invert(ImageTransform):
        ...     def apply(self, images, rng):
        ...         return 1 - images
        >>> Invert()({"input": np.zeros((1, 1, 1, 1))}, np.random.default_rng(0))["input"].item()
        1.0
    """

    key = "input"
    random: bool = True
    """Whether ``rng`` decides anything: if not, a part of a batch may be transformed without the rest."""

    @abc.abstractmethod
    def apply(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return new images; ``images`` (N, C, H, W) must stay as they are."""

    def __call__(self, batch: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        images = self._images(batch)
        changed = self.apply(images, rng)
        if "boxes" in batch and changed.shape[-2:] != images.shape[-2:]:
            raise InputError(
                f"{type(self).__name__}: got images of {list(changed.shape)} from {list(images.shape)}, with boxes; "
                "expected boxes that follow: derive it from GeometricTransform"
            )
        return {**batch, self.key: changed}

    def _images(self, batch: dict[str, np.ndarray]) -> np.ndarray:
        if self.key not in batch:
            raise InputError(
                f"{type(self).__name__}: got no entry {self.key!r} in the batch; {nearest(self.key, batch)}"
            )
        images = batch[self.key]
        if images.ndim != 4:
            raise InputError(
                f"{type(self).__name__}: got {self.key!r} of shape {images.shape}; expected (samples, channels, "
                "height, width); reshape the data or leave the transformation out"
            )
        return images


class GeometricTransform(ImageTransform):
    """Base of transformations that move pixels: what lies on the picture moves with it.

    That is ``boxes`` (N, M, 4), corners in pixels, of which those that are cut away become rows without an object, and
    every entry (N, ..., height, width) on the same pixels, such as label maps.

    Example:
        >>> batch = {"input": np.array([[[[1., 2., 3.]]]]), "label": np.array([[[7, 8, 9]]])}
        >>> Flip(p=1)(batch, np.random.default_rng(0))["label"].tolist()
        [[[9, 8, 7]]]
    """

    @abc.abstractmethod
    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        """Return how each picture of a batch of this shape moves."""

    @abc.abstractmethod
    def move(self, pixels: np.ndarray, how: Any) -> np.ndarray:
        """Return what lies on the pixels (N, ..., height, width), moved; ``pixels`` must stay as they are."""

    @abc.abstractmethod
    def move_boxes(self, boxes: np.ndarray, shape: tuple[int, ...], how: Any) -> np.ndarray:
        """Return corners (N, M, 4) of pictures of that shape, moved; they may lie outside."""

    def apply(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return self.move(images, self.draw(images.shape, rng))

    def __call__(self, batch: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
        images = self._images(batch)
        how, place = self.draw(images.shape, rng), (len(images), *images.shape[-2:])
        moved = {**batch, self.key: self.move(images, how)}
        for name, array in batch.items():
            if name not in (self.key, "boxes") and array.ndim > 2 and (array.shape[0], *array.shape[-2:]) == place:
                moved[name] = self.move_labels(array, how)
        if "boxes" in batch:
            boxes = self.move_boxes(batch["boxes"], images.shape, how)
            height, width = moved[self.key].shape[-2:]
            boxes = np.clip(boxes, 0, np.array([width, height] * 2)).astype(batch["boxes"].dtype)
            seen = (boxes[..., 2:] > boxes[..., :2]).all(axis=-1)
            moved["boxes"] = np.where(seen[..., None], boxes, 0)
            if "box_label" in batch:
                moved["box_label"] = np.where(seen, batch["box_label"], PADDING)
        return moved

    def move_labels(self, labels: np.ndarray, how: Any) -> np.ndarray:
        """Return another entry on the same pixels, moved."""
        return self.move(labels, how)


class Crop(GeometricTransform):
    """Cut ``size`` out of each image, after adding ``padding`` pixels of value ``fill`` on every side.

    With ``random`` every sample gets its own uniformly drawn position, else all are cut from the centre. Label maps get
    ``label_fill`` where pixels are added.
    ``Crop(32, padding=4)`` is the usual augmentation of CIFAR-10 (He et al. 2016, section 4.2).

    Raises:
        InputError: the padded image is smaller than ``size``.
    """

    def __init__(
        self,
        size: Size,
        padding: int = 0,
        random: bool = True,
        fill: float = 0,
        *,
        key: str = "input",
        label_fill: int | None = None,
    ) -> None:
        self.size, self.padding, self.random, self.fill, self.key = _pair(size), padding, random, fill, key
        self.label_fill = label_fill
        if padding < 0:
            raise InputError(f"Crop: got padding={padding}; expected 0 or more; give a smaller size to cut pixels off")

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        (height, width), pad = self.size, self.padding
        count, _, rows, columns = shape
        spare = rows + 2 * pad - height, columns + 2 * pad - width
        if min(spare) < 0:
            raise InputError(
                f"Crop: got images of {rows}x{columns} with padding {pad}; expected at least {height}x{width}; "
                "pad more or crop less"
            )
        if self.random:
            tops, lefts = rng.integers(0, spare[0] + 1, count), rng.integers(0, spare[1] + 1, count)
        else:
            tops, lefts = (np.full(count, extra // 2) for extra in spare)
        return tops - pad, lefts - pad

    def move(self, pixels: np.ndarray, how: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return self._cut(pixels, how, self.fill)

    def move_labels(self, labels: np.ndarray, how: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        if self.padding and self.label_fill is None:
            raise InputError(
                f"Crop: got padding={self.padding} and labels of shape {labels.shape}, on the pixels of the images; "
                "expected the label of what is added: give label_fill, such as the one that the loss ignores"
            )
        return self._cut(labels, how, self.label_fill or 0)

    def _cut(self, pixels: np.ndarray, how: tuple[np.ndarray, np.ndarray], fill: float) -> np.ndarray:
        height, width = self.size
        # a copy per sample, of what is seen of it: gathering windows of padded images takes twice as long
        cut = np.empty((*pixels.shape[:-2], height, width), pixels.dtype)
        if self.padding:
            cut[...] = fill
        for target, image, top, left in zip(cut, pixels, how[0].tolist(), how[1].tolist(), strict=True):
            up, first = max(top, 0), max(left, 0)
            seen = image[..., up : max(top + height, 0), first : max(left + width, 0)]
            rows, columns = seen.shape[-2:]
            target[..., up - top : up - top + rows, first - left : first - left + columns] = seen
        return cut

    def move_boxes(self, boxes: np.ndarray, shape: tuple[int, ...], how: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        tops, lefts = how
        return boxes - np.stack([lefts, tops, lefts, tops], 1)[:, None]


class Flip(GeometricTransform):
    """Mirror each image along ``axis`` (-1: left and right, -2: up and down) with probability ``p``."""

    def __init__(self, axis: int = -1, p: float = 0.5, *, key: str = "input") -> None:
        self.axis, self.p, self.key = axis, p, key
        if axis not in (-1, -2, 2, 3):
            raise InputError(f"Flip: got axis={axis}; expected -1 (width) or -2 (height); others are no image axes")
        if not 0 <= p <= 1:
            raise InputError(f"Flip: got p={p}; expected a probability; give a number from 0 to 1")

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        return rng.random(shape[0]) < self.p

    def move(self, pixels: np.ndarray, how: np.ndarray) -> np.ndarray:
        flipped = pixels.copy()
        flipped[how] = np.flip(pixels[how], -1 if self.axis in (-1, 3) else -2)
        return flipped

    def move_boxes(self, boxes: np.ndarray, shape: tuple[int, ...], how: np.ndarray) -> np.ndarray:
        first, last = (0, 2) if self.axis in (-1, 3) else (1, 3)
        flipped, extent = boxes.copy(), shape[self.axis]
        flipped[how, :, first], flipped[how, :, last] = extent - boxes[how, :, last], extent - boxes[how, :, first]
        return flipped


RandomFlip = Flip  #: historical name


class Cutout(ImageTransform):
    """Set ``holes`` squares of ``length`` pixels to 0 in each image (DeVries and Taylor 2017, arXiv 1708.04552).

    Centres are drawn uniformly over the image and squares are cut off at its border, so that fewer pixels may vanish.
    """

    def __init__(self, length: int = 16, holes: int = 1, *, key: str = "input") -> None:
        self.length, self.holes, self.key = length, holes, key
        if length < 1 or holes < 1:
            raise InputError(f"Cutout: got length={length}, holes={holes}; expected both at least 1; leave Cutout out")

    def apply(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        count, _, height, width = images.shape
        hole = np.zeros((count, height, width), dtype=bool)
        for _ in range(self.holes):
            rows = self._covered(rng.integers(0, height, (count, 1)), height)
            columns = self._covered(rng.integers(0, width, (count, 1)), width)
            hole |= rows[:, :, None] & columns[:, None, :]
        return np.where(hole[:, None], images.dtype.type(0), images)

    def _covered(self, centres: np.ndarray, extent: int) -> np.ndarray:
        offset = np.arange(extent) - (centres - self.length // 2)
        return (offset >= 0) & (offset < self.length)


class Normalize(ImageTransform):
    """``(image - mean) / std`` with one value for all channels or one per channel; float32 stays float32."""

    random = False

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float], *, key: str = "input") -> None:
        self.mean, self.std = np.atleast_1d(np.asarray(mean)), np.atleast_1d(np.asarray(std))
        self.key = key
        if not np.all(self.std > 0):
            raise InputError(f"Normalize: got std={std}; expected positive numbers; give the data's standard deviation")

    def apply(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        dtype = images.dtype if images.dtype.kind == "f" else np.dtype(np.float32)
        for name, value in (("mean", self.mean), ("std", self.std)):
            if value.size not in (1, images.shape[1]):
                raise InputError(
                    f"Normalize: got {value.size} values as {name} for {images.shape[1]} channels; "
                    "expected one, or one per channel; give as many"
                )
        mean, std = (value.astype(dtype).reshape(-1, 1, 1) for value in (self.mean, self.std))
        return (images - mean) / std


class Resize(GeometricTransform):
    """Bring every image to ``size`` = (height, width), see :func:`resize`; label maps get the nearest."""

    random = False

    def __init__(self, size: Size, *, key: str = "input") -> None:
        self.size, self.key = _pair(size), key

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        return None

    def move(self, pixels: np.ndarray, how: None) -> np.ndarray:
        return resize(pixels, self.size)

    def move_labels(self, labels: np.ndarray, how: None) -> np.ndarray:
        if labels.dtype.kind == "f":
            return resize(labels, self.size)
        rows, columns = (
            ((np.arange(new) + 0.5) * old / new).astype(int)
            for new, old in zip(self.size, labels.shape[-2:], strict=True)
        )
        return labels[..., rows[:, None], columns]

    def move_boxes(self, boxes: np.ndarray, shape: tuple[int, ...], how: None) -> np.ndarray:
        (height, width), (rows, columns) = self.size, shape[-2:]
        return boxes * np.array([width / columns, height / rows] * 2)


def resize(images: np.ndarray, size: Size) -> np.ndarray:
    """Bilinear resizing of ``(..., height, width)`` to ``(..., *size)`` as float, with Pillow's convention.

    Pixels are areas (half-pixel centres); when shrinking, the triangle filter widens with the factor, so that no pixel
    is skipped. Separable, hence two matrix products.

    Example:
        >>> resize(np.array([[0., 1.]]), (1, 4))
        array([[0.  , 0.25, 0.75, 1.  ]])
    """
    height, width = _pair(size)
    dtype = images.dtype if images.dtype.kind == "f" else np.dtype(np.float32)
    rows = _triangle(images.shape[-2], height).astype(dtype)
    columns = _triangle(images.shape[-1], width).astype(dtype)
    return rows @ images.astype(dtype, copy=False) @ columns.T


def _triangle(source: int, target: int) -> np.ndarray:
    """Weights (target, source) of the triangle filter; every row sums to 1."""
    step = source / target
    centres = (np.arange(target)[:, None] + 0.5) * step
    distance = np.abs(np.arange(source) + 0.5 - centres) / max(step, 1.0)
    weights = np.maximum(0.0, 1.0 - distance)
    return weights / weights.sum(axis=1, keepdims=True)


def _pair(size: Size) -> tuple[int, int]:
    values = size if isinstance(size, tuple) else (size, size)
    try:
        height, width = (operator.index(value) for value in values)
    except (TypeError, ValueError) as error:
        raise InputError(f"got size {size!r}; expected an integer or (height, width); give one of them") from error
    if height < 1 or width < 1:
        raise InputError(f"got size {size!r}; expected at least one pixel each way; give a larger one")
    return height, width
