"""One hash on every number of ranks, transport and number of threads, and what it costs.

    python -m tests.benchmarks.same_bits [--rows FILE] [--models lenet,resnet] [--backends reference,pytorch]

Trains with ReproducibleDecentralized on P = 1, 2, 3, 4, 6 ranks, over threads, MPI and torchrun (gloo), with
OMP_NUM_THREADS 1 and 2, and prints a table with the hash of all parameters per model and backend; ``--steps 200 --runs
2`` takes hours. Then the CPU time of a step of ResNet-20 on 2 ranks relative to ConsistentDecentralized (pairs), and on
one rank relative to the plain optimizer. To beat: one hash per model and backend, at most 1.5 and at most 1.3. With
``--rows`` every finished row is kept in FILE, and a run that was stopped goes on from there. LeNet reads 48 images of
32 x 32, ResNet-20 24 images of 16 x 16 in every step, and 48 of 32 x 32 where it is timed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from deep500 import registry
from deep500.distributed import Communicator, Serial, schemes
from deep500.measure.statistics import paired_ratio
from deep500.networks import add_loss, create
from deep500.training import optimizers
from tests.benchmarks.filling import say, say_ratio
from tests.distributed import ranks, torchrun

FIGURES = {
    "hashes of one model on one backend": "one",
    "step of ReproducibleDecentralized, 2 ranks": "at most 1.5 of ConsistentDecentralized",
    "step of ReproducibleDecentralized, 1 rank": "at most 1.3 of the plain optimizer",
}
HASHES, TWO_RANKS, ONE_RANK = FIGURES
TIMED = "resnet, batch 48"
IMAGES = {"lenet": (48, 1, 32, 32), "resnet": (24, 3, 16, 16), TIMED: (48, 3, 32, 32)}
"""The shape of a step's images."""
RANKS, TRANSPORTS = (1, 2, 3, 4, 6), ("threads", "mpi", "torchrun")


def optimizer(model: str, backend: str, kind: str, comm: Communicator) -> Any:
    """A momentum optimizer for this model, wrapped by a scheme (``"plain"``: not wrapped)."""
    network = add_loss(create(model.partition(",")[0], shape=IMAGES[model][1:], classes=10))
    executor = registry.load_backend(backend).from_model(network, "cpu")
    base = optimizers.MomentumOptimizer(executor, "loss", lr=0.01)
    return base if kind == "plain" else getattr(schemes, kind)(base, comm)


def share(model: str, step: int, comm: Communicator) -> dict[str, np.ndarray]:
    """This rank's samples of the batch of a step."""
    rng = np.random.default_rng(step)
    x = rng.normal(size=IMAGES[model]).astype("float32")
    return {"input": x[comm.rank :: comm.size], "label": rng.integers(0, 10, len(x))[comm.rank :: comm.size]}


def train(comm: Communicator, model: str, backend: str, steps: int) -> str:
    """A hash of the names and bits of all parameters after training."""
    scheme = optimizer(model, backend, "ReproducibleDecentralized", comm)
    for step in range(steps):
        scheme.step(share(model, step, comm))
    joined = b"".join(name.encode() + np.array(value).tobytes() for name, value in scheme.network.state().items())
    return hashlib.sha256(joined).hexdigest()[:16]


def step_times(comm: Communicator, kinds: list[str], pairs: int) -> list[list[float]]:
    """CPU seconds of this rank per step, by kind, which take turns."""
    made = [optimizer(TIMED, "pytorch", kind, comm) for kind in kinds]
    times: list[list[float]] = [[] for _ in kinds]
    for step in range(pairs + 2):
        batch = share(TIMED, step, comm)
        for one, taken in zip(made, times, strict=True):
            comm.barrier()
            begin = time.process_time()
            one.step(batch)
            taken.append(time.process_time() - begin)
    return [taken[2:] for taken in times]


def over_threads(size: int, threads: int, arguments: dict[str, Any]) -> list[str]:
    """In a process of its own, because libraries read OMP_NUM_THREADS once."""
    code = (
        "import json; from deep500.distributed import Threads; from tests.benchmarks.same_bits import train;"
        f"print(json.dumps(Threads({size}).run(train, *{tuple(arguments.values())!r})))"
    )
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    result: list[str] = json.loads(done.stdout.splitlines()[-1])
    return result


