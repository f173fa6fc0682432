"""``digit_scenes``: pictures with several of scikit-learn's real scanned digits in them, and the box of each.

A scene is 64x64 grey pixels with one to five digits of 12 to 26 pixels, in front of a soft background; boxes are exact,
because they are taken from the ink that was put there. The scans are divided before scenes are composed: no scan is
both in a training and in a test scene. Everything but the scans is generated: a detector that is good here is not
thereby good on photographs.
"""

from __future__ import annotations

import numpy as np

from deep500.training.data.augmentation import resize
from deep500.training.data.boxes import BoxDataset
from deep500.training.data.catalog import BuiltIn, register_dataset
from deep500.training.data.sets.digits import LICENCE, scans, split

SIDE, SMALLEST, LARGEST, MOST = 64, 12, 26, 5
COUNTS = (2000, 400)
INK = 0.25
"""A pixel belongs to a digit where its ink is at least so dark."""
TRIES = 30


def digit_scenes(seed: int = 0, train: int = COUNTS[0], test: int = COUNTS[1]) -> tuple[BoxDataset, BoxDataset]:
    """Training and test scenes: uint8 inside, float32 (1, 64, 64) in [0, 1] outside, with padded boxes.

    Args:
        seed: decides which digits stand where, and the backgrounds.
        train, test: numbers of scenes.
    """
    images, labels = scans()
    scenes = []
    for half, count, stream in zip(split(), (train, test), (1, 2), strict=True):
        rng = np.random.default_rng([seed, stream])
        scenes.append(_compose(images[half] / np.float32(16), labels[half], count, rng))
    where = f"scenes composed of scikit-learn's digits (1,797 real scans; seed {seed})"
    return tuple(  # type: ignore[return-value]
        BoxDataset(*part, name="digit_scenes", classes=10, scale=255, provenance=where) for part in scenes
    )


def _compose(
    scans: np.ndarray, labels: np.ndarray, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    sizes = {side: resize(scans[:, None], side)[:, 0] for side in range(SMALLEST, LARGEST + 1)}
    pictures = _backgrounds(count, rng)
    boxes, numbers = np.zeros((count, MOST, 4), np.float32), np.full((count, MOST), -1, np.int64)
    for scene in range(count):
        placed = 0
        number = int(rng.integers(1, MOST + 1))
        for _ in range(TRIES):
            if placed == number:
                break
            which, side = int(rng.integers(len(scans))), int(rng.integers(SMALLEST, LARGEST + 1))
            top, left = rng.integers(0, SIDE - side + 1, 2)
            ink = sizes[side][which]
            rows, columns = (np.flatnonzero((ink >= INK).any(axis=axis)) for axis in (1, 0))
            box = np.array([left + columns[0], top + rows[0], left + columns[-1] + 1, top + rows[-1] + 1], np.float32)
            if _apart(box, boxes[scene, :placed]):
                part = pictures[scene, top : top + side, left : left + side]
                np.maximum(part, ink * rng.uniform(0.7, 1.0), out=part)
                boxes[scene, placed], numbers[scene, placed] = box, labels[which]
                placed += 1
    return np.rint(255 * np.clip(pictures, 0, 1)).astype(np.uint8)[:, None], boxes, numbers


def _apart(box: np.ndarray, others: np.ndarray) -> bool:
    """Return whether a box keeps a pixel's distance to all others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    return not ((high - low) > -1).all(axis=1).any()


def _backgrounds(count: int, rng: np.random.Generator) -> np.ndarray:
    """Soft grey clouds with a little noise, (count, 64, 64) float32 from 0 to 0.4."""
    coarse = rng.uniform(0, 0.3, (count, 1, 5, 5)).astype(np.float32)
    soft = resize(coarse, SIDE)[:, 0]
    return soft + rng.uniform(0, 0.1, soft.shape).astype(np.float32)


register_dataset(
    BuiltIn(
        "digit_scenes",
        10,
        (1, SIDE, SIDE),
        COUNTS,
        "scenes of real scanned digits with boxes",
        licence=LICENCE,
        make=digit_scenes,
    )
)
