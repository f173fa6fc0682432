"""A case for real ranks: what a rank holds between steps and at most during one, by allocators' own counts."""

from __future__ import annotations

import gc
import tracemalloc
from functools import partial
from typing import Any

import numpy as np

from deep500.distributed import Communicator, schemes
from deep500.networks import add_loss, create
from deep500.registry import load_backend
from deep500.training.optimizers import AdamOptimizer

BATCH = 32


def held_and_peak(
    comm: Communicator, scheme: str, backend: str, width: int, layers: int, arguments: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A perceptron of equal layers with Adam in float32: bytes held after two steps, and at most during the third.

    NumPy's are counted by tracemalloc, PyTorch's by its allocator; where both count, the peak is the sum of theirs,
    which need not fall together. Gradients that a backend leaves behind after a step count as held.
    """
    module = load_backend(backend)
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(BATCH, width)).astype("float32")
    labels = rng.integers(0, 10, BATCH)

    def make(width: int = width) -> Any:
        network = add_loss(create("mlp", shape=(width,), hidden=(width,) * layers, classes=10))
        parameters = sum(p.value.nbytes for p in network.parameters.values())
        made = getattr(schemes, scheme)(AdamOptimizer(module.from_model(network, "cpu")), comm, **(arguments or {}))
        computing = made.computing_ranks(comm.size)
        mine = slice(comm.rank, None, len(computing)) if comm.rank in computing else slice(0, 0)
        return made, {"input": samples[mine], "label": labels[mine]}, parameters

    kept: list[Any] = []
    first, batch, _ = make(8)  # what the backend loads when it is first used
    few = slice(0, 0 if len(batch["label"]) == 0 else 2)
    _footprint(partial(first.step, {"input": samples[few, :8], "label": labels[few]}), backend)
    del first
    tracemalloc.start()

    def begin() -> None:
        optimizer, batch, parameters = make()
        for _ in range(2):
            optimizer.step(batch)
        kept.extend((optimizer, batch, parameters))

    native = _footprint(begin, backend)
    optimizer, batch, parameters = kept
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] + native[1]
    tracemalloc.reset_peak()
    optimizer.step(batch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    peak += native[1] + _footprint(lambda: optimizer.step(batch), backend)[0]
    return {"parameters": parameters, "held": held, "peak": peak, "rank": comm.rank}


def _footprint(run: Any, backend: str) -> tuple[int, int]:
    """Peak and rest of PyTorch's allocator; its own lists are out of tracemalloc's sight."""
    if backend != "pytorch":
        run()
        return 0, 0
    from deep500.frameworks.pytorch.memory import footprint, settle

    settle()
    found = footprint(run)
    gc.collect()
    return found.peak, found.left