def over_processes(transport: str, size: int, threads: int, case: str, **arguments: Any) -> list[Any]:
    """What every rank returned."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        launch = ranks.launch if transport == "mpi" else torchrun.launch
        code, output = launch(f"tests.benchmarks.same_bits:{case}", size, file, arguments, threads=threads)
        if code:
            raise SystemExit(output)
        result: list[Any] = json.loads(file.read_text(encoding="utf-8"))
        return result


def points(models: list[str], backends: list[str], runs: int) -> Iterator[dict[str, Any]]:
    """All combinations."""
    for model, backend in itertools.product(models, backends):
        for size, threads, transport, run in itertools.product(RANKS, (1, 2), TRANSPORTS, range(1, runs + 1)):
            yield {
                "model": model,
                "backend": backend,
                "ranks": size,
                "threads": threads,
                "transport": transport,
                "run": run,
            }


def hashes(point: dict[str, Any], steps: int) -> list[str]:
    """The different hashes that the ranks of one run have."""
    arguments = {"model": point["model"], "backend": point["backend"], "steps": steps}
    if point["transport"] == "threads":
        return sorted(set(over_threads(point["ranks"], point["threads"], arguments)))
    return sorted(set(over_processes(point["transport"], point["ranks"], point["threads"], "train", **arguments)))


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: for each model, backend and number of ranks, how many runs there are, and their hashes."""
    lines = [f"| model, backend | {' | '.join(f'P = {p}' for p in RANKS)} | hashes |", "|" + "---|" * (len(RANKS) + 2)]
    for model, backend in dict.fromkeys((row["model"], row["backend"]) for row in rows):
        mine = [row for row in rows if (row["model"], row["backend"]) == (model, backend)]
        counts = [f"{sum(row['ranks'] == p for row in mine)} runs" for p in RANKS]
        found = sorted({name for row in mine for name in row["hashes"]})
        lines.append(f"| {model}, {backend} | {' | '.join(counts)} | {len(found)}: `{'`, `'.join(found)}` |")
    return "\n".join(lines)


def costs() -> bool:
    """The ratios of CPU times; whether both bars are met."""
    two = over_processes(
        "mpi", 2, 1, "step_times", kinds=["ReproducibleDecentralized", "ConsistentDecentralized"], pairs=10
    )
    one = step_times(Serial(), ["ReproducibleDecentralized", "plain"], 10)
    met = say_ratio(TWO_RANKS, {TIMED: paired_ratio(*two[0])}, at_most=1.5)
    return say_ratio(ONE_RANK, {TIMED: paired_ratio(*one)}, at_most=1.3) and met


def main() -> int:
    """All of it; 1 where there is more than one hash of a model on a backend."""
    for name in ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # they would take the place of OMP_NUM_THREADS
        os.environ.pop(name, None)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--runs", type=int, default=1, help="of each combination")
    parser.add_argument("--models", default="lenet,resnet")
    parser.add_argument("--backends", default="reference,pytorch")
    parser.add_argument("--rows", type=Path, help="keep finished rows here, and go on from those that are there")
    parser.add_argument("--no-costs", action="store_true", help="hashes only")
    chosen = parser.parse_args()
    kept = chosen.rows.read_text().splitlines() if chosen.rows and chosen.rows.exists() else []
    rows = [row for row in map(json.loads, kept) if row["steps"] == chosen.steps]
    known = {tuple(row[name] for name in ("model", "backend", "ranks", "threads", "transport", "run")) for row in rows}
    for point in points(chosen.models.split(","), chosen.backends.split(","), chosen.runs):
        if tuple(point.values()) in known:
            continue
        row = {**point, "steps": chosen.steps, "hashes": hashes(point, chosen.steps)}
        rows.append(row)
        print(*row.values(), flush=True)
        if chosen.rows:
            with chosen.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(table(rows))
    met = chosen.no_costs or costs()
    found: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        found.setdefault((row["model"], row["backend"]), set()).update(row["hashes"])
    text = ", ".join(f"{len(names)} of {model} on {backend}" for (model, backend), names in found.items())
    text += f"; {len(rows)} runs of {chosen.steps} steps"
    return 0 if say(HASHES, text, all(len(names) == 1 for names in found.values())) and met else 1


if __name__ == "__main__":
    raise SystemExit(main())
