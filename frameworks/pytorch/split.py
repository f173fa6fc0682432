"""The code of a network cut along the regions of a checkpointing plan, which are run again in the backward pass.

Lines of code belong to the region of the network's node that they come from. Consecutive lines of one region become a
module of their own, a function of everything that it reads, parameters included; a region may have more than one such
stretch, where a node that must not run again stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import fx

from deep500.networks.node import Node
from deep500.transformations.recomputation.training_step import impurity

Path = tuple[int, ...]
"""Numbers of the regions that a line belongs to, outermost first; () outside of all."""


@dataclass
class Section:
    """Consecutive lines of code.

    Attributes:
        lines: in order.
        region: number of the region if they run again in the backward pass, else None.
        inputs, outputs: lines of others that they read, and theirs that others read.
        parts: what runs again, cut along the regions inside; empty for lines that are recorded as they are.
        random: whether one of them draws random numbers.
    """

    lines: list[fx.Node]
    region: int | None
    inputs: list[fx.Node]
    outputs: list[fx.Node]
    parts: list[Section]
    random: bool

    @property
    def again(self) -> bool:
        """Whether they run again."""
        return self.region is not None


class Cutter:
    """Cuts one module's code.

    Args:
        module: a :class:`~deep500.frameworks.pytorch.compiler.NetworkModule`.
        nodes: the network's, which the module was compiled from.
        regions: for each region the values that its nodes write; nested or disjoint.
        loss: the output that is differentiated; None: all of them, of a module that is a part of a network.
    """

    def __init__(
        self, module: Any, nodes: Iterable[Node], regions: Sequence[Collection[str]], loss: str | None
    ) -> None:
        self.graph: fx.Graph = module.graph
        self.homes, self.drawing = _homes(nodes, regions)
        self.sources = {line: origin(name, self.homes) for line, name in module.meta["sources"].items()}
        self.output = next(line for line in self.graph.nodes if line.op == "output")
        results = self.output.args[0]
        self.results = list(results) if isinstance(results, tuple) else [results]
        self.loss: Any = None if loss is None else self.results[module.program.outputs.index(loss)]

    def cut(self) -> list[Section]:
        """The outermost stretches, in an order in which they can run."""
        return self._stretches(self._together(), 0, set(self.results))

    @property
    def leaves(self) -> list[fx.Node]:
        """Values that lines read and no line computes: inputs, parameters and constants."""
        return [line for line in self.graph.nodes if line.op in ("placeholder", "get_attr")]

    def _path(self, line: fx.Node) -> Path:
        return self.homes.get(self.sources.get(line.name, ""), ())

    def _together(self) -> list[fx.Node]:
        """The lines that compute, those off the loss's path (a measure of quality, say) moved behind a region."""
        # A region must be one stretch, or its values would be kept between its parts. Lines of none of the regions that
        # the loss does not need may stand in the midst of one; they can wait until the outermost region ends.
        needed, waiting = set(), list(self.results) if self.loss is None else [self.loss]
        while waiting:
            line = waiting.pop()
            if line not in needed:
                needed.add(line)
                waiting.extend(line.all_input_nodes)
        ordered: list[fx.Node] = []
        later: list[fx.Node] = []
        current: Path = ()
        for line in self.graph.nodes:
            if line.op in ("placeholder", "get_attr", "output"):
                continue
            path = self._path(line)
            if current and not path and line not in needed and not self._random([line]):
                later.append(line)
                continue
            if path[:1] != current[:1]:
                ordered, later, current = ordered + later, [], path
            ordered.append(line)
        return ordered + later

    def _random(self, lines: Iterable[fx.Node]) -> bool:
        return any(self.sources.get(line.name) in self.drawing for line in lines)

    def _stretches(self, lines: list[fx.Node], depth: int, needed: set[fx.Node]) -> list[Section]:
        """Cut lines along the regions at one depth; ``needed`` are those that others read."""
        groups = [list(group) for _, group in groupby(lines, lambda line: self._path(line)[depth : depth + 1])]
        read = [{source for line in group for source in line.all_input_nodes} for group in groups]
        stretches: list[Section] = []
        for i, group in enumerate(groups):
            later = needed.union(*read[i + 1 :])
            inside = set(group)
            inputs = list(dict.fromkeys(s for line in group for s in line.all_input_nodes if s not in inside))
            outputs = [line for line in group if line in later]
            path = self._path(group[0])
            region = path[depth] if len(path) > depth else None
            parts = [] if region is None else self._stretches(group, depth + 1, set(outputs))
            stretches.append(Section(group, region, inputs, outputs, parts, self._random(group)))
        return stretches


def origin(name: str, nodes: Collection[str]) -> str:
    """The network's node of a node that was compiled: itself, or the one that it was made of; empty if it has none."""
    while name and name not in nodes:
        name = re.match(r"(.*)[/:]|", name, re.DOTALL)[1] or ""  # type: ignore[index] # the latter always matches
    return name


def _homes(nodes: Iterable[Node], regions: Sequence[Collection[str]]) -> tuple[dict[str, Path], set[str]]:
    """By node's name: the regions it is in, none if it must not run again; and which nodes draw random numbers."""
    outermost_first = sorted(range(len(regions)), key=lambda i: -len(regions[i]))
    inside: dict[str, list[int]] = {}
    for i in outermost_first:
        for value in regions[i]:
            inside.setdefault(value, []).append(i)
    homes: dict[str, Path] = {}
    drawing: set[str] = set()
    for node in nodes:
        random = node.is_random
        if random:
            drawing.add(node.name)  # the generator's state is put back, so these may run again
        value = node.writes[0] if node.writes and (random or not impurity(node)) else ""
        homes[node.name] = tuple(inside.get(value, ()))
        homes.update((written, homes[node.name]) for written in node.writes if written not in homes)
    return homes, drawing


def as_graph(lines: Sequence[fx.Node], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> fx.Graph:
    """Lines as a function of their inputs, which returns a tuple."""
    graph = fx.Graph()
    copies = {line: graph.placeholder(line.name) for line in inputs}
    for line in lines:
        copies[line] = graph.node_copy(line, copies.__getitem__)
    graph.output(tuple(copies[line] for line in outputs))
    return graph
