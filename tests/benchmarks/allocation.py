"""The gain of an allocator that keeps freed memory: ``python -m tests.benchmarks.allocation [--rounds N]``.

Training steps of networks in PyTorch, with one thread, in processes of their own that take turns in random order: with
the recipe key ``malloc="kept"``, and without. Medians of CPU time of a step, system time included, and the peak of the
process's memory. Results are the same bits, which the program checks. Exit code: 0 met, 1 missed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys

from deep500.measure.statistics import paired_ratio
from tests.benchmarks.filling import say_ratio

FIGURES = {
    "a step of ResNet-20 at batch 256 with malloc='kept' over one without, CPU time": "below 1, by the upper bound"
}
(FIGURE,) = FIGURES

NETWORKS = {"resnet": (256, 3, 32, 32), "repvgg": (64, 3, 32, 32), "lenet": (256, 3, 32, 32)}

STEPS = """
import hashlib, json, resource, sys, time
import numpy as np, torch
import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.measure.allocation import KEPT, set_allocator
name, shape, kept, steps = json.loads(sys.argv[1])
torch.set_num_threads(1)
if kept:
    set_allocator(KEPT)
executor = d5fw.from_model(d5.add_loss(d5.networks.create(name, shape=tuple(shape[1:]))))
optimizer = d5fw.GradientDescent(executor, "loss", lr=0.01)
rng = np.random.default_rng(0)
batch = {"input": rng.standard_normal(shape).astype(np.float32), "label": np.arange(shape[0]) % 10}
spent = []
for _ in range(steps + 2):
    begin = time.process_time()
    results = optimizer.step(batch)
    spent.append(time.process_time() - begin)
state = executor.network.state()
digest = hashlib.sha256(b"".join(state[key].tobytes() for key in sorted(state))).hexdigest()
print(json.dumps([float(np.median(spent[2:])), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, digest]))
"""


def run(name: str, kept: bool, steps: int) -> tuple[float, float, str]:
    """CPU seconds of a step, MiB of the process at most, and a digest of what was trained."""
    words = json.dumps([name, NETWORKS[name], kept, steps])
    done = subprocess.run([sys.executable, "-c", STEPS, words], capture_output=True, text=True, check=True)
    seconds, memory, digest = json.loads(done.stdout.splitlines()[-1])
    return seconds, memory, digest


def main() -> int:
    """Print a line for each network; 1 unless the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="pairs of processes")
    parser.add_argument("--steps", type=int, default=8, help="of each process")
    options, met = parser.parse_args(), True
    order = random.Random(0)
    for name in NETWORKS:
        results: dict[bool, list[tuple[float, float, str]]] = {True: [], False: []}
        for _ in range(options.rounds):
            for kept in order.sample([True, False], 2):
                results[kept].append(run(name, kept, options.steps))
        assert len({digest for runs in results.values() for _, _, digest in runs}) == 1, f"{name}: other bits"
        times, memory = ([[r[column] for r in results[kept]] for kept in (True, False)] for column in (0, 1))
        ratio, more = paired_ratio(*times), paired_ratio(*memory)
        print(f"{name}, batch {NETWORKS[name][0]}: CPU time of a step {ratio}, memory of the process {more}")
        if name == "resnet":
            met = say_ratio(FIGURE, ratio, at_most=1)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
