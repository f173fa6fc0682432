"""How fast the loader alone is: CIFAR-shaped samples per second with crop and flip.

    python -m tests.benchmarks.loader [--epochs 9] [--batch-size 128]

The data are random bytes of CIFAR-10's size and dtype; nothing consumes the batches. The variants take turns, one
epoch each, after one round of warm-up. The bar is 20,000 samples/s for the plain sampler; exit code 1 when missed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable

import numpy as np

from deep500.measure.environment import describe
from deep500.measure.statistics import median_interval
from deep500.training.data import NumpyDataset
from deep500.training.data.augmentation import Crop, Flip
from deep500.training.data.prefetch import Prefetch
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler
from tests.benchmarks.filling import say_ratio

FIGURES = {"samples/s, crop and flip, plain sampler": "at least 20,000, by the lower bound"}
(FIGURE,) = FIGURES

BAR = 20_000  # samples/s
SAMPLES = 50_000


def rate(batches: Iterable[dict[str, np.ndarray]]) -> float:
    """Samples per second of one pass over ``batches``."""
    start, count = time.perf_counter(), 0
    for batch in batches:
        count += len(batch["input"])
    return count / (time.perf_counter() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=9, help="measured epochs per variant")
    parser.add_argument("--batch-size", type=int, default=128)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (SAMPLES, 3, 32, 32), dtype=np.uint8)
    data = NumpyDataset(pixels, "input", rng.integers(0, 10, SAMPLES), scale=255, name="CIFAR-shaped random bytes")
    augmented = ShuffleSampler(data, options.batch_size, transformations=[Crop(32, padding=4), Flip()])
    variants = {
        "crop + flip": augmented,
        "crop + flip, prefetched by 1 thread": Prefetch(augmented, workers=1),
        "crop + flip, prefetched by 2 threads": Prefetch(augmented, workers=2),
        "in order, not augmented": OrderedSampler(data, options.batch_size),
    }
    rates: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(options.epochs + 1):
        for name, sampler in variants.items():
            sampler.set_epoch(turn)
            measured = rate(sampler)
            if turn:
                rates[name].append(measured)
    where = describe()
    print(f"{where['cpu']}, {where['usable_cores']} cores; batch {options.batch_size}; {SAMPLES} samples per epoch")
    for name, values in rates.items():
        print(f"{name:40s} {median_interval(values)} samples/s")
    return 0 if say_ratio(FIGURE, median_interval(rates["crop + flip"]), at_least=BAR) else 1


if __name__ == "__main__":
    raise SystemExit(main())
