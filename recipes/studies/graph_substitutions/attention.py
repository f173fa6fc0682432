"""E4: substitution, layout, one after the other, and both at once, on attention blocks with as many layers in each."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deep500 as d5
from deep500.networks import Network, create
from deep500.transformations.substitutions.rules.rule_file import SHIPPED, PatternRule, read, write
from deep500.transformations.workshop.substitutions.experiments import table
from recipes.studies.graph_substitutions.networks import NOT_MEASURED, ORIGINAL, WRONG, cell, line
from recipes.studies.graph_substitutions.published import LAYOUT
from recipes.studies.graph_substitutions.settings import Settings
from recipes.studies.graph_substitutions.timing import CompiledRunner, Timed, difference, in_turns

FULL: dict[str, Any] = dict(shape=(64, 768), layers=4)
SMALL: dict[str, Any] = dict(shape=(8, 32), heads=4, layers=1)
SUBSTITUTION, LAYOUTS, SEQUENTIAL, JOINT = LAYOUT
Figures = dict[str, float]


def divide(rules: Sequence[PatternRule]) -> tuple[list[PatternRule], list[PatternRule]]:
    """Rules that move no axes, and those that transpose: on a CPU layout is how weights are stored."""
    layout = [rule for rule in rules if "transpose" in str(rule)]
    return [rule for rule in rules if rule not in layout], layout


@dataclass(frozen=True)
class AttentionBlock:
    """Attention in one backend.

    Attributes:
        backend: which.
        layers: of every variant alike: matrix products of scores that its network has.
        predicted: variant -> cost model's seconds.
        search: variant -> seconds of search.
        timed: the original and the four in turns; None after a failure.
        difference: largest difference of an answer from the original's, over the largest element.
        failure: why there are no figures.
    """

    backend: str
    layers: dict[str, int] = field(default_factory=dict)
    predicted: Figures = field(default_factory=dict)
    search: Figures = field(default_factory=dict)
    timed: Timed | None = None
    difference: float = 0.0
    failure: str = ""

    @property
    def wrong(self) -> str:
        """Say what is wrong; empty if nothing is."""
        if self.failure:
            return f"E4 in {self.backend}: {self.failure}"
        if len(set(self.layers.values())) > 1:
            return f"E4 in {self.backend}: unequal numbers of layers, {self.layers}"
        return "" if self.difference <= WRONG else f"E4 in {self.backend}: answers differ by {self.difference:.1e}"


def layers(network: Network) -> int:
    """Layers whose attention the outputs depend on: softmaxes that are left without dead code."""
    return sum(node.op_type == "Softmax" for node in network.nodes)


def measure(backend: str, settings: Settings) -> AttentionBlock:
    """Optimise the block in four ways for one backend, and time them in turns."""
    block = create("attention_block", batch=1, seed=settings.seed, **(SMALL if settings.quick else FULL))
    try:
        networks, predicted, search = _variants(block, backend, settings)
        runners = {name: CompiledRunner(network, backend, settings.seed) for name, network in networks.items()}
        answers = [runner.outputs() for runner in runners.values()]
        apart = max(difference(answer, answers[0]) for answer in answers)
        timed = in_turns(runners, settings.seconds, settings.clock, settings.seed)
    except Exception as error:  # noqa: BLE001  # each framework has its own; one backend must not end the others
        return AttentionBlock(backend, failure=line(error))
    counts = {name: layers(network) for name, network in networks.items()}
    return AttentionBlock(backend, counts, predicted, search, timed, apart)


def _variants(block: Network, backend: str, settings: Settings) -> tuple[dict[str, Network], Figures, Figures]:
    """The original and the four, with the cost model's seconds and those of the search."""
    networks, predicted, taken = {ORIGINAL: block}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        substitution, layout = Path(folder, "substitution.jsonl"), Path(folder, "layout.jsonl")
        for path, some in zip((substitution, layout), divide(read()), strict=True):
            write(some, path)
        ways = {SUBSTITUTION: [substitution], LAYOUTS: [layout], SEQUENTIAL: [substitution, layout], JOINT: [SHIPPED]}
        for name, files in ways.items():
            network, seconds = block, 0.0
            search = settings.search | {"budget": settings.budget / len(files)}  # the same for every way
            for rules in files:
                optimized = d5.optimize_network(network, backend=backend, rules=rules, **search)
                network, seconds = optimized.network, seconds + optimized.seconds
            networks[name], predicted[name], taken[name] = network, optimized.after, seconds
    return networks, predicted, taken


@dataclass(frozen=True)
class Attention:
    """E4: all backends."""

    blocks: Sequence[AttentionBlock]
    settings: Settings

    @property
    def wrong(self) -> list[str]:
        """Backends that failed, answer differently or lost a layer."""
        return [block.wrong for block in self.blocks if block.wrong]

    def as_json(self) -> dict[str, Any]:
        """Everything, samples too."""
        rows = [
            dict(vars(block), timed=None if block.timed is None else block.timed.as_json()) for block in self.blocks
        ]
        return {"block": SMALL if self.settings.quick else FULL, "blocks": rows, "published_ms_and_layers": LAYOUT}

    def __str__(self) -> str:
        names = (ORIGINAL, *LAYOUT)
        cells: list[tuple[object, ...]] = []
        for block in self.blocks:
            if block.timed is None:
                cells.append((block.backend, "failed", *[""] * (len(names) - 1)))
                continue
            timed = block.timed
            cells += [
                (f"{block.backend}, ms", *(cell(timed.seconds[name], 1e3) for name in names)),
                (f"{block.backend}, original/this", "", *(cell(timed.gains[name].ratio) for name in LAYOUT)),
                (f"{block.backend}, layers", *(block.layers[name] for name in names)),
                (f"{block.backend}, search s", "", *(f"{block.search[name]:.1f}" for name in LAYOUT)),
            ]
        published = [f"{ms} ({count} layers)" for ms, count in LAYOUT.values()]
        cells.append(("published, V100, BERT, ms: context only", NOT_MEASURED, *published))
        shape = SMALL if self.settings.quick else FULL
        head = (f"E4, attention {'x'.join(map(str, shape['shape']))}, {shape['layers']} layers", *names)
        return f"{table(head, cells)}\nlayout: rules that transpose; substitution: the others; joint: all rules at once"
