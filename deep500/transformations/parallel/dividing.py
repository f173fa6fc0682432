"""From a plan to one plain network per rank: each node in its local form, and collectives as nodes between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from deep500.errors import PlanError
from deep500.networks.network import Network
from deep500.networks.node import Node, rename_captures
from deep500.operators.registry import DOMAIN
from deep500.tensors import numpy_dtype
from deep500.transformations.parallel.joint import JointNetwork
from deep500.transformations.parallel.rules import SHARDING_RULES
from deep500.transformations.parallel.shardings import (
    R,
    Resharding,
    Sharding,
    collective_attributes,
    conversion,
    local_shape,
    piece,
)
from deep500.transformations.parallel.strategies import SizedNode, Strategy, local_node, strategies_of

_SMALL = 64  # elements of constants that nobody splits


class Crossing(NamedTuple):
    """A value that somebody reads in another sharding than its producer leaves it in.

    Attributes:
        value: its name.
        before, after: shardings.
        readers: names of the nodes that read it so; ``"output"`` for the network's outputs.
        resharding: the collective and its cost.
    """

    value: str
    before: Sharding
    after: Sharding
    readers: tuple[str, ...]
    resharding: Resharding


class StepGraph:
    """A joint network as plans see it: shapes, and the strategies of every node on so many ranks."""

    def __init__(self, joint: JointNetwork, ranks: int) -> None:
        self.joint, self.ranks, self.network = joint, ranks, joint.network
        described = self.network.descriptors()
        self.shapes = {name: tuple(int(n) for n in d.shape or ()) for name, d in described.items()}  # type: ignore[arg-type]
        self.dtypes = {name: d.dtype or "" for name, d in described.items()}
        fixed = {n: p.value for n, p in self.network.parameters.items() if not p.trainable}
        self.constants = {name: value for name, value in fixed.items() if name not in joint.moving}
        self.nodes = self.network.nodes
        self.views = {n.name: SizedNode(n, self.shapes, self.dtypes, self.constants) for n in self.nodes}
        self.sources = [*self.network.inputs, *self.network.parameters]
        self.by_name = {n.name: n for n in self.nodes}

    @cached_property
    def strategies(self) -> dict[str, list[Strategy]]:
        """By node, all that its rule allows."""
        return {name: self.strategies_of(view) for name, view in self.views.items()}

    def strategies_of(self, view: SizedNode) -> list[Strategy]:
        """Strategies of a node; only replication without a rule."""
        rule = None if view.node.domain or view.node.graphs else SHARDING_RULES.get(view.node.op_type)
        return strategies_of(view, None if rule is None else rule(view), self.ranks)

    def without_rule(self) -> list[str]:
        """``node (operator)`` of all nodes that can only be replicated."""
        return [
            f"{n.name} ({n.domain + '.' if n.domain else ''}{n.op_type})"
            for n in self.nodes
            if len(self.strategies[n.name]) == 1
        ]

    def source_shardings(self, name: str) -> list[Sharding]:
        """How an input or a parameter may lie: whole, or split along an axis that has enough elements.

        Small constants are whole: frameworks must know sizes and axes when they build a network, and no message is
        worth their bytes. So is what is an output as it stands, as outputs are whole and have no other name.
        """
        small = name in self.constants and self.constants[name].size <= _SMALL
        if small or name in self.network.outputs:
            return [R]
        sizes = enumerate(self.shapes[name])
        return [R, *(Sharding("S", axis) for axis, size in sizes if size >= self.ranks > 1)]

    def itemsize(self, name: str) -> int:
        """Bytes of an element."""
        return int(numpy_dtype(self.dtypes[name] or "float32").itemsize)

    def conversion(self, value: str, before: Sharding, after: Sharding) -> Resharding | None:
        """See :func:`~deep500.transformations.parallel.shardings.conversion`."""
        if self.dtypes[value] == "bool" and before.kind == "P":
            return None
        return conversion(before, after, self.shapes[value], self.itemsize(value), self.ranks)

    def tied(self) -> dict[str, str]:
        """By output, the parameter whose sharding it must have: gradients and running statistics."""
        pairs = [*self.joint.gradients.items(), *self.joint.updates.items()]
        return {output: parameter for parameter, output in pairs}


class Division:
    """A joint network with the choices of a plan: the sharding of every value, and what crosses.

    Args:
        graph: of the step.
        sources: sharding of inputs and parameters; whole if absent.
        strategies: by node, the name of its strategy; replicated if absent.

    Raises:
        PlanError: a strategy that a node does not have, or a change of sharding without a collective; by name.
    """

    def __init__(self, graph: StepGraph, sources: Mapping[str, Sharding], strategies: Mapping[str, str]) -> None:
        self.graph = graph
        self.shardings: dict[str, Sharding] = {name: sources.get(name, R) for name in graph.sources}
        for name in graph.sources:
            if self.shardings[name] not in graph.source_shardings(name):
                raise PlanError(
                    f"got sharding {self.shardings[name]} for {name!r} of {graph.shapes[name]} on {graph.ranks} ranks; "
                    f"expected one of {', '.join(map(str, graph.source_shardings(name)))}: choose such a sharding"
                )
        self.chosen: dict[str, Strategy] = {}
        for node in graph.nodes:
            strategy = self._strategy(node, strategies.get(node.name, "replicate"))
            self.chosen[node.name] = strategy
            self.shardings.update((v, s) for v, s in zip(node.outputs, strategy.outputs, strict=True) if v)
        tied = graph.tied()
        self.outputs = {name: self.shardings[tied[name]] if name in tied else R for name in graph.network.outputs}
        self.crossings = list(self._crossings())

    def _strategy(self, node: Node, name: str) -> Strategy:
        options = self.graph.strategies[node.name]
        for strategy in options:
            if strategy.name == name:
                return strategy
        raise PlanError(
            f"node {node.name!r} ({node.op_type}): got strategy {name!r} on {self.graph.ranks} ranks; expected one of "
            f"{', '.join(s.name for s in options)}: choose such a strategy (an axis must have an element for every "
            "rank, and pieces must be equal where axes are regrouped)"
        )

    def demanded(self) -> Iterator[tuple[str, Sharding, str]]:
        """(value, sharding, reader) for everything that is read."""
        for node in self.graph.nodes:
            for value, sharding in self.chosen[node.name].reads(node):
                yield value, sharding, node.name
        for value, sharding in self.outputs.items():
            yield value, sharding, "output"

    def _crossings(self) -> Iterator[Crossing]:
        readers: dict[tuple[str, Sharding], list[str]] = {}
        for value, sharding, reader in self.demanded():
            if sharding != self.shardings[value]:
                readers.setdefault((value, sharding), []).append(reader)
        for (value, after), names in readers.items():
            before = self.shardings[value]
            resharding = self.graph.conversion(value, before, after)
            if resharding is None:
                raise PlanError(
                    f"got {value!r} as {before}, which {', '.join(names[:3])} wants as {after}; expected a collective "
                    "from one to the other, there is none: choose another strategy"
                )
            yield Crossing(value, before, after, tuple(dict.fromkeys(names)), resharding)

    def network(self, rank: int) -> Network:
        """The network of one rank: same inputs, parameters and outputs by name, in this rank's shapes."""
        return _RankBuilder(self, rank).build()


