"""E3: one convolution in 32 groups, and the same with groups merged: figure 9 of TASO, per backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import deep500 as d5
from deep500.measure.comparison import FASTER, MARGIN
from deep500.measure.statistics import paired_ratio
from deep500.networks import Network
from deep500.transformations.workshop.substitutions.experiments import table
from recipes.studies.graph_substitutions.networks import OURS, WRONG, cell, line
from recipes.studies.graph_substitutions.published import GROUPS
from recipes.studies.graph_substitutions.settings import Settings
from recipes.studies.graph_substitutions.timing import CompiledRunner, Timed, difference, in_turns

MOST = 32
SWEEPS = ((512, 28), (512, 14), (128, 56))
"""Channels and side of the image; the first is the published one."""
QUICK_SWEEPS = ((32, 6),)


def convolution(weight: np.ndarray, channels: int, side: int) -> Network:
    """One 3x3 convolution of an image; the weight says in how many groups."""
    network = Network(f"groups{channels // weight.shape[1]}")
    network.add_input("x", (1, channels, side, side))
    network.add_parameter("w", weight)
    network.add_node("Conv", ["x", "w"], ["y"], name="conv", group=channels // weight.shape[1], pads=[1] * 4)
    network.add_output("y")
    return network


def merge(weight: np.ndarray, groups: int, factor: int) -> np.ndarray:
    """The weight that does in ``groups / factor`` groups what this one does in ``groups``: zeros beside it.

    Example:
        >>> merge(np.ones((2, 1, 1, 1)), groups=2, factor=2)[:, :, 0, 0].tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    outputs, inputs, *window = weight.shape
    wide = np.zeros((outputs, inputs * factor, *window), weight.dtype)
    for output in range(outputs):
        place = output * groups // outputs % factor
        wide[output, place * inputs : (place + 1) * inputs] = weight[output]
    return wide


@dataclass(frozen=True)
class Sweep:
    """One size in one backend.

    Attributes:
        channels, side, backend: which.
        timed: ``"32"`` down to ``"1"`` groups and ours in turns; None after a failure.
        picked: groups of the convolution that the optimizer chose.
        difference: largest difference of all these answers from that of 32 groups, over the largest element.
        failure: why there are no figures.
    """

    channels: int
    side: int
    backend: str
    timed: Timed | None = None
    picked: int | None = None
    difference: float = 0.0
    failure: str = ""

    @property
    def best(self) -> int:
        """Groups with the smallest median."""
        assert self.timed is not None
        return int(
            min((name for name in self.timed.seconds if name != OURS), key=lambda n: self.timed.seconds[n].median)
        )

    @property
    def verdict(self) -> str:
        """Judge whether the pick is the best one, not measurably slower than it, or slower."""
        assert self.timed is not None
        if self.picked is None or str(self.picked) not in self.timed.samples:
            return "another form, not one convolution"
        if self.picked == self.best:
            return "the best"
        ratio = paired_ratio(self.timed.samples[str(self.picked)], self.timed.samples[str(self.best)])
        same = ratio.low is not None and ratio.low <= 1 + MARGIN
        return f"{'as fast as' if same else 'SLOWER than'} the best: {cell(ratio)}"

    @property
    def wrong(self) -> str:
        """Say what is wrong; empty if nothing is."""
        where = f"E3, {self.channels} channels, {self.side}x{self.side} in {self.backend}"
        if self.failure:
            return f"{where}: {self.failure}"
        return "" if self.difference <= WRONG else f"{where}: answers differ by {self.difference:.1e}"

    def as_json(self) -> dict[str, Any]:
        """Everything, samples too."""
        if self.timed is None:
            return dict(vars(self))
        return dict(vars(self), timed=self.timed.as_json(), best=self.best, verdict=self.verdict)


def sweep(channels: int, side: int, backend: str, settings: Settings) -> Sweep:
    """Time all numbers of groups, and what the optimizer makes of the largest."""
    random = np.random.default_rng(settings.seed)
    scale = np.float32((9 * channels / MOST) ** -0.5)
    weight = scale * random.standard_normal((channels, channels // MOST, 3, 3), np.float32)
    factors = [2**n for n in range(MOST.bit_length())]
    networks = {str(MOST // factor): convolution(merge(weight, MOST, factor), channels, side) for factor in factors}
    try:
        optimized = d5.optimize_network(networks[str(MOST)], backend=backend, **settings.search)
        networks[OURS] = optimized.network
        runners = {name: CompiledRunner(network, backend, settings.seed) for name, network in networks.items()}
        answers = {name: runner.outputs() for name, runner in runners.items()}
        apart = max(difference(answer, answers[str(MOST)]) for answer in answers.values())
        timed = in_turns(runners, settings.seconds, settings.clock, settings.seed)
    except Exception as error:  # noqa: BLE001  # each framework has its own; one size must not end the others
        return Sweep(channels, side, backend, failure=line(error))
    return Sweep(channels, side, backend, timed, picked(optimized.network), apart)


def picked(network: Network) -> int | None:
    """Groups of the only convolution; None if there is another number of them."""
    groups = [node.attribute("group") for node in network.nodes if node.op_type == "Conv"]
    return int(groups[0]) if len(groups) == 1 else None


@dataclass(frozen=True)
class Grouping:
    """E3: all sweeps."""

    sweeps: Sequence[Sweep] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """Sweeps that failed or whose answers differ."""
        return [sweep.wrong for sweep in self.sweeps if sweep.wrong]

    def as_json(self) -> dict[str, Any]:
        """Sweeps and the published one."""
        return {"sweeps": [sweep.as_json() for sweep in self.sweeps], "published_v100_ms": GROUPS}

    def __str__(self) -> str:
        columns = [str(2**n) for n in reversed(range(MOST.bit_length()))]
        head = (
            "E3, ms by groups",
            *columns,
            OURS,
            "best",
            "picked",
            "the pick is",
            "original/ours",
            "for us 32 groups are",
        )
        cells: list[tuple[object, ...]] = []
        for sweep in self.sweeps:
            name = f"{sweep.channels} x {sweep.side} x {sweep.side}, {sweep.backend}"
            if sweep.timed is None:
                cells.append((name, "failed", *[""] * (len(head) - 2)))
                continue
            times = [f"{1e3 * sweep.timed.seconds[which].median:.3g}" for which in (*columns, OURS)]
            ours = sweep.timed.gains[OURS]
            words = "slower than ours" if ours.verdict != FASTER else "faster than ours"
            words = {"equivalent": "equal to ours", "unresolved": "unresolved"}.get(ours.verdict, words)
            cells.append((name, *times, sweep.best, sweep.picked or "", sweep.verdict, cell(ours.ratio), words))
        published = [f"{GROUPS[int(n)]:.4g}" for n in columns]
        cells.append(
            ("published, V100, 512 x 28 x 28: context only", *published, "", min(GROUPS, key=GROUPS.get), *[""] * 4)
        )
        return table(head, cells)
