"""One hash on every number of ranks, transport and number of threads, and what it costs.

    python -m tests.benchmarks.same_bits [STEPS] [MODELS] [BACKENDS]

Trains (200 steps, lenet and resnet, reference and pytorch) with ReproducibleDecentralized over threads and MPI on
P = 1, 2, 3, 4, 6 ranks with OMP_NUM_THREADS 1 and 2, each twice, and prints a hash of all parameters per row, then the
CPU time of a step of ResNet-20 on 2 ranks relative to ConsistentDecentralized (pairs), and on one rank relative to the
plain optimizer. To beat: one hash per model and backend, at most 1.5 and at most 1.3.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from deep500 import registry
from deep500.distributed import Communicator, Serial, schemes
from deep500.distributed.launch import find_mpiexec
from deep500.networks import add_loss, create
from deep500.training import optimizers
from tests.distributed import ranks

FIGURES = {
    "hashes of one model on one backend": "one",
    "step of ReproducibleDecentralized, 2 ranks": "at most 1.5 of ConsistentDecentralized",
    "step of ReproducibleDecentralized, 1 rank": "at most 1.3 of the plain optimizer",
}
BATCH, CHANNELS = 48, {"lenet": 1, "resnet": 3}


def optimizer(model: str, backend: str, kind: str, comm: Communicator) -> Any:
    """A momentum optimizer for this model, wrapped by a scheme (``"plain"``: not wrapped)."""
    shape = (CHANNELS[model], 32, 32)
    executor = registry.load_backend(backend).from_model(add_loss(create(model, shape=shape, classes=10)), "cpu")
    base = optimizers.MomentumOptimizer(executor, "loss", lr=0.01)
    return base if kind == "plain" else getattr(schemes, kind)(base, comm)


def share(model: str, step: int, comm: Communicator) -> dict[str, np.ndarray]:
    """This rank's samples of the batch of a step."""
    rng = np.random.default_rng(step)
    x = rng.normal(size=(BATCH, CHANNELS[model], 32, 32)).astype("float32")
    return {"input": x[comm.rank :: comm.size], "label": rng.integers(0, 10, BATCH)[comm.rank :: comm.size]}


def train(comm: Communicator, model: str, backend: str, steps: int) -> str:
    """A hash of the names and bits of all parameters after training."""
    scheme = optimizer(model, backend, "ReproducibleDecentralized", comm)
    for step in range(steps):
        scheme.step(share(model, step, comm))
    joined = b"".join(name.encode() + np.array(value).tobytes() for name, value in scheme.network.state().items())
    return hashlib.sha256(joined).hexdigest()[:16]


def step_times(comm: Communicator, kinds: list[str], pairs: int) -> list[list[float]]:
    """CPU seconds of this rank per step, by kind, which take turns."""
    made = [optimizer("resnet", "pytorch", kind, comm) for kind in kinds]
    times: list[list[float]] = [[] for _ in kinds]
    for step in range(pairs + 2):
        batch = share("resnet", step, comm)
        for one, taken in zip(made, times, strict=True):
            comm.barrier()
            begin = time.process_time()
            one.step(batch)
            taken.append(time.process_time() - begin)
    return [taken[2:] for taken in times]


def over_threads(size: int, model: str, backend: str, steps: int) -> list[str]:
    """In a process of its own, because libraries read OMP_NUM_THREADS once."""
    code = (
        "import json; from deep500.distributed import Threads; from tests.benchmarks.same_bits import train;"
        f"print(json.dumps(Threads({size}).run(train, {model!r}, {backend!r}, {steps})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    result: list[str] = json.loads(done.stdout.splitlines()[-1])
    return result


def over_mpi(size: int, case: str, **arguments: Any) -> list[Any]:
    """What every rank returned."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        case = f"tests.benchmarks.same_bits:{case}"
        words = [find_mpiexec(), "-n", str(size), sys.executable, "-m", "tests.distributed.ranks", case, str(file)]
        threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        variables = {**ranks.environment(size, ranks.LIMIT), **threads}
        code, output = ranks.finish([*words, json.dumps(arguments)], variables, ranks.LIMIT)
        if code:
            raise SystemExit(output)
        result: list[Any] = json.loads(file.read_text(encoding="utf-8"))
        return result


def hashes(model: str, backend: str, steps: int) -> None:
    """Print a row per number of ranks, transport, threads and run."""
    found: set[str] = set()
    for size in (1, 2, 3, 4, 6):
        for threads in ("1", "2"):
            os.environ["OMP_NUM_THREADS"] = threads
            for transport in ("threads", "mpi"):
                for run in (1, 2):
                    if transport == "mpi":
                        seen = over_mpi(size, "train", model=model, backend=backend, steps=steps)
                    else:
                        seen = over_threads(size, model, backend, steps)
                    found |= set(seen)
                    where = f"{model} {backend} P={size} {transport} OMP_NUM_THREADS={threads} run {run}"
                    print(f"{where}: {' '.join(sorted(set(seen)))}", flush=True)
    print(f"{model} {backend}: {len(found)} hash{'es' * (len(found) > 1)} (to beat: one)", flush=True)


def costs() -> None:
    """Print the ratios of CPU times, the median over pairs and their range."""
    two = over_mpi(2, "step_times", kinds=["ReproducibleDecentralized", "ConsistentDecentralized"], pairs=10)
    one = step_times(Serial(), ["ReproducibleDecentralized", "plain"], 10)
    for what, (ours, theirs), bar in (("2 ranks", two[0], 1.5), ("1 rank", one, 1.3)):
        ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
        print(
            f"{what}: {statistics.median(ratios):.2f} [{ratios[0]:.2f}-{ratios[-1]:.2f}] (to beat: {bar})", flush=True
        )


def main(steps: str = "200", models: str = "lenet,resnet", backends: str = "reference,pytorch") -> None:
    """All of it."""
    costs()
    for model in models.split(","):
        for backend in backends.split(","):
            hashes(model, backend, int(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
