"""What communication costs: ``python -m tests.benchmarks.distributed [--rounds N] [--only sum,step,alone,schemes]``.

Two ranks with one thread each, which exchange by our MPI communicator and by PyTorch's gloo in the same two processes.
Variants take turns in random order, the same on both ranks; a sample is the time of the slower rank, each round gives
one pair. The baseline against itself shows what the method cannot resolve. Parts:

* ``sum``: all-reduce of 25 MB float32.
* ``step``: ``ConsistentDecentralized`` against DistributedDataParallel on the same module, with fused momentum SGD and
  without its broadcast of running statistics (we exchange them before an evaluation only); ResNet-20, global batch 64.
* ``alone``: a step of the wrapped optimizer on one rank against the same optimizer's own.
* ``schemes``: every scheme's 8 steps against DistributedDataParallel's, and the bytes that it sends per step.
"""

from __future__ import annotations

import argparse
import inspect
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import deep500.frameworks.pytorch as d5fw
from deep500.distributed import Communicator, Serial, schemes
from deep500.distributed.launch import find_mpiexec
from deep500.distributed.schemes import ConsistentDecentralized
from deep500.distributed.transports.mpi import MPI
from deep500.errors import Deep500Error
from deep500.measure.statistics import Interval, paired_ratio
from deep500.networks import add_loss, create
from deep500.training.optimizers import MomentumOptimizer, Optimizer
from tests.benchmarks.filling import say_ratio
from tests.distributed import ranks

FIGURES = {
    "sum: all-reduce of 25 MB over gloo's": "at most 1.00",
    "step: ResNet-20, batch 64, 2 ranks, over DistributedDataParallel": "at most 1.05",
    "alone: a step of the wrapped optimizer on one rank over its own": "at most 1.01",
    "schemes: 8 steps over DistributedDataParallel's, by scheme": "no bar",
    "schemes: MB that the ranks send in a step, by scheme": "no bar",
}
SUM, STEP, ALONE, SCHEMES, BYTES = FIGURES

BATCH, LR, MOMENTUM, STEPS = 64, 0.01, 0.9, 8
NEED = {"TopK": {"ratio": 0.01}}
"""Arguments of schemes that have no default."""
THREE_STEP = ("Pipeline", "ShardedOptimizer", "ShardedParameters")
"""Schemes that want an optimizer in three steps."""
Work = Callable[[], object]


def in_turns(comm: Communicator, variants: Mapping[str, Work], rounds: int, warm_up: int = 3) -> dict[str, np.ndarray]:
    """Seconds of each variant in each round, on the slower rank; a failure of ours on a rank ends the whole job."""
    order, names = random.Random(0), list(variants)
    times = {name: np.empty(rounds) for name in names}
    for i in range(-warm_up, rounds):
        for name in order.sample(names, len(names)):
            comm.barrier()
            begin = time.perf_counter()
            variants[name]()
            elapsed = np.array([time.perf_counter() - begin])
            times[name][max(i, 0)] = comm.all_gather(elapsed).max()  # warm-up rounds are overwritten
    return times


def show(comm: Communicator, part: str, times: Mapping[str, np.ndarray], baseline: str) -> Interval:
    """Print medians of paired ratios on rank 0; returns that of the part's first variant."""
    ratios = {name: paired_ratio(samples, times[baseline]) for name, samples in times.items() if name != baseline}
    if comm.rank == 0:
        milliseconds = 1e3 * float(np.median(times[baseline]))
        print(f"\n{part}: {baseline} {milliseconds:.3g} ms (median of {len(times[baseline])})", flush=True)
        for name, ratio in ratios.items():
            print(f"  {name:32} {ratio}", flush=True)
    return next(iter(ratios.values()))


def sums(comm: Communicator, rounds: int) -> None:
    """All-reduce of 25 MB."""
    array, tensor = np.zeros(6_250_000, np.float32), torch.zeros(6_250_000)
    other = d5fw.TorchDistributed(backend="gloo")
    variants: dict[str, Work] = {
        "MPI": lambda: comm.all_reduce(array),
        "MPI, started and waited for": lambda: comm.start_all_reduce(array).wait(),
        "TorchDistributed (gloo)": lambda: other.all_reduce(array),
        "gloo again": lambda: dist.all_reduce(tensor),
        "gloo": lambda: dist.all_reduce(tensor),
    }
    ratio = show(comm, "sum", in_turns(comm, variants, rounds), "gloo")
    if comm.rank == 0:
        say_ratio(SUM, ratio, at_most=1.0)
    other.close()


def batch_of(size: int, seed: int) -> dict[str, torch.Tensor]:
    """Noise in CIFAR's shape."""
    rng = np.random.default_rng(seed)
    images = rng.standard_normal((size, 3, 32, 32)).astype(np.float32)
    return {"input": torch.from_numpy(images), "label": torch.from_numpy(rng.integers(0, 10, size))}


def our_optimizer(kind: type[Optimizer] = d5fw.MomentumOptimizer) -> Any:
    """ResNet-20 with momentum."""
    return kind(d5fw.from_model(add_loss(create("resnet", depth=20))), "loss", lr=LR, momentum=MOMENTUM)


