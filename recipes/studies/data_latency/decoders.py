"""Decoders of images that may be installed: from the bytes of a file to uint8 (height, width, channels)."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

Decode = Callable[[bytes], np.ndarray]


def pillow(data: bytes) -> np.ndarray:
    """By Pillow, which everybody has."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def opencv(data: bytes) -> np.ndarray:
    """By OpenCV, in the order of colours that others have."""
    import cv2

    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)


def simplejpeg(data: bytes) -> np.ndarray:
    """By libjpeg-turbo; JPEG only."""
    import simplejpeg

    return simplejpeg.decode_jpeg(data)


def torchvision(data: bytes) -> np.ndarray:
    """By torchvision."""
    import torch
    from torchvision.io import ImageReadMode, decode_image

    return (
        decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB).permute(1, 2, 0).numpy()
    )


def tf_io(data: bytes) -> np.ndarray:
    """By TensorFlow, with the exact transform: its default is another, whose pixels differ."""
    import tensorflow as tf

    jpeg = data[:2] == b"\xff\xd8"
    image = tf.io.decode_jpeg(data, 3, dct_method="INTEGER_ACCURATE") if jpeg else tf.io.decode_png(data, 3)
    return image.numpy()


DECODERS: dict[str, tuple[str, Decode]] = {
    "Pillow": ("PIL", pillow),
    "OpenCV": ("cv2", opencv),
    "simplejpeg": ("simplejpeg", simplejpeg),
    "torchvision": ("torchvision", torchvision),
    "tf.io": ("tensorflow", tf_io),
}
"""By name: the package that must be there, and the function."""


def missing(decoder: str) -> str:
    """Return the package that a decoder lacks here; empty if it is there."""
    package = DECODERS[decoder][0]
    return "" if find_spec(package) else package
