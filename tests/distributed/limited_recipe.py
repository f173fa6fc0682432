"""A recipe whose network has 1.5 times the bytes that the kernel lets a rank allocate from its data on (``RLIMIT_AS``).

``SCHEME``: which; ``KILL_AT``: the step after which rank 1 kills itself. Every rank prints what it came to need.
"""

import os
import re
import resource
import signal
import sys
from pathlib import Path

import scipy.stats  # noqa: F401 - what is imported is no part of the limit
import torch.distributed.fsdp  # noqa: F401

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.recipe import run_recipe

LIMIT = 320 * 2**20
WIDTH = 2048
LAYERS = int(1.5 * LIMIT / (4 * WIDTH * WIDTH)) + 1
BEFORE = []


def size(name):
    """A line of the kernel's, in bytes."""
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def data():
    """Few digits; and from here on the limit holds."""
    parts = []
    for part, count in zip(d5.load_dataset("digits"), (24, 13), strict=True):
        batch = part[range(count)]
        parts.append(d5.NumpyDataset(batch["input"], "input", batch["label"]))
    BEFORE.append(size("VmSize"))
    resource.setrlimit(resource.RLIMIT_AS, (BEFORE[0] + LIMIT,) * 2)
    return tuple(parts)


class Watch(d5.Event):
    """Kills this rank if it is to, and says its peak at the end."""

    def after_batch(self, run):
        if d5.distributed.world().rank == 1 and str(run.step) == os.environ.get("KILL_AT"):
            os.kill(os.getpid(), signal.SIGKILL)

    def after_run(self, run):
        os.write(1, f"needed {size('VmPeak') - BEFORE[0]} of {LIMIT} for {4 * LAYERS * WIDTH * WIDTH}\n".encode())


FIXED = {"model": "mlp", "model_kwargs": {"hidden": (WIDTH,) * LAYERS}, "dataset": data, "epochs": 2}
MUTABLE = {
    "batch_size": 12,
    "executor": d5fw.from_model,
    "optimizer": d5fw.GradientDescent,
    "optimizer_kwargs": dict(lr=0.01),
    "scheme": getattr(d5.schemes, os.environ.get("SCHEME", "FSDP")),
    "events": [Watch],
    "keep_checkpoints": 1,
    "malloc": "returned",  # else glibc keeps what layers leave, several times the size of the network
}
METRICS = [(d5.TestAccuracy(), 0.0)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or sys.exit(1)
