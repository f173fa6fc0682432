"""The cost of a scheme by an engine of PyTorch's over that engine by hand: ``python -m tests.benchmarks.engines``.

Two ranks with one thread each train ResNet-20 and a transformer of four blocks. By hand: ``DistributedDataParallel``
or ``fully_shard`` around the same modules, or ``torch.distributed.pipelining`` with 1F1B and 8 micro-batches, and the
fused optimizer of torch.optim. Variants take turns in random order,
the same on both ranks; a sample is the slower rank's time, each round gives one pair. Ours stand beside: the definition
of each scheme. Bytes are those of PyTorch's allocator, at most in a step beyond what was held before it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

import deep500.frameworks.pytorch as d5fw
from deep500.distributed import Communicator, schemes
from deep500.frameworks.pytorch.layers import in_layers, in_stages
from deep500.frameworks.pytorch.memory import footprint, settle
from deep500.measure.statistics import paired_ratio
from deep500.networks import Network, add_loss, create
from deep500.training import optimizers
from deep500.transformations.stages import layers
from tests.benchmarks.distributed import in_turns
from tests.benchmarks.filling import say_ratio
from tests.distributed import forked

FIGURES = {
    "step: DDP and FSDP over the engine by hand, ResNet-20 and a transformer of four blocks, 2 ranks": "at most 1.02",
    "step: NativePipeline over the schedule by hand, the same networks, 2 ranks": "at most 1.02",
    "bytes: at most in a step, over the engine by hand": "at most 1.02",
}
STEP, PIPED, BYTES = FIGURES
BAR = 1.02
ADAM = {"lr": 1e-3}
BATCH = 32
"""Samples of a rank."""
Step = Callable[[], object]


def resnet() -> tuple[Network, dict[str, np.ndarray]]:
    """ResNet-20 and a rank's batch for it."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(BATCH, 3, 32, 32)).astype("float32")
    return add_loss(create("resnet", depth=20)), {"input": images, "label": rng.integers(0, 10, BATCH)}


def transformer() -> tuple[Network, dict[str, np.ndarray]]:
    """An encoder of four blocks of width 128, and a rank's batch of sequences of 32 words for it."""
    rng = np.random.default_rng(0)
    network = create("transformer", shape=(32,), classes=10, vocabulary=500, width=128, layers=4)
    return add_loss(network), {"input": rng.integers(0, 500, (BATCH, 32)), "label": rng.integers(0, 10, BATCH)}


NETWORKS = {"ResNet-20": resnet, "transformer": transformer}
DEFINITIONS = {"DDP": "ConsistentDecentralized", "FSDP": "ShardedParameters", "NativePipeline": "Pipeline"}
MICRO = 8
"""Micro-batches of a batch of a pipeline, whose first rank has it all."""


def by_hand(engine: str, network: Network, feeds: dict[str, np.ndarray]) -> Step:
    """A step as one writes it without Deep500, on the same modules."""
    executor = d5fw.from_model(network, "cpu")
    module: Any = executor.module
    if engine == "DDP":
        run: Any = DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)
    else:
        cut, mesh = in_layers(module, layers(executor.network)), DeviceMesh.from_group(dist.group.WORLD, "cpu")
        for layer in cut.layers:
            fully_shard(layer, mesh=mesh, reshard_after_forward=layer is not cut.layers[-1])
        fully_shard(cut.root, mesh=mesh)
        run = cut.root
        del executor, module
    optimizer = torch.optim.Adam(run.parameters(), fused=True, **ADAM)
    place = network.outputs.index("loss")
    tensors = [torch.from_numpy(feeds[name]) for name in network.inputs]

    def step() -> None:
        optimizer.zero_grad()
        results = run(*tensors)
        (results[place] if isinstance(results, tuple) else results).backward()
        optimizer.step()

    return step