def ddp_step(inputs: Mapping[str, torch.Tensor]) -> Work:
    """The same module under DistributedDataParallel."""
    executor = our_optimizer().executor
    place, arguments = list(executor.network.outputs).index("loss"), [inputs[name] for name in executor.network.inputs]
    kind = torch.nn.parallel.DistributedDataParallel
    old = "forward_sync_buffers" not in inspect.signature(kind).parameters
    model = kind(executor.module, **{"broadcast_buffers" if old else "forward_sync_buffers": False})
    optimizer = torch.optim.SGD(model.parameters(), LR, MOMENTUM, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        model(*arguments)[place].backward()
        optimizer.step()

    return step


def waiting(always: bool) -> MPI:
    """A communicator that waits in one way, whatever the cores are used for."""
    comm = MPI()
    comm.waiting.always = always
    return comm


def steps(comm: Communicator, rounds: int) -> None:
    """A training step."""
    inputs = batch_of(BATCH // comm.size, comm.rank)
    ours = {overlap: ConsistentDecentralized(our_optimizer(), comm, overlap=overlap) for overlap in (True, False)}
    spins, pauses = (ConsistentDecentralized(our_optimizer(), waiting(always)) for always in (False, True))
    over_gloo = ConsistentDecentralized(our_optimizer(), other := d5fw.TorchDistributed(backend="gloo"))
    variants: dict[str, Work] = {
        "ConsistentDecentralized": lambda: ours[True].step(inputs),
        "without overlap": lambda: ours[False].step(inputs),
        "spinning": lambda: spins.step(inputs),
        "pausing": lambda: pauses.step(inputs),
        "over TorchDistributed (gloo)": lambda: over_gloo.step(inputs),
        "DDP again": ddp_step(inputs),
        "DDP": ddp_step(inputs),
    }
    ratio = show(comm, "step", in_turns(comm, variants, rounds), "DDP")
    if comm.rank == 0:
        say_ratio(STEP, ratio, at_most=1.05)
    other.close()


def alone(rounds: int) -> None:
    """One process, the same optimizer with and without wrapper, so that only the wrapper differs."""
    inputs, base = batch_of(8, 0), our_optimizer()
    wrapped = ConsistentDecentralized(base, Serial())
    variants: dict[str, Work] = {
        "wrapped": lambda: wrapped.step(inputs),
        "bare again": lambda: base.step(inputs),
        "bare": lambda: base.step(inputs),
    }
    say_ratio(ALONE, show(Serial(), "alone", in_turns(Serial(), variants, rounds), "bare"), at_most=1.01)


def scheme_names() -> list[str]:
    """Every scheme that is exported."""
    return sorted(schemes.by_name())


def block_of(step: Work) -> Work:
    """Several steps."""
    return lambda: [step() for _ in range(STEPS)]


def compare_schemes(comm: Communicator, rounds: int, names: list[str]) -> None:
    """Schemes with their defaults; blocks of steps, for some exchange only now and then."""
    ddp, ratios, sent = ddp_step(batch_of(BATCH // comm.size, comm.rank)), {}, {}
    for name in names:
        kind = getattr(schemes, name)
        workers = list(kind.computing_ranks(comm.size))
        inputs = batch_of(BATCH // len(workers) if comm.rank in workers else 0, comm.rank)
        try:
            base = our_optimizer(MomentumOptimizer if name in THREE_STEP else d5fw.MomentumOptimizer)
            scheme = kind(base, comm, **NEED.get(name, {}))
        except Deep500Error as error:
            if comm.rank == 0:
                print(f"\nschemes: {name}: not measured: {error}", flush=True)
            continue
        variants = {name: block_of(partial(scheme.step, inputs)), "DDP": block_of(ddp)}
        for _ in range(STEPS):
            scheme.step(inputs)
        before = comm.traffic.payload_bytes
        for _ in range(STEPS):
            scheme.step(inputs)
        each = comm.all_gather(np.array([(comm.traffic.payload_bytes - before) / STEPS]))
        times = in_turns(comm, variants, rounds, warm_up=0)
        ratios[name] = show(comm, f"schemes, {STEPS} steps", times, "DDP")
        sent[name] = float(each.sum()) / 1e6
        if comm.rank == 0:
            who = "" if len(workers) == comm.size else f"; {len(workers)} of {comm.size} ranks compute"
            print(f"  {'bytes per step':32} {', '.join(f'{n:,.0f}' for n in each.ravel())} by rank{who}", flush=True)
    if comm.rank == 0:
        say_ratio(SCHEMES, ratios)
        say_ratio(BYTES, sent)


def work(folder: str, parts: list[str], rounds: int, names: list[str]) -> None:
    """One of the ranks."""
    torch.set_num_threads(1)
    comm = MPI()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=comm.rank, world_size=comm.size)
    if "sum" in parts:
        sums(comm, rounds)
    if "step" in parts:
        steps(comm, rounds)
    if "schemes" in parts:
        compare_schemes(comm, max(rounds // 4, 3), names)
    dist.destroy_process_group()
    comm.close()


def main() -> None:
    """Start the ranks, wait, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", default="sum,step,alone,schemes")
    parser.add_argument("--schemes", default=",".join(scheme_names()), help="all of them: %(default)s")
    parser.add_argument("--rank-folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    parts = options.only.split(",")
    if options.rank_folder:
        work(options.rank_folder, parts, options.rounds, options.schemes.split(","))
        return
    if "alone" in parts:
        torch.set_num_threads(1)
        alone(2 * options.rounds)
    if set(parts) - {"alone"}:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                find_mpiexec(),
                "-n",
                "2",
                sys.executable,
                "-m",
                "tests.benchmarks.distributed",
                "--rounds",
                str(options.rounds),
                "--only",
                options.only,
                "--schemes",
                options.schemes,
                "--rank-folder",
                folder,
            ]
            code = subprocess.run(command, cwd=ranks.ROOT, env=ranks.environment(2, 300), check=False).returncode
        sys.exit(code)


if __name__ == "__main__":
    main()
