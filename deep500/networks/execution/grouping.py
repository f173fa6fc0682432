"""Programs with some of their nodes in groups, nested or beside each other: what backends run again as one function.

A region of a plan names the values of a *network*; the program that a backend compiles may have the bodies of functions
in the place of nodes, and only the nodes that some outputs need. Here regions become groups of the program's nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from deep500.errors import PlanError
from deep500.networks.custom import every_node, is_custom
from deep500.networks.execution.executor import Recomputation, RecomputedRegion
from deep500.networks.execution.program import Program
from deep500.networks.graph import Graph
from deep500.networks.node import Node


@dataclass(frozen=True, eq=False)
class NodeGroup:
    """Nodes that run as one.

    Attributes:
        name: of the region.
        items: nodes and inner groups, in order.
        reads: values that come from outside, parameters and inputs included.
        writes: values that are read outside.
    """

    name: str
    items: tuple[Item, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, those of inner groups included."""
        return tuple(flatten(self.items))


Item: TypeAlias = Node | NodeGroup


def planned(program: Program, network: Graph, plan: Recomputation | None) -> tuple[Item, ...] | None:
    """The program's nodes with those in groups that a plan runs again; None without a plan.

    Raises:
        PlanError: it was made for another network, or its regions cannot be run as wholes, or hold a sub-graph with
            what may not run again.
    """
    if plan is None:
        return None
    plan.check(network, plan.batch)
    items = grouped(program, network, plan.regions)
    for node in flatten(item for item in items if isinstance(item, NodeGroup)):
        inner = every_node([node]) if node.graphs else []
        if hidden := [n.name or n.op_type for n in inner if is_custom(n) or n.is_random]:
            raise PlanError(
                f"got node {node.name!r} in a region of the plan, whose body has {hidden[0]!r}, which may not run "
                "again; expected no custom operators or random numbers there: leave that region out of the plan"
            )
    return items


def grouped(program: Program, network: Graph, regions: Sequence[RecomputedRegion]) -> tuple[Item, ...]:
    """The program's nodes, those of each region together in a group, in an order in which they can run.

    Args:
        program: made from the network.
        network: whose values the regions name.
        regions: any two are nested or disjoint; values that the program does not compute are passed over.

    Raises:
        PlanError: regions that overlap, that another node both reads from and feeds, or before which another node
            would have to draw.

    Example:
        >>> from types import SimpleNamespace
        >>> net = Graph(); net.add_input("x", (4,)); net.add_node("Exp", ["x"], ["a"])
        >>> net.add_node("Tanh", ["a"], ["b"]); net.add_node("Abs", ["b"], ["c"]); net.add_output("c")
        >>> program = Program(["x"], ["c"], net.nodes)
        >>> group, last = grouped(program, net, [SimpleNamespace(name="r", values=("a", "b"))])
        >>> group.reads, group.writes, [node.op_type for node in group.items], last.op_type
        (('x',), ('b',), ['Exp', 'Tanh'], 'Abs')
    """
    origins = {node.name for node in network.nodes}
    members = {node.name: _origin(node.name, origins) for node in program.nodes}
    sets: list[tuple[str, frozenset[str]]] = []
    for region in regions:
        names = {node.name for node in network.nodes if not set(region.values).isdisjoint(node.writes)}
        inside = frozenset(name for name, origin in members.items() if origin in names)
        if inside:
            sets.append((region.name, inside))
    sets.sort(key=lambda pair: -len(pair[1]))  # so that an outer region comes before those inside it
    for i, (name, outer) in enumerate(sets):
        for other, inner in sets[i + 1 :]:
            if outer & inner and not inner <= outer:
                raise PlanError(
                    f"got regions {name!r} and {other!r}, which overlap; expected nested or disjoint ones: plan again"
                )
    items = _Arranger(program).arrange(list(program.nodes), sets)
    # Generators of random numbers give in order: to move a node that draws would change every number after it.
    drawing = [[n.name for n in nodes if n.is_random or n.graphs] for nodes in (program.nodes, flatten(items))]
    if moved := [after for before, after in zip(*drawing, strict=True) if before != after]:
        raise PlanError(
            f"got regions around which node {moved[0]!r} would draw random numbers in another order; expected the "
            "network's: leave the region that is beside it out of the plan"
        )
    return items


def flatten(items: Iterable[Item]) -> list[Node]:
    """The nodes of items, those in groups included, in order."""
    return [node for item in items for node in ([item] if isinstance(item, Node) else item.nodes)]


def _origin(name: str, origins: set[str]) -> str:
    """The network's node that a program's node was made of: a function's body is named after its node."""
    while name not in origins and "/" in name:
        name = name.rpartition("/")[0]
    return name


class _Arranger:
    """Puts nodes into groups and what results into order."""

    def __init__(self, program: Program) -> None:
        self.position = {node.name: i for i, node in enumerate(program.nodes)}
        self.outputs = set(program.outputs)
        self.readers: dict[str, set[str]] = {}
        for node in program.nodes:
            for value in node.reads:
                self.readers.setdefault(value, set()).add(node.name)

    def arrange(self, nodes: Sequence[Node], sets: Sequence[tuple[str, frozenset[str]]]) -> tuple[Item, ...]:
        """These nodes as items; ``sets`` are the regions among them, outer ones first."""
        items: list[Item] = []
        taken: set[str] = set()
        for i, (name, inside) in enumerate(sets):
            if inside <= taken:
                continue  # inside of one before it
            taken |= inside
            inner = [pair for pair in sets[i + 1 :] if pair[1] <= inside]
            items.append(self._group(name, [node for node in nodes if node.name in inside], inner))
        items += [node for node in nodes if node.name not in taken]
        return self._ordered(items)

    def _group(self, name: str, nodes: Sequence[Node], inner: Sequence[tuple[str, frozenset[str]]]) -> NodeGroup:
        members = {node.name for node in nodes}
        written = [value for node in nodes for value in node.writes]
        reads = dict.fromkeys(value for node in nodes for value in node.reads)
        handed = [v for v in written if v in self.outputs or not self.readers.get(v, set()) <= members]
        items = self.arrange(nodes, inner)
        return NodeGroup(name, items, tuple(v for v in reads if v not in set(written)), tuple(handed))

    def _ordered(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """In an order that respects what reads what, and is the program's where that leaves a choice."""
        # Kahn's algorithm; the heap picks the item that the program has first among those that can run.
        makers = {value: i for i, item in enumerate(items) for value in item.writes}
        needs = [{makers[v] for v in item.reads if v in makers} - {i} for i, item in enumerate(items)]
        followers: dict[int, list[int]] = {}
        for i, sources in enumerate(needs):
            for j in sources:
                followers.setdefault(j, []).append(i)
        missing = [len(sources) for sources in needs]
        ready = [(self._place(items[i]), i) for i, count in enumerate(missing) if not count]
        heapq.heapify(ready)
        ordered: list[Item] = []
        while ready:
            _, i = heapq.heappop(ready)
            ordered.append(items[i])
            for j in followers.get(i, ()):
                missing[j] -= 1
                if not missing[j]:
                    heapq.heappush(ready, (self._place(items[j]), j))
        if len(ordered) < len(items):
            stuck = next(item for i, item in enumerate(items) if missing[i] and isinstance(item, NodeGroup))
            raise PlanError(
                f"got region {stuck.name!r}, which other nodes both read from and feed; expected one that can run as a "
                "whole: leave it out of the plan"
            )
        return tuple(ordered)

    def _place(self, item: Item) -> int:
        return min(self.position[node.name] for node in flatten([item]))
