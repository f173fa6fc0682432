"""The two schemes that docs/distributed.md writes from scratch, run on ranks, and the same by NumPy in one process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from deep500.distributed import Communicator
from deep500.networks import add_loss, create
from deep500.networks.dtype import to_dtype
from deep500.training.optimizers import GradientDescent
from tests.conftest import load_backend

PAGE = Path(__file__).resolve().parents[2] / "docs" / "distributed.md"
FEATURES, CLASSES, LR, STEPS, SAMPLES = 3, 4, 0.5, 7, 5


def scheme(name: str) -> Any:
    """A class of the page, made of its text."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (code,) = (block for block in blocks if f"class {name}(" in block)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code.partition("\ndef train")[0], str(PAGE), "exec"), names)  # our own text
    return names[name]


def batch(rank: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples of a rank in a step, and their classes."""
    rng = np.random.default_rng([rank, step])
    return rng.normal(size=(SAMPLES, FEATURES)), rng.integers(0, CLASSES, SAMPLES)


def network() -> Any:
    """Softmax regression in float64."""
    return to_dtype(add_loss(create("mlp", shape=(FEATURES,), classes=CLASSES, seed=3, hidden=())), "float64")


def trained(comm: Communicator, name: str, options: dict[str, Any], backend: str = "reference") -> Any:
    """Every step's weights and bias of this rank, and for elastic averaging the last centre."""
    executor = load_backend(backend).from_model(network(), "cpu")
    optimizer = scheme(name)(GradientDescent(executor, lr=LR), comm, **options)
    seen = []
    for step in range(STEPS):
        samples, classes = batch(comm.rank, step)
        optimizer.step({"input": samples, "label": classes})
        seen.append([array.tolist() for array in optimizer.arrays(optimizer.parameters())])
    center = [array.tolist() for array in getattr(optimizer, "center", [])]
    return {"names": optimizer.parameter_names(), "seen": seen, "center": center}


def updated(weight: np.ndarray, bias: np.ndarray, rank: int, step: int) -> list[np.ndarray]:
    """A step of gradient descent on the mean cross-entropy of softmax regression, by its formula."""
    samples, classes = batch(rank, step)
    scores = samples @ weight.T + bias
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    error = (shares / shares.sum(axis=1, keepdims=True) - np.eye(CLASSES)[classes]) / SAMPLES
    return [weight - LR * error.T @ samples, bias - LR * error.sum(axis=0)]


def elastic(start: list[np.ndarray], ranks: int, alpha: float) -> tuple[list[Any], list[np.ndarray]]:
    """Equations 5 and 6 of Zhang, Choromanska and LeCun 2015 with beta = P alpha: replicas by step, the last centre."""
    replicas, center, seen = [start] * ranks, start, []
    for step in range(STEPS):
        stepped = [updated(*replicas[rank], rank, step) for rank in range(ranks)]
        following = [
            [new - alpha * (old - c) for new, old, c in zip(stepped[rank], replicas[rank], center, strict=True)]
            for rank in range(ranks)
        ]
        means = [sum(replica[k] for replica in replicas) / ranks for k in range(2)]
        center = [(1 - ranks * alpha) * c + ranks * alpha * mean for c, mean in zip(center, means, strict=True)]
        replicas = following
        seen.append(replicas)
    return seen, center


def hierarchical(start: list[np.ndarray], ranks: int, group: int, every: int) -> list[Any]:
    """Replicas by step: the mean of a group, or of all."""
    replicas, seen = [start] * ranks, []
    for step in range(STEPS):
        stepped = [updated(*replicas[rank], rank, step) for rank in range(ranks)]
        width = ranks if (step + 1) % every == 0 else group
        parts = [stepped[rank // width * width : rank // width * width + width] for rank in range(ranks)]
        replicas = [[np.mean([member[k] for member in part], axis=0) for k in range(2)] for part in parts]
        seen.append(replicas)
    return seen