def pipeline_by_hand(network: Network, feeds: dict[str, np.ndarray]) -> Step:
    """A step of stages by PyTorch's schedule, on the same modules."""
    rank, size, executor = dist.get_rank(), dist.get_world_size(), d5fw.from_model(network, "cpu")
    parts = in_stages(executor.module, layers(executor.network, count=size), size)
    tensors = [torch.from_numpy(np.concatenate([feeds[name]] * size)) for name in network.inputs]
    crossing = [[tensor[: len(tensor) // MICRO] for tensor in tensors]]
    for part in parts:
        crossing.append(list(part(*crossing[-1])))
    examples = {"input_args": tuple(crossing[rank]), "output_args": tuple(crossing[rank + 1])}
    stage, place = (
        PipelineStage(parts[rank], rank, size, torch.device("cpu"), **examples),
        network.outputs.index("loss"),
    )
    schedule: Any = Schedule1F1B(stage, MICRO, loss_fn=lambda results, _: results[place])
    optimizer = torch.optim.Adam(parts[rank].parameters(), fused=True, **ADAM)
    given, target = tensors if rank == 0 else [], torch.zeros(MICRO) if rank == size - 1 else None

    def step() -> None:
        optimizer.zero_grad()
        schedule.step(*given, target=target, return_outputs=False)
        optimizer.step()

    return step


def compared(comm: Communicator, rounds: int, names: list[str]) -> dict[str, Any]:
    """Seconds of every variant in every round, and bytes at most in a step, by network."""
    found = {}
    for name in names:
        network, feeds = NETWORKS[name]()
        steps: dict[str, Step] = {}
        count = comm.size if comm.rank == 0 else 0
        whole = {n: np.concatenate([array] * count) if count else array[:0] for n, array in feeds.items()}
        for engine, definition in DEFINITIONS.items():
            pipes = engine == "NativePipeline"
            make = pipeline_by_hand if pipes else partial(by_hand, engine)
            steps[f"{engine} by hand"], steps[f"{engine} by hand again"] = make(network, feeds), make(network, feeds)
            options, given = ({"micro_batches": MICRO}, whole) if pipes else ({}, feeds)
            adam = d5fw.AdamOptimizer(d5fw.from_model(network, "cpu"), **ADAM)
            steps[engine] = partial(getattr(schemes, engine)(adam, comm, **options).step, given)
            source = d5fw if engine == "DDP" else optimizers
            adam = source.AdamOptimizer(d5fw.from_model(network, "cpu"), **ADAM)
            steps[definition] = partial(getattr(schemes, definition)(adam, comm, **options).step, given)
        times = in_turns(comm, steps, rounds)
        peaks = {}
        for variant, step in steps.items():
            settle()
            comm.barrier()
            peaks[variant] = footprint(step).peak
        found[name] = {"seconds": {n: t.tolist() for n, t in times.items()}, "bytes": peaks}
    return found


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, arguments = (
            Path(folder) / "results.json",
            {"rounds": options.rounds, "names": options.networks.split(",")},
        )
        before = os.getloadavg()
        code, output = forked.launch(
            f"tests.benchmarks.engines:{compared.__name__}", file, arguments, (2,), timeout=600
        )
        if code:
            raise SystemExit(output)
        found = json.loads(file.read_text(encoding="utf-8"))[0][0]
    print(f"load {before[0]:.1f} before, {os.getloadavg()[0]:.1f} after; {options.rounds} rounds")
    steps, sizes = {}, {}
    for name, figures in found.items():
        times, peaks = figures["seconds"], figures["bytes"]
        for variant in times:
            engine = next(e for e, definition in DEFINITIONS.items() if variant.startswith((f"{e} by", definition, e)))
            base = f"{engine} by hand"
            if variant != base:
                key, ratio = f"{variant}, {name}", paired_ratio(times[variant], times[base])
                steps[key], sizes[key] = ratio, peaks[variant] / peaks[base]
                print(f"{key:36} over {base}: step {ratio}, bytes {sizes[key]:.3f} of {peaks[base] / 1e6:.2f} MB")
    engines = [f"{engine}, {name}" for name in found for engine in DEFINITIONS]
    met = say_ratio(BYTES, {key: sizes[key] for key in engines}, at_most=BAR)
    for figure, pipes in ((STEP, False), (PIPED, True)):
        mine = {key: steps[key] for key in engines if key.startswith("NativePipeline") is pipes}
        met = say_ratio(figure, mine, at_most=BAR) and met
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