def part(value: np.ndarray, sharding: Sharding, ranks: int, rank: int) -> np.ndarray:
    """A rank's part of the array of an input or a parameter: a view of the whole, or of a piece.

    Example:
        >>> part(np.arange(5), Sharding("S", 0), 2, 1).tolist()
        [3, 4]
    """
    if sharding.kind != "S":
        return value
    index = [slice(None)] * value.ndim
    index[sharding.axis] = piece(value.shape[sharding.axis], ranks, rank)
    return value[tuple(index)]


class _RankBuilder:
    """Writes the network of one rank."""

    def __init__(self, division: Division, rank: int) -> None:
        self.division, self.graph, self.rank = division, division.graph, rank
        self.ranks = self.graph.ranks
        self.network = Network(f"{self.graph.network.name}, rank {rank} of {self.ranks}")
        self.collective = {(c.value, c.after): c for c in division.crossings}
        self.written: set[str] = set()

    def build(self) -> Network:
        graph, network = self.graph, self.network
        for name, described in graph.network.inputs.items():
            here = local_shape(graph.shapes[name], self.division.shardings[name], self.ranks, self.rank)
            network.add_input(name, here, described.dtype or "float32")
        for name, parameter in graph.network.parameters.items():
            value = part(parameter.value, self.division.shardings[name], self.ranks, self.rank)
            hollow = value.size > 1 and not any(value.strides)  # a value that takes no memory stays so
            value = value if hollow else np.asarray(value, order="C")
            network.put_parameters({name: replace(parameter, value=value)})
        self.written = set(graph.sources)
        for node in graph.nodes:
            self._node(node)
        for name in graph.network.outputs:
            self._read(name, self.division.outputs[name])
            network.add_output(name)
        return network

    def name_of(self, value: str, sharding: Sharding) -> str:
        """A value in a sharding: outputs have their name as they are returned, others as they are produced."""
        final = self.division.outputs.get(value) if value not in self.graph.sources else None
        return value if sharding == (final or self.division.shardings[value]) else f"{value}:{sharding}"

    def _read(self, value: str, sharding: Sharding) -> str:
        name = self.name_of(value, sharding)
        if name not in self.written:
            self._reshard(self.collective[value, sharding], name)
            self.written.add(name)
        return name

    def _reshard(self, crossing: Crossing, name: str) -> None:
        """Add the node that changes a sharding."""
        value, before, after, _, resharding = crossing
        source, shape, node = self.name_of(value, before), self.graph.shapes[value], f"reshard/{value}:{after}"
        if resharding.collective == "Slice":
            where = piece(shape[after.axis], self.ranks, self.rank)
            numbers = [self._constant(f"{name}:{i}", [n]) for i, n in enumerate((where.start, where.stop, after.axis))]
            self.network.add_node("Slice", [source, *numbers], [name], node)
        elif resharding.collective == "Once":
            here = self._constant(f"{name}:here", self.rank == 0)
            zero = self._constant(f"{name}:zero", np.zeros((), numpy_dtype(self.graph.dtypes[value])))
            self.network.add_node("Where", [here, source, zero], [name], node)
        else:
            attributes = collective_attributes(before, after, shape, self.ranks, self.rank)
            self.network.add_node(resharding.collective, [source], [name], node, DOMAIN, **attributes)

    def _constant(self, name: str, value: object) -> str:
        self.network.add_parameter(name, np.asarray(value), trainable=False)
        return name

    def _node(self, node: Node) -> None:
        strategy = self.division.chosen[node.name]
        local, constants, weight = local_node(self.graph.views[node.name], strategy, self.ranks, self.rank)
        inputs = [v and self._read(v, s) for v, s in zip(node.inputs, strategy.inputs, strict=True)]
        for index, value in constants.items():
            inputs[index] = self._constant(f"{node.name}:sizes{index}", value)
        whole = {value: self._read(value, R) for value in node.captured}
        bodies = {key: rename_captures(v, lambda name: whole[name]) for key, v in local.attributes.items()}
        local = replace(local, attributes=bodies)
        outputs = [v and self.name_of(v, s) for v, s in zip(node.outputs, strategy.outputs, strict=True)]
        self.written.update(outputs)
        if weight is not None:
            term = f"{outputs[0]}:term"
            dtype = numpy_dtype(self.graph.dtypes[node.outputs[0]])
            share = self._constant(f"{outputs[0]}:share", np.array(weight, dtype))
            self.network.insert(replace(local, inputs=tuple(inputs), outputs=(term, *outputs[1:])))
            self.network.add_node("Mul", [term, share], [outputs[0]], f"{node.name}:share")
        else:
            self.network.insert(replace(local, inputs=tuple(inputs), outputs=tuple(outputs)))
