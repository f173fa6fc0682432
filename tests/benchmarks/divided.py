"""The cost of dividing a network: ``python -m tests.benchmarks.divided [--rounds N] [--width 512] [--only time,cut]``.

A causal transformer on PyTorch, with momentum. Parts:

* ``time``: a step of two ranks with one thread each (MPI), by the planner's own plan and by that with half of the
  memory, over one of the first rank alone with two threads, while the other sleeps. They take turns in random order; a
  sample is the time of the slower rank, each round gives one pair.
* ``cut``: on one rank the step as one network, cut where the plan with half of the memory communicates, over the same
  in one piece: collectives of one rank, copies included.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import deep500.frameworks.pytorch as d5fw
from deep500.distributed import Communicator, Serial
from deep500.distributed.rank_runs import RankRun
from deep500.distributed.schemes import DividedNetwork
from deep500.measure.statistics import paired_ratio
from deep500.networks import Network, add_loss, create
from deep500.operators.registry import DOMAIN
from deep500.training.optimizers import MomentumOptimizer
from deep500.transformations.parallel.dividing import Division, StepGraph
from deep500.transformations.parallel.joint import joint_network
from deep500.transformations.parallel.planning import Wishes, held_bytes, parallelize
from deep500.transformations.parallel.recomputing import backward_nodes
from tests.benchmarks.filling import say_ratio
from tests.benchmarks.turns import Comparison, say_all
from tests.distributed import ranks as driver

FIGURES = {
    "time: 2 ranks with one thread over one rank with two, transformer of width 512": "at most 1.15",
    "cut: a step of one rank, cut where a plan communicates, over the same in one piece": "at most 1.02",
}
TIME, CUT = FIGURES
BARS = {TIME: 1.15, CUT: 1.02}
BATCH, WORDS = 8, 64
WARM_UP = 3
POLL = 0.002
"""Seconds between looks of the rank that sleeps."""


def transformer(width: int) -> tuple[Network, dict[str, np.ndarray]]:
    """Two layers, and a batch."""
    rng = np.random.default_rng(0)
    network = add_loss(create("causal_transformer", shape=(WORDS,), classes=500, width=width, heads=8, layers=2))
    return network, {name: rng.integers(0, 500, (BATCH, WORDS)) for name in ("input", "label")}


def half(network: Network, feeds: dict[str, np.ndarray]) -> int:
    """Bytes of half of what training holds, and a tenth more for what cannot be divided."""
    graph = StepGraph(joint_network(network, {name: array.shape for name, array in feeds.items()}), 2)
    return int(0.55 * held_bytes(graph, {}, Wishes().copies))


def compared(comm: Communicator, folder: str, rounds: int, width: int) -> dict[str, Any]:
    """Seconds of every variant in every round, of the slower rank, and what the plans say."""
    network, feeds = transformer(width)
    mine = {name: np.array_split(array, comm.size)[comm.rank] for name, array in feeds.items()}

    def optimizer() -> MomentumOptimizer:
        return MomentumOptimizer(d5fw.from_model(network, "cpu"), lr=1e-3)

    alone, limits = optimizer(), {"auto": None, "half of the memory": half(network, feeds)}
    divided = {name: DividedNetwork(optimizer(), comm, memory=limit) for name, limit in limits.items()}
    names = [*divided, "one rank", "one rank again"]
    times: dict[str, list[float]] = {name: [] for name in names}
    order = random.Random(0)
    for turn in range(-WARM_UP, rounds):
        for name in order.sample(names, len(names)):
            done = Path(folder) / f"{turn} {name}"
            comm.barrier()
            begin = time.perf_counter()
            if name in divided:
                divided[name].step(mine)
            elif comm.rank == 0:
                torch.set_num_threads(comm.size)
                alone.step(feeds)
                torch.set_num_threads(1)
                done.touch()
            else:
                while not done.exists():  # a rank that waits in a collective would take a core
                    time.sleep(POLL)
            elapsed = np.array([(time.perf_counter() - begin) if name in divided or comm.rank == 0 else 0.0])
            slower = float(comm.all_gather(elapsed).max())
            times[name] += [slower] if turn >= 0 else []
    return {
        "seconds": times,
        "plans": {name: str(scheme.plan and scheme.plan.about()) for name, scheme in divided.items()},
    }


def time_of_two_ranks(rounds: int, width: int) -> bool:
    """Print the ratios; whether the bar is met."""
    with tempfile.TemporaryDirectory() as folder:
        file, arguments = Path(folder) / "results.json", {"folder": folder, "rounds": rounds, "width": width}
        code, output = driver.launch(f"tests.benchmarks.divided:{compared.__name__}", 2, file, arguments)
        if code:
            raise SystemExit(output)
        result = json.loads(file.read_text(encoding="utf-8"))[0]
    base = result["seconds"]["one rank"]
    ratios = {name: paired_ratio(times, base) for name, times in result["seconds"].items() if name != "one rank"}
    print(f"time: one rank with two threads {1e3 * np.median(base):.1f} ms (median of {rounds}), width {width}")
    for name, ratio in ratios.items():
        print(f"  {name}: {ratio}; {result['plans'].get(name, '')}", flush=True)
    return say_ratio(TIME, {name: ratios[name] for name in result["plans"]}, at_most=BARS[TIME])


def cut_network(network: Network, division: Division) -> Network:
    """The step of one rank with a collective wherever this division has one."""
    crossings = [crossing for crossing in division.crossings if crossing.resharding.nbytes]
    by_reader: dict[str, dict[str, str]] = {}
    for crossing in crossings:
        for reader in crossing.readers:
            by_reader.setdefault(reader, {})[crossing.value] = f"{crossing.value}:{crossing.after}"
    cut = network.copy()
    nodes = []
    for node in network.nodes:
        new = by_reader.get(node.name, {})
        nodes.append(replace(node, inputs=tuple(new.get(name, name) for name in node.inputs)))
    for crossing in crossings:
        if any(reader != "output" for reader in crossing.readers):
            cut.add_node("AllReduce", [crossing.value], [f"{crossing.value}:{crossing.after}"], domain=DOMAIN)
    meetings = [node for node in cut.nodes if node.domain == DOMAIN]
    cut.set_nodes([*nodes, *meetings])
    return cut


def cuts(width: int) -> dict[str, Callable[[], object]]:
    """The step of one rank in one piece, and cut."""
    torch.set_num_threads(1)
    network, feeds = transformer(width)
    shapes = {name: array.shape for name, array in feeds.items()}
    plan = parallelize(network, 2, shapes, wishes=Wishes(memory=half(network, feeds)))
    division = plan.division(network)
    joint, executor = division.graph.joint, d5fw.from_model(network, "cpu")
    live = {name: executor.network.to_tensor(network.parameter(name).value) for name in joint.gradients}
    cut = cut_network(joint.network, division)
    print(f"cut: {len(cut.nodes) - len(joint.network.nodes)} collectives, {len(joint.network.nodes)} nodes")
    runs = {
        "in one piece": RankRun(joint.network, live, executor, Serial()),
        "deep500": RankRun(cut, live, executor, Serial(), {node.name for node in backward_nodes(cut, joint)}),
        "in one piece again": RankRun(joint.network.copy(), live, executor, Serial()),
    }
    first, second = (run({**feeds, **live})["loss"] for run in list(runs.values())[:2])
    assert np.allclose(np.asarray(first), np.asarray(second), rtol=1e-5)
    return {name: partial(run, {**feeds, **live}) for name, run in runs.items()}


def main() -> int:
    """Print both; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--only", default="time,cut")
    options = parser.parse_args()
    parts, met = options.only.split(","), True
    if "cut" in parts:
        what = "a step of one rank, cut where a plan communicates"
        met = say_all([Comparison(what, partial(cuts, options.width), 1, CUT, BARS[CUT])], options.rounds)
    if "time" in parts:
        met = time_of_two_ranks(options.rounds, options.width) and met
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
