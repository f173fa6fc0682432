"""Plants of a known size: the share of a step's own CPU time that makes it, by pairs of steps, slower by so much."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

from deep500.measure.statistics import Interval, paired_ratio
from deep500.recipe import run_recipe
from tests.benchmarks.launches import recipe
from tests.benchmarks.launches.recipe import Slower

STEPS = 23
"""Of an epoch."""


class Pairs(Slower):
    """One of two steps is slower, by a coin; keeps CPU and wall seconds of both."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.coin, self.wall, self.planted = share, random.Random(0), 0.0, False
        self.cpu_seconds: dict[bool, list[float]] = {False: [], True: []}
        self.seconds: dict[bool, list[float]] = {False: [], True: []}

    def before_batch(self, run: Any) -> None:
        """The step begins."""
        self.planted = not self.planted if run.batch % 2 else self.coin.random() < 0.5
        self.wall = perf_counter()
        super().before_batch(run)

    def after_update(self, source: object) -> None:
        """More work, in one of two."""
        if self.planted:
            super().after_update(source)

    def after_batch(self, run: Any) -> None:
        """The step ends; the last of an epoch has no partner."""
        if run.batch < STEPS - STEPS % 2:
            self.cpu_seconds[self.planted].append(thread_time() - self.begin)
            self.seconds[self.planted].append(perf_counter() - self.wall)


def in_pairs(share: float, epochs: int = 48) -> tuple[Interval, Interval]:
    """Ratios of a slower step to its neighbour, by CPU and by wall time."""
    pairs = Pairs(share)
    with tempfile.TemporaryDirectory() as out:
        changed = {**recipe.FIXED, "epochs": epochs}, {**recipe.MUTABLE, "events": [pairs]}
        run_recipe(*changed, recipe.METRICS, argv=["--quiet", "--out", out])
    cpu, wall = (paired_ratio(times[True], times[False]) for times in (pairs.cpu_seconds, pairs.seconds))
    return cpu, wall


def calibrated(effect: float, place: Path) -> str:
    """Write a listener that makes a step slower by an effect; returns its name as a recipe's word takes it.

    The share is found by CPU time, which neighbours hardly change; what it then is by both clocks is printed.
    """
    share = effect
    for _ in range(2):
        share *= effect / (in_pairs(share)[0].median - 1)
    cpu, wall = in_pairs(share, 96)
    text = ", ".join(f"{r.median:.4f} [{r.low:.4f}, {r.high:.4f}] by {by}" for r, by in ((cpu, "CPU"), (wall, "wall")))
    print(f"plant of {effect:.0%}: a share of {share:.4f} makes a step {text} time, {cpu.n} pairs", flush=True)
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"plant_{round(1000 * effect):03d}.py"
    lines = ["from tests.benchmarks.launches.recipe import Slower", "", "", "class Planted(Slower):"]
    file.write_text("\n".join([*lines, f"    share = {share!r}", ""]))
    return f"{file}:Planted"
