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

import numpy as np

from deep500.errors import InputError, nearest

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
        return {**batch, self.key: self.apply(images, rng)}


class Crop(ImageTransform):
    """Cut ``size`` out of each image, after adding ``padding`` pixels of value ``fill`` on every side.

    With ``random`` every sample gets its own uniformly drawn position, else all are cut from the centre.
    ``Crop(32, padding=4)`` is the usual augmentation of CIFAR-10 (He et al. 2016, section 4.2).

    Raises:
        InputError: the padded image is smaller than ``size``.
    """

    def __init__(
        self, size: Size, padding: int = 0, random: bool = True, fill: float = 0, *, key: str = "input"
    ) -> None:
        self.size, self.padding, self.random, self.fill, self.key = _pair(size), padding, random, fill, key
        if padding < 0:
            raise InputError(f"Crop: got padding={padding}; expected 0 or more; give a smaller size to cut pixels off")

    def apply(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        (height, width), pad = self.size, self.padding
        count, _, rows, columns = images.shape
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
        # a copy per sample, of what is seen of it: gathering windows of padded images takes twice as long
        cut = np.empty((*images.shape[:2], height, width), images.dtype)
        if pad:
            cut[...] = self.fill
        for target, image, top, left in zip(cut, images, (tops - pad).tolist(), (lefts - pad).tolist(), strict=True):
            up, first = max(top, 0), max(left, 0)
            seen = image[:, up : max(top + height, 0), first : max(left + width, 0)]
            target[:, up - top : up - top + seen.shape[1], first - left : first - left + seen.shape[2]] = seen
        return cut


class Flip(ImageTransform):
    """Mirror each image along ``axis`` (-1: left and right, -2: up and down) with probability ``p``."""

    def __init__(self, axis: int = -1, p: float = 0.5, *, key: str = "input") -> None:
        self.axis, self.p, self.key = axis, p, key
        if axis not in (-1, -2, 2, 3):
            raise InputError(f"Flip: got axis={axis}; expected -1 (width) or -2 (height); others are no image axes")
        if not 0 <= p <= 1:
            raise InputError(f"Flip: got p={p}; expected a probability; give a number from 0 to 1")

    def apply(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        chosen = rng.random(len(images)) < self.p
        flipped = images.copy()
        flipped[chosen] = np.flip(images[chosen], self.axis)
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


class Resize(ImageTransform):
    """Bring every image to ``size`` = (height, width), see :func:`resize`."""

    random = False

    def __init__(self, size: Size, *, key: str = "input") -> None:
        self.size, self.key = _pair(size), key

    def apply(self, images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return resize(images, self.size)


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
