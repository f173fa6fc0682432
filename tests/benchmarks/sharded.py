"""What a rank holds, and what it works for that: ``python -m tests.benchmarks.sharded [--backends reference,pytorch]``.

Memory: over MPI with 1 to 4 ranks, bytes between steps and at most in a step by the allocators' own counts, in units of
the parameters (tests/distributed/memory_cases.py); the fullest rank. Work: processor time of a step of both of two
ranks that take turns in one process, over ConsistentDecentralized's, in nine pairs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deep500.distributed import Communicator, Threads, schemes
from deep500.measure.statistics import paired_ratio
from deep500.networks import Network, add_loss, create
from deep500.registry import load_backend
from deep500.training.optimizers import AdamOptimizer
from tests.benchmarks.filling import say, say_ratio
from tests.distributed import ranks as driver
from tests.distributed.memory_cases import held_and_peak

FIGURES = {
    "memory: bytes a rank holds and at most, over the parameters": "no bar",
    "work: a step of two ranks over ConsistentDecentralized's": "no bar",
}
MEMORY, WORK = FIGURES
SCHEMES = ("ConsistentDecentralized", "ShardedOptimizer", "ShardedParameters", "Pipeline")
NETWORKS: dict[str, tuple[Callable[[], Network], int]] = {
    "perceptron": (lambda: create("mlp", shape=(512,), hidden=(512,) * 8, classes=10), 64),
    "ResNet-20": (lambda: create("resnet", depth=20, shape=(3, 16, 16), classes=4), 32),
}
ROUNDS = 9


def memory(backend: str, scheme: str, count: int) -> tuple[float, float]:
    """Held and at most, over the parameters, of the fullest of these ranks."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        arguments = {"scheme": scheme, "backend": backend, "width": 512, "layers": 8}
        code, output = driver.launch(driver.name_of(held_and_peak), count, file, arguments)
        if code:
            raise SystemExit(output)
        found = json.loads(file.read_text(encoding="utf-8"))
    return tuple(max(rank[what] / rank["parameters"] for rank in found) for what in ("held", "peak"))  # type: ignore[return-value]


def work(comm: Communicator, backend: str, name: str) -> dict[str, list[float]]:
    """Seconds of processor time of every scheme's steps, in turns."""
    make, size = NETWORKS[name]
    network, rng = add_loss(make()), np.random.default_rng(0)
    shape = [size, *(network.inputs["input"].shape or ())[1:]]
    batch = {"input": rng.normal(size=shape).astype("float32"), "label": rng.integers(0, 4, size)}
    made: dict[str, Any] = {}
    for scheme in SCHEMES:
        executor = load_backend(backend).from_model(add_loss(make()), "cpu")
        made[scheme] = getattr(schemes, scheme)(AdamOptimizer(executor), comm)
    times: dict[str, list[float]] = {scheme: [] for scheme in SCHEMES}
    for turn in range(ROUNDS + 1):
        for scheme, optimizer in made.items():
            computing = optimizer.computing_ranks(comm.size)
            mine = slice(comm.rank, None, len(computing)) if comm.rank in computing else slice(0, 0)
            comm.barrier()
            begin = time.process_time()
            optimizer.step({key: value[mine] for key, value in batch.items()})
            comm.barrier()
            if turn:  # the first compiles
                times[scheme].append(time.process_time() - begin)
    return times


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="reference,pytorch")
    counts, ratios, most = (1, 2, 3, 4), {}, []
    for backend in parser.parse_args().backends.split(","):
        load_backend(backend)
        for name in NETWORKS:
            times = Threads(2).run(work, backend, name)[0]
            for scheme in SCHEMES[1:]:
                key = f"{scheme}, {name}, {backend}"
                ratios[key] = paired_ratio(times[scheme], times[SCHEMES[0]])
                print(f"work: {key}: {1e3 * np.median(times[scheme]):.1f} ms, ratio {ratios[key]}", flush=True)
        for scheme in SCHEMES:
            cells = ["{:.2f} and {:.2f}".format(*memory(backend, scheme, count)) for count in counts]
            print(f"memory: {backend} {scheme} on {counts} ranks: {', '.join(cells)}", flush=True)
            most.append(f"{scheme}, {backend} {cells[-1]}")
    say_ratio(WORK, ratios)
    say(MEMORY, f"{', '.join(most)}, {counts[-1]} ranks")


if __name__ == "__main__":
    main()
