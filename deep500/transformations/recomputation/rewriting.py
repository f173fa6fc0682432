"""A training step in which regions run again: the gradient network with duplicates of their nodes.

For executors that run nodes in the network's order and free every value after its last reader. A value that is
*internal* to a recomputed region is not kept for the backward nodes: these read a duplicate, which is computed where
it is first read, from what the regions before hold. What a region hands on, and what its impure nodes wrote (random
numbers), is kept and never computed again, so results are bit-identical, and running statistics are updated once.

With regions inside regions there is one version of a value per level: a run of the outer region gives what the inner
one hands on, and the inner one's own values are computed once more when they are needed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from deep500.errors import PlanError
from deep500.networks.execution.executor import Recomputation
from deep500.networks.execution.modes import training_network
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.transformations.recomputation.regions import impurity, outermost_first
from deep500.transformations.recomputation.training_step import CountedStep, training_step

Level = tuple[int, ...]
"""Indices of recomputed regions, outermost first, whose run a value belongs to; () is the forward pass."""


class Recomputing(NamedTuple):
    """A step in which regions run again.

    Attributes:
        network: with the same outputs as the step's; its order of nodes matters.
        repeated: the forward nodes that run again, once for every time.
    """

    network: Network
    repeated: tuple[Node, ...]


def recomputing(step: CountedStep, regions: Sequence[Collection[str]]) -> Recomputing:
    """The network of a step with some regions running again.

    Args:
        step: stays as it is.
        regions: for each of them the values that its nodes write; any two are nested or disjoint.

    Raises:
        PlanError: unknown values, or regions that overlap.

    Example:
        >>> import numpy as np
        >>> from deep500.transformations.recomputation.training_step import training_step
        >>> net = Network(); net.add_input("x", (4,)); net.add_parameter("w", np.ones(4, "float32"))
        >>> net.add_node("Mul", ["x", "w"], ["a"]); net.add_node("Exp", ["a"], ["b"])
        >>> net.add_node("Tanh", ["b"], ["c"])
        >>> net.add_node("ReduceSum", ["c"], ["loss"], keepdims=0)
        >>> again = recomputing(training_step(net, 1), [{"a", "b", "c"}])
        >>> [str(node).split("  #")[0] for node in again.network.nodes if node.name.startswith("again/")]
        ['again/0/a = Mul(x, w)', 'again/0/b = Exp(again/0/a)']
    """
    order = ordering(step, regions)
    network = Network(step.network.name)
    for name, described in step.network.inputs.items():
        network.add_input(name, described.shape, described.dtype or "float32")
    for name, parameter in step.network.parameters.items():
        network.add_parameter(name, parameter.value, parameter.trainable)
    for node in order.nodes:
        network.add_node(node.op_type, node.inputs, node.outputs, node.name, node.domain, **node.attributes)
    for name in step.network.outputs:
        network.add_output(name)
    return Recomputing(network, order.repeated)


def planned_step(network: Network, plan: Recomputation) -> tuple[CountedStep, Recomputing]:
    """The training step of a network, without and with the plan.

    Raises:
        PlanError: the plan was made for another network.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation import plan_network
        >>> net = add_loss(create("resnet", depth=8))
        >>> step, again = planned_step(net, plan_network(net, 0.9, batch=2))
        >>> again.network.outputs == step.network.outputs, len(again.repeated) > 0
        (True, True)
    """
    plan.check(network, plan.batch)
    step = training_step(network, plan.batch, plan.loss)
    return step, recomputing(step, [region.values for region in plan.regions])


def executed_step(network: Network, plan: Recomputation | None, loss: str = "loss") -> tuple[Network, dict[str, str]]:
    """One step as a network, and the value that replaces each running statistic; the plan's step if there is one.

    For backends that train by executing the emitted gradient.

    Raises:
        PlanError: the plan was made for another network.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> net = add_loss(create("mlp", shape=(4,), classes=3))
        >>> step, updates = executed_step(net, None)
        >>> "fc1.weight.grad" in step.values() or len(step.nodes) > len(net.nodes), updates
        (True, {})
    """
    if plan is not None:
        step, again = planned_step(network, plan)
        return again.network, step.updates
    training, updates = training_network(network)
    return training.with_gradient(loss), updates


class Ordering(NamedTuple):
    """The nodes of a step in which regions run again, without a network around them.

    Attributes:
        nodes: in the order in which they run.
        repeated: the forward nodes that run again, once for every time.
        sizes: bytes of every value that a node writes.
    """

    nodes: tuple[Node, ...]
    repeated: tuple[Node, ...]
    sizes: dict[str, int]


def ordering(step: CountedStep, regions: Sequence[Collection[str]]) -> Ordering:
    """Order of nodes that :func:`recomputing` writes; to count what a plan holds this is enough, and quicker.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.training_step import training_step
        >>> step = training_step(add_loss(create("mlp")), 2)
        >>> len(ordering(step, []).nodes) == len(step.network.nodes)
        True
    """
    return _Rewriter(step, [frozenset(values) for values in regions]).run()


class _Rewriter:
    """Lists nodes in order."""

    def __init__(self, step: CountedStep, regions: list[frozenset[str]]) -> None:
        self.step = step
        self.owner = {value: node for node in step.forward for value in node.writes}
        self.regions = outermost_first(regions, self.owner)
        self.homes = self._homes()
        self.versions: dict[tuple[str, Level], str] = {}
        self.repeated: list[Node] = []
        self.nodes: list[Node] = []
        self.sizes = dict(step.sizes)
        self.taken = set(step.network.values()) | {node.name for node in step.network.nodes}

    def run(self) -> Ordering:
        backward = {node.name for node in self.step.backward}
        for node in self.step.network.nodes:
            if node.name not in backward:
                self._add(node, {})
        for node in self.step.backward:
            names = {value: self._version(value, self.homes.get(value, ())) for value in node.reads}
            self._add(node, names)
        return Ordering(tuple(self.nodes), tuple(self.repeated), self.sizes)

    def _homes(self) -> dict[str, Level]:
        """For each value the regions that it is internal to, outermost first."""
        pinned = {v for node in self.step.forward if impurity(node) for v in node.writes}
        pinned |= {*self.step.network.outputs, self.step.loss}
        readers: dict[str, list[Node]] = {}  # those of running statistics read before any reversal, and do not count
        for node in self.step.forward:
            for value in node.reads:
                readers.setdefault(value, []).append(node)
        homes: dict[str, list[int]] = {}
        for i, region in enumerate(self.regions):
            for value in region - pinned:
                if all(region.issuperset(node.writes) for node in readers.get(value, ())):
                    homes.setdefault(value, []).append(i)
        return {value: tuple(levels) for value, levels in homes.items()}

    def _version(self, value: str, level: Level) -> str:
        """The name of a value as the runs of ``level`` give it."""
        if not level:
            return value
        if (value, level) not in self.versions:
            self._run_again(self.owner[value], level)
        return self.versions[value, level]

    def _run_again(self, node: Node, level: Level) -> None:
        """Add a duplicate of a node, after those of the nodes that it reads from (a loop, as chains may be long)."""
        waiting = [node]
        while waiting:
            current = waiting[-1]
            missing = [
                self.owner[value]
                for value in current.reads
                if (there := self._level(value, level)) and (value, there) not in self.versions
            ]
            lower = [n for n in missing if self._level(n.writes[0], level) == level]
            if lower:
                waiting.extend(lower)
                continue
            waiting.pop()
            if (current.writes[0], level) in self.versions:
                continue
            names = {value: self._version(value, self._level(value, level)) for value in current.reads}
            prefix = f"again/{'/'.join(map(str, level))}/"
            outputs = {value: self._fresh(prefix + value) for value in current.writes}
            self.sizes.update({name: self.step.sizes[value] for value, name in outputs.items()})
            self._add(current, {**names, **outputs}, prefix)
            self.repeated.append(current)
            self.versions.update({(value, level): name for value, name in outputs.items()})

    def _level(self, value: str, level: Level) -> Level:
        """The part of a level whose regions a value is internal to: where a run at this level finds it."""
        home = self.homes.get(value, ())
        count = next(
            (i for i, (a, b) in enumerate(zip(home, level, strict=False)) if a != b), min(len(home), len(level))
        )
        return level[:count]

    def _add(self, node: Node, names: Mapping[str, str], prefix: str = "") -> None:
        if node.captured and any(names.get(value, value) != value for value in node.captured):
            raise PlanError(
                f"got node {node.name!r} ({node.op_type}), whose sub-graph captures values that run again; expected "
                "none: leave the region around it out of the plan"
            )
        inputs, outputs = (tuple(names.get(v, v) for v in side) for side in (node.inputs, node.outputs))
        name = self._fresh(prefix + node.name) if prefix else node.name
        self.nodes.append(replace(node, inputs=inputs, outputs=outputs, name=name))

    def _fresh(self, prefix: str) -> str:
        name = next(n for n in (f"{prefix}_{i}" if i else prefix for i in count()) if n not in self.taken)
        self.taken.add(name)
        return name
