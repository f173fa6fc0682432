"""What it costs to take the time of every node while a step runs on the reference backend (bar: 5 % of a step).

    python -m tests.benchmarks.recomputation --only clock

The same compiled step with and without the clock takes turns, on one thread, after warm-up; CPU time is compared. The
step in which the bytes of all arrays are counted as well, which no bar is set for, is shown beside it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is imported
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from deep500.frameworks.reference import Executor
from deep500.frameworks.reference.compiler import KernelProgram
from deep500.frameworks.reference.meter import HeldBytes, Marks
from deep500.measure.statistics import paired_ratio
from deep500.networks import Network, add_loss, create
from tests.benchmarks.filling import say_ratio
from tests.benchmarks.recomputation import CLOCK
from tests.transformations.recomputation.test_rewriting import inputs_of

BAR = 1.05
SUBJECTS: dict[str, tuple[Callable[[], Network], int]] = {
    "resnet 20, batch 16": (lambda: add_loss(create("resnet", depth=20)), 16),
    "resnet 8, batch 4": (lambda: add_loss(create("resnet", depth=8)), 4),
    "transformer, batch 8": (lambda: add_loss(create("transformer")), 8),
}


def compare(plan: KernelProgram, inputs: Mapping[str, np.ndarray], turns: int) -> tuple[list[list[float]], int]:
    """CPU seconds of plain, timed and counted runs, turn by turn, and the number of nodes."""
    marks = Marks()
    ways: list[Callable[[], object]] = [
        lambda: plan.run(inputs),
        lambda: plan.run(inputs, marks.start()),
        lambda: plan.run(inputs, HeldBytes(inputs.values())),
    ]
    for way in ways:
        way()
    seconds: list[list[float]] = [[], [], []]
    for turn in range(turns):
        for i in np.roll(range(3), turn):
            begin = time.process_time()
            ways[i]()
            seconds[i].append(time.process_time() - begin)
    return seconds, len(plan.steps)


def main(words: list[str] | None = None) -> None:
    """Print one line per network."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=41)
    turns, ratios = parser.parse_args(words).turns, {}
    for name, (make, batch) in SUBJECTS.items():
        net = make()
        plan = Executor(net)._training("loss").program
        (plain, timed, counted), nodes = compare(plan, inputs_of(net, batch), turns)
        ratios[name], bytes_too = (paired_ratio(way, plain) for way in (timed, counted))
        print(
            f"{name}: {nodes} nodes in {1e3 * np.median(plain):.1f} ms; with the clock {ratios[name]}; counting bytes "
            f"{bytes_too.median:.4f}"
        )
    say_ratio(CLOCK, ratios, at_most=BAR)
