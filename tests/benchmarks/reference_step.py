"""One training step of ``simple_cnn`` (batch 64, 1x28x28, momentum update): the NumPy reference against raw PyTorch.

    python -m tests.benchmarks.reference_step [--turns 31]

Both start from the same weights and take turns, on one thread each, after warm-up; CPU time is compared. The bar is a
ratio of 15; exit code 1 when the interval's upper end misses it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is imported
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch
import torch.nn.functional as F

import deep500.networks as d5nt
from deep500.frameworks.reference import MomentumOptimizer, from_model
from deep500.measure.environment import describe
from deep500.measure.statistics import median_interval, paired_ratio
from deep500.networks import Network
from tests.benchmarks.filling import say_ratio

FIGURES = {"a training step of simple_cnn over raw PyTorch, CPU time": "at most 15, by the upper bound"}
(FIGURE,) = FIGURES

BAR = 15.0
BATCH = 64


def torch_step(network: Network, images: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    """The same step written by hand with ``torch.nn.functional``."""
    p = {n: torch.nn.Parameter(torch.from_numpy(v.value.copy())) for n, v in network.parameters.items() if v.trainable}
    optimizer = torch.optim.SGD(p.values(), lr=0.01, momentum=0.9)
    x, y = torch.from_numpy(images), torch.from_numpy(labels)

    def step() -> float:
        optimizer.zero_grad()
        h = F.max_pool2d(F.relu(F.conv2d(x, p["conv1.weight"], p["conv1.bias"], padding=1)), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, p["conv2.weight"], p["conv2.bias"], padding=1)), 2)
        h = F.relu(F.linear(h.flatten(1), p["fc1.weight"], p["fc1.bias"]))
        loss = F.cross_entropy(F.linear(h, p["fc2.weight"], p["fc2.bias"]), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def reference_step(network: Network, images: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    """The step on the reference backend."""
    optimizer = MomentumOptimizer(from_model(network), "loss", 0.01, 0.9)
    return lambda: float(optimizer.step({"input": images, "label": labels})["loss"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=31)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((BATCH, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, BATCH)
    network = d5nt.add_loss(d5nt.create("simple_cnn"))
    steps = {"reference": reference_step(network, images, labels), "torch": torch_step(network, images, labels)}
    costs: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(turns + 3):
        losses = {}
        for name, step in steps.items():
            start = time.process_time()
            losses[name] = step()
            if turn >= 3:
                costs[name].append(1e3 * (time.process_time() - start))
        if abs(losses["reference"] - losses["torch"]) > 1e-3:
            sys.exit(f"step {turn}: got losses {losses}; expected the same training on both: this compares nothing")
    ratio = paired_ratio(costs["reference"], costs["torch"])
    print(f"{describe()['cpu']}; one training step of simple_cnn, batch {BATCH}, 1x28x28, one thread, CPU time")
    for name, values in costs.items():
        print(f"  {name:10} {median_interval(values)} ms")
    return 0 if say_ratio(FIGURE, ratio, at_most=BAR) else 1


if __name__ == "__main__":
    sys.exit(main())
