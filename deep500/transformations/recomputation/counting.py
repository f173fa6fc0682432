"""Memory counted value by value on the step that will run: the peak of a placement, and the curve over one step.

The model (:mod:`deep500.transformations.recomputation.regions`) bounds the bytes from above, by little. So its
optimum within a budget is thinned while what is counted fits, and the smallest peak is searched among what is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from deep500.errors import BudgetError
from deep500.networks.graph import Graph
from deep500.transformations.recomputation.budgets import unreachable
from deep500.transformations.recomputation.placement import optimal_placement, smallest_placement
from deep500.transformations.recomputation.region_tree import locations, per_instance, simulate
from deep500.transformations.recomputation.regions import NetworkRegions
from deep500.transformations.recomputation.rewriting import Recomputing, ordering
from deep500.transformations.recomputation.training_step import live_bytes, value_bytes

_ROUNDS = 12
_TRIALS = 400  # counts in one search; each takes about 50 ms for 1,000 nodes


def peak_bytes(network: Graph) -> int:
    """Most bytes of values that nodes write, held at once when they run in order and are freed early.

    Example:
        >>> net = Graph(); net.add_input("x", (8, 3)); net.add_node("Relu", ["x"], ["y"])
        >>> peak_bytes(net)
        96
    """
    return max(live_bytes(network.nodes, value_bytes(network), lasting=network.outputs), default=0)


@dataclass(frozen=True)
class Counted:
    """A choice of regions: their names, the bytes that the step then holds, the time of what runs again, who chose."""

    names: frozenset[str]
    peak: int
    extra: float
    method: str


class Counter:
    """Chooses among the regions of one network; every instance of a region is decided for itself.

    Attributes:
        full: the peak of the step in which nothing runs again.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.regions import find_regions
        >>> counter = Counter(find_regions(add_loss(create("resnet", depth=8)), batch=2))
        >>> counter.count([], "none").peak == counter.full, counter.smallest().peak < counter.full
        (True, True)
    """

    def __init__(self, regions: NetworkRegions) -> None:
        self.regions, self.root = regions, per_instance(regions.root)
        self.names = tuple(locations(self.root))
        self._known: dict[frozenset[str], Counted] = {}
        self.full = self.count((), "none").peak

    def count(self, names: Collection[str], method: str) -> Counted:
        """Count what the step holds and repeats if these regions run again."""
        chosen = frozenset(names)
        if chosen not in self._known:
            values = [self.regions.values(region) for region in self.root.walk() if region.name in chosen]
            self._known[chosen] = Counted(chosen, *self.step(values), method)
        return self._known[chosen]

    def step(self, values: Sequence[Collection[str]]) -> tuple[int, float]:
        """Bytes that the step holds at most, and the time of what runs again, if regions that write these values do."""
        regions = self.regions
        order = ordering(regions.step, [set(region) for region in values])
        peak = max(live_bytes(order.nodes, order.sizes, lasting=regions.step.network.outputs), default=0)
        return peak, sum(regions.times[node.writes[0]] for node in order.repeated)

    def within(self, limit: int) -> Counted:
        """The choice with the least extra time that is found within ``limit`` bytes; BudgetError if none is."""
        if self.full <= limit:
            return self.count((), "none")
        # The model counts a little more than will be held, so its budget is larger by this slack, which shrinks until
        # what is counted fits.
        slack = max(0, simulate(self.root, ()).peak - self.full)
        for _ in range(_ROUNDS):
            if limit + slack < 1:
                break
            try:
                placement = optimal_placement(self.root, limit + slack)
            except BudgetError:
                break
            counted = self.count(placement.recomputed, placement.method)
            if counted.peak <= limit:
                return self._thinned(counted, limit)
            slack = min(slack, placement.outcome.peak - limit) - max(counted.peak - limit, 1)
        smallest = self.smallest()
        if smallest.peak > limit:
            raise unreachable(limit, smallest.peak, self.full, "all choices of its regions that were counted")
        return self._thinned(smallest, limit)

    def smallest(self) -> Counted:
        """The choice with the smallest peak that a search finds: from the model's, region by region, while it falls."""
        starts = [
            self.count(smallest_placement(self.root).recomputed, "smallest peak"),
            self.count(self.names, "everything"),
        ]
        best = min(starts, key=lambda counted: (counted.peak, counted.extra))
        trials, improved = 0, True
        while improved and trials < _TRIALS:
            improved = False
            for name in self.names:
                other = self.count(best.names ^ {name}, "smallest peak")
                trials += 1
                if (other.peak, other.extra) < (best.peak, best.extra):
                    best, improved = other, True
        return best

    def _thinned(self, counted: Counted, limit: int) -> Counted:
        """The same without the regions that the model wanted and the count does not need, the costliest first."""
        costs = {region.name: region.total_time for region in self.root.walk()}
        for name in sorted(counted.names, key=lambda name: -costs[name]):
            fewer = self.count(counted.names - {name}, f"{counted.method}, thinned by counting")
            if fewer.peak <= limit and fewer.extra < counted.extra:
                counted = fewer
        return counted


class MemoryCurve(NamedTuple):
    """Bytes over the course of a step: ``held[i]`` from ``at[i]`` to ``at[i + 1]``.

    Attributes:
        at: one number more than ``held``, never falling, from 0 to the time of the step.
        held: bytes.
        turn: when the backward pass begins, None where that is not known.
    """

    at: tuple[float, ...]
    held: tuple[int, ...]
    turn: float | None = None

    @property
    def peak(self) -> int:
        """Most bytes held."""
        return max(self.held, default=0)


def memory_curve(regions: NetworkRegions, again: Recomputing | None = None) -> MemoryCurve:
    """The predicted curve, for executors that run nodes in order and free every value after its last reader.

    Args:
        regions: those of the network, whose times and time unit the curve has.
        again: the step with a plan, see :func:`deep500.transformations.recomputation.planned_step`; None for that
        without.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation import find_regions, plan_network, planned_step
        >>> network = add_loss(create("resnet", depth=8))
        >>> regions, plan = find_regions(network, batch=2), plan_network(network, 0.9, batch=2)
        >>> without, planned = memory_curve(regions), memory_curve(regions, planned_step(network, plan)[1])
        >>> planned.peak == plan.predicted_peak < without.peak, planned.at[-1] > without.at[-1]
        (True, True)
    """
    step = regions.step
    network, repeated = (step.network, ()) if again is None else (again.network, again.repeated)
    known, backward = {node.name for node in step.network.nodes}, {node.name for node in step.backward}
    source = iter(repeated)  # duplicates stand in the network in the order in which they are listed
    clock, turn, at = 0.0, None, [0.0]
    for node in network.nodes:
        original = node if node.name in known else next(source)
        if turn is None and (node.name in backward or node.name not in known):
            turn = clock
        clock += regions.times.get(original.writes[0], 0.0)  # running statistics: not timed, as every plan has them
        at.append(clock)
    return MemoryCurve(tuple(at), tuple(live_bytes(network.nodes, value_bytes(network), lasting=network.outputs)), turn)
