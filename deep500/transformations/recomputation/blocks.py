"""The user's own blocks as regions that run again: what names of values have in common, at every depth.

This is what is usually done by hand, ``torch.utils.checkpoint`` around every block. A block may read and write any
number of activations, so it needs no cut that few of them cross: connections across a U-Net do not hinder it. Blocks
are planned beside the regions between cuts, so that no plan is worse than every block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from deep500.networks.graph import Graph
from deep500.networks.hashing import structure_hash
from deep500.transformations.recomputation.budgets import unreachable
from deep500.transformations.recomputation.counting import Counter
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion
from deep500.transformations.recomputation.regions import NetworkRegions, scope_of
from deep500.transformations.recomputation.training_step import TrainingStep, impurity

DEPTH = 6
"""Scopes of names within each other that are looked at."""

_TRIALS = 40  # blocks of one depth that are left out one by one


def scope_blocks(step: TrainingStep) -> list[tuple[PlannedRegion, ...]]:
    """The blocks of a step's forward pass at each depth of its names' scopes, outermost first.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.training_step import training_step
        >>> blocks = scope_blocks(training_step(add_loss(create("resnet", depth=8)), 2))
        >>> [[block.name for block in depth] for depth in blocks]
        [['layer1', 'layer2', 'layer3']]
    """
    depths: dict[tuple[tuple[str, ...], ...], tuple[PlannedRegion, ...]] = {}
    for depth in range(1, DEPTH + 1):
        blocks = list[PlannedRegion]()
        keyed = ((scope_of([node])[:depth], node) for node in step.forward)
        for scope, group in groupby(keyed, itemgetter(0)):
            nodes = [node for _, node in group]
            values = tuple(value for node in nodes for value in node.writes)
            if len(scope) == depth and len(nodes) > 1 and any(not impurity(node) for node in nodes):
                name = ".".join(scope)
                again = sum(block.location == name for block in blocks)
                blocks.append(PlannedRegion(f"{name} ({again + 1})" if again else name, name, values))
        if len(blocks) > 1:
            depths.setdefault(tuple(block.values for block in blocks), tuple(blocks))
    return list(depths.values())


class BlockPlans:
    """Plans in which blocks of one depth run again, all or some, counted value by value.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.regions import find_regions
        >>> network = add_loss(create("unet"))
        >>> plans = BlockPlans(network, 4, find_regions(network, 4), "none")
        >>> plan = plans.within(int(0.8 * plans.counter.full))
        >>> plan.predicted_peak <= plan.budget, plan.method
        (True, "the network's own blocks")
    """

    def __init__(self, network: Graph, batch: int, regions: NetworkRegions, backend: str) -> None:
        self.regions, self.counter, self.depths = regions, Counter(regions), scope_blocks(regions.step)
        head = (structure_hash(network), batch, regions.step.loss, backend)
        self._empty = CheckpointingPlan(
            *head, (), 0, 0, regions.root.step_time, 0, regions.time_unit, "the network's own blocks", self.counter.full
        )
        self._known: dict[tuple[str, ...], tuple[int, float]] = {}

    def every_block(self) -> list[CheckpointingPlan]:
        """For each depth the plan in which every block runs again, which is what is done by hand."""
        return [self._plan(blocks) for blocks in self.depths]

    def within(self, limit: int) -> CheckpointingPlan:
        """The plan with the least extra time that is found within ``limit`` bytes.

        Raises:
            BudgetError: none is; names the smallest that was counted.
        """
        fitting, smallest = list[CheckpointingPlan](), self.counter.full
        for blocks in self.depths:
            for chosen in (blocks, blocks[:-1]):  # the last one is the first that the backward pass needs
                peak, _ = self._count(chosen)
                smallest = min(smallest, peak)
                if peak <= limit:
                    fitting.append(self._plan(self._thinned(chosen, limit)))
        if not fitting:
            raise unreachable(limit, smallest, self.counter.full, "the network's own blocks")
        return replace(min(fitting, key=lambda plan: plan.predicted_extra), budget=limit)

    def _thinned(self, blocks: Sequence[PlannedRegion], limit: int) -> tuple[PlannedRegion, ...]:
        """The blocks without those that need not run again, the costliest first."""
        costs = {block.name: self._count([block])[1] for block in blocks}
        chosen = list(blocks)
        for block in sorted(blocks, key=lambda block: -costs[block.name])[:_TRIALS]:
            fewer = [other for other in chosen if other is not block]
            if self._count(fewer)[0] <= limit:
                chosen = fewer
        return tuple(chosen)

    def _count(self, blocks: Sequence[PlannedRegion]) -> tuple[int, float]:
        key = tuple(block.name for block in blocks)
        if key not in self._known:
            self._known[key] = self.counter.step([block.values for block in blocks])
        return self._known[key]

    def _plan(self, blocks: Sequence[PlannedRegion]) -> CheckpointingPlan:
        peak, extra = self._count(blocks)
        time = self.regions.root.step_time + extra
        return replace(
            self._empty,
            regions=tuple(blocks),
            budget=peak,
            predicted_peak=peak,
            predicted_time=time,
            predicted_extra=extra,
        )
